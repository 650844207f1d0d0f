"""Settings of FSDP that verl does not have."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.verl_lines import Override, VerlLine, VerlScript
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.verl_settings import MAIN, SECTIONS, exists, names
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD943",
    summary="a command has a setting of FSDP that verl does not know",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="No public script that was read has this mistake, "
    "so only examples tell how precise the rule is.",
)


def verl_reports(script: VerlScript) -> Iterator[Report]:
    """Yield a report for each override that Hydra refuses in every release of the project."""
    # A copy of verl, or a configuration of its own, may have other settings.
    judged = bool(script.releases) and not script.has_copy
    for line in script.lines if judged else ():
        for override in line.overrides if line.is_whole and line.program == MAIN else ():
            section = _section(override.name)
            if not section:
                continue
            known = [exists(release, override.name) for release in script.releases]
            if override.sign == "" and not any(known):
                yield _unknown(script, line, override, section)
            elif override.sign == "+" and all(known):
                yield _added(script, override)


def _section(name: str) -> str:
    """Return the section that a setting is in, "" if it is in none."""
    every = (section for sections in SECTIONS.values() for section in sections)
    return next((section for section in every if name.startswith(f"{section}.")), "")


def _unknown(script: VerlScript, line: VerlLine, override: Override, section: str) -> Report:
    name = _meant(script, override, section)
    hint = f"; did you mean `{name}`?" if name else ""
    return Report(
        script.span(override),
        f"{script.verl} refuses to start: its configuration has no setting `{override.name}`{hint}",
        "is refused",
        (),
        partial(_rename, script, line, override, name),
    )


def _meant(script: VerlScript, override: Override, section: str) -> str:
    """Return the setting that is evidently meant, "" if none is."""
    rest = override.name.removeprefix(f"{section}.")
    siblings = next(each for each in SECTIONS.values() if section in each)
    known = [
        name
        for name in names(script.releases[-1])
        if _section(name) in siblings and all(exists(each, name) for each in script.releases)
    ]
    by_rest = {name.removeprefix(f"{_section(name)}."): name for name in known}
    close = get_close_matches(rest, by_rest, 1, 0.85)
    return by_rest[close[0]] if close else ""


def _rename(script: VerlScript, line: VerlLine, override: Override, name: str) -> Fix | Declined:
    if not name:
        return Declined("the intended setting is unclear; remove it, or add it with a `+`")
    if override.is_apart or line.get(name) is not None:
        return Declined(f"`{name}` may be given elsewhere; correct it by hand")
    return Fix(f"rename it to `{name}`", Safety.UNSAFE, (script.renaming(override, name),))


def _added(script: VerlScript, override: Override) -> Report:
    def fix() -> Fix | Declined:
        if override.is_apart:
            return Declined("other commands may use the array that it is in")
        edit = script.renaming(override, override.name)
        return Fix("remove the `+`", Safety.UNSAFE, (edit,))

    return Report(
        script.span(override),
        f"{script.verl} refuses to start: `+` adds a setting, but its configuration already has "
        f"`{override.name}`",
        "is refused",
        (),
        fix,
    )
