"""gradient-sync-left-off: the flag of FSDP2's gradient reduction turned off for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from benchmarks.detection.module import fresh, indented, modules, reaching
from benchmarks.detection.mutators.no_sync import FLAG, Site, flagged_sites, negated, plain_sites
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "gradient-sync-left-off"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if not program.units:
        return
    everything = modules(program)
    backward = reaching(everything, {"backward"})
    flagged = [site for m in everything for site in flagged_sites(m, backward)]
    for site in flagged or [site for m in everything for site in plain_sites(program, m)]:
        for variant in random.sample(VARIANTS, 5):
            kind = variant.__name__.strip("_")
            yield mutant(program, RULE, kind, {site.module.path: variant(site)})
        for variant in random.sample(LEGAL, 2):
            kind = f"legal: {variant.__name__.strip('_')}"
            yield mutant(program, "", kind, {site.module.path: variant(site)})


def _body(site: Site) -> str:
    return site.module.dedented(site.body[0], site.body[-1])


def _set(site: Site, flag: str, *, wrong: bool = False) -> str:
    return f"{MARK if wrong else ''}{site.model}.{FLAG}({flag})"


def _off(site: Site) -> str:
    return _set(site, "False", wrong=True)


def _counted(site: Site) -> str:
    """The number of the micro-batch, in programs that do not accumulate."""
    return fresh("micro_step", site.module.text)


def _edited(site: Site, lines: str, before: str = "", after: str = "", helper: str = "") -> str:
    """The body replaced by ``lines``, in a loop of two micro-batches if there was none."""
    if site.flag is None:
        lines = f"for {_counted(site)} in range(2):\n{indented(lines, '    ')}"
    text = "".join(f"{part.rstrip()}\n" for part in (before, lines, after) if part)
    start, end = site.module.rows(site.flag or site.body[0], site.body[-1])
    new = indented(text, site.module.indent(site.body[0]))
    return site.module.edited([(start, end, new)], helper=helper)


def _always(site: Site) -> str:
    return _edited(site, f"{_off(site)}\n{_body(site)}")


def _without_loop(site: Site) -> str:
    """Once a step, in a program that has one micro-batch, or in each iteration."""
    if site.flag is not None:
        return _always(site)
    start, _ = site.module.rows(site.body[0])
    line = f"{site.module.indent(site.body[0])}{_off(site)}\n"
    return site.module.edited([(start, start, line)])


def _if_not_last(site: Site) -> str:
    return _edited(site, f"if {negated(site)}:\n    {_off(site)}\n{_body(site)}")


def _two_arms(site: Site) -> str:
    """The arm of the other micro-batches turns it off, that of the last does not turn it on."""
    body = indented(_body(site), "    ")
    return _edited(site, f"if {negated(site)}:\n    {_off(site)}\n{body}else:\n{body}")


def _too_late(site: Site) -> str:
    return _edited(site, f"{_off(site)}\n{_body(site)}{_set(site, 'True')}")


def _turned_around(site: Site) -> str:
    """On before, and off in every micro-batch."""
    return _edited(site, f"{_set(site, 'True')}\n{_off(site)}\n{_body(site)}")


def _by_keyword(site: Site) -> str:
    off = _set(site, "requires_gradient_sync=False", wrong=True)
    return _edited(site, f"{off}\n{_body(site)}")


def _in_try(site: Site) -> str:
    body = indented(_body(site), "    ")
    return _edited(site, f"{_off(site)}\ntry:\n{body}finally:\n    {_set(site, 'True')}")


def _by_helper(site: Site) -> str:
    name = fresh("set_sync", site.module.text)
    helper = f"""
    def {name}(module, enabled):
        {MARK}module.{FLAG}(enabled)
    """
    return _edited(site, f"{MARK}{name}({site.model}, False)\n{_body(site)}", helper=helper)


def _by_condition(site: Site) -> str:
    return _edited(site, f"{_set(site, site.sync)}\n{_body(site)}")


def _by_branch(site: Site) -> str:
    on, off = _set(site, "True"), _set(site, "False")
    return _edited(site, f"if {site.sync}:\n    {on}\nelse:\n    {off}\n{_body(site)}")


def _off_and_on(site: Site) -> str:
    on, off = _set(site, "True"), _set(site, "False")
    return _edited(site, f"{off}\nif {site.sync}:\n    {on}\n{_body(site)}")


def _arm_by_arm(site: Site) -> str:
    body = indented(_body(site), "    ")
    on, off = _set(site, "True"), _set(site, "False")
    arms = f"if {negated(site)}:\n    {off}\n{body}else:\n    {on}\n{body}"
    return _edited(site, arms)


VARIANTS: list[Callable[[Site], str]] = [
    _always,
    _without_loop,
    _if_not_last,
    _two_arms,
    _too_late,
    _turned_around,
    _by_keyword,
    _in_try,
    _by_helper,
]
LEGAL: list[Callable[[Site], str]] = [_by_condition, _by_branch, _off_and_on, _arm_by_arm]
