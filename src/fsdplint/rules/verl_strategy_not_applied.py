"""A strategy of verl in a place that does not decide."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.verl_lines import Override, VerlLine, VerlScript, shown
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.verl_settings import PARTS, SECTIONS, STRATEGIES, STRATEGY, decides, exists
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD941",
    summary="a strategy for verl is given where it does not decide",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def verl_reports(script: VerlScript) -> Iterator[Report]:
    """Yield a report for each strategy that another setting replaces."""
    for line in script.lines:
        for model, sections in SECTIONS.items():
            for section in sections:
                override = line.get(f"{section}.{STRATEGY}")
                if override and override.value in STRATEGIES:
                    yield from _report(script, line, model, override)


def _report(script: VerlScript, line: VerlLine, model: str, override: Override) -> Iterator[Report]:
    releases = tuple(each for each in script.releases if exists(each, override.name))
    if not releases or not line.is_known(releases):
        return
    applied = line.strategy(model, releases)
    if applied is None or applied == override.value:
        return
    if any(decides(release, override.name) for release in releases):
        return
    deciding = f"{PARTS[model]}.{STRATEGY}"
    given = line.get(deciding)
    which = "is" if given else "is by default"
    evidence = (Evidence(script.span(given), "this decides"),) if given else ()
    yield Report(
        script.span(override),
        f"`{script.written(override)}` has no effect in {shown(releases)}: `{deciding}` decides, "
        f"which {which} `{applied}`, so FSDP{STRATEGIES[applied]} shards the {_NAMES[model]}",
        "is ignored",
        evidence,
        partial(_fix, script, override, deciding, given),
    )


_NAMES = {"actor": "actor", "ref": "reference model", "critic": "critic"}


def _fix(
    script: VerlScript, override: Override, deciding: str, given: Override | None
) -> Fix | Declined:
    if given is not None:
        return Declined(f"`{deciding}` is given as well; remove the one that is not meant")
    if override.is_apart:
        return Declined("other commands may use the array that it is in")
    edit = script.renaming(override, deciding)
    return Fix(f"set `{deciding}`", Safety.UNSAFE, (edit,))
