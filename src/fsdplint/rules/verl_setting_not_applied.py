"""Settings of verl for the other strategy than the model is sharded with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.verl_lines import Override, VerlLine, VerlScript, shown
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.verl_settings import (
    PARTS,
    SECTIONS,
    STRATEGIES,
    STRATEGY,
    default,
    exists,
    is_met,
    is_only_for,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD942",
    summary="a setting of verl has no effect with the strategy that is used",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Only two public scripts that were read have this mistake, "
    "so little is known of how precise the rule is.",
)


def verl_reports(script: VerlScript) -> Iterator[Report]:
    """Yield a report for each setting that only another strategy reads."""
    for line in script.lines:
        for model, sections in SECTIONS.items():
            for override in _of(line, sections):
                yield from _report(script, line, model, override)


def _of(line: VerlLine, sections: tuple[str, ...]) -> Iterator[Override]:
    """Yield the overrides in sections that count."""
    inside = tuple(f"{each}." for each in sections)
    for override in line.overrides:
        if override.name.startswith(inside) and line.get(override.name) is override:
            yield override


def _report(script: VerlScript, line: VerlLine, model: str, override: Override) -> Iterator[Report]:
    releases = tuple(each for each in script.releases if exists(each, override.name))
    strategy = line.strategy(model, releases)
    if not releases or strategy is None or not line.is_known(releases):
        return
    other = next(each for each in STRATEGIES if each != strategy)
    differs = {"true", "false"} - {default(releases[-1], override.name)}
    if override.word not in differs or is_met(override.name, strategy):
        return
    if not all(is_only_for(release, override.name, other) for release in releases):
        return
    given = line.get(f"{PARTS[model]}.{STRATEGY}")
    evidence = (Evidence(script.span(given), "the strategy is chosen here"),) if given else ()
    by = "" if given else ", which is the default"
    yield Report(
        script.span(override),
        f"`{script.written(override)}` has no effect: {shown(releases)} reads it only where the "
        f"strategy is `{other}`, and here it is `{strategy}`{by}",
        "is not applied",
        evidence,
        partial(_fix, script, line, override),
    )


def _fix(script: VerlScript, line: VerlLine, override: Override) -> Fix | Declined:
    if override.is_apart:
        return Declined("other commands may use the array that it is in")
    return Fix("remove the setting", Safety.UNSAFE, (script.removal(line, override),))
