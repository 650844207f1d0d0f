"""Variables of the environment that accelerate reads, but not in this launch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.launch_variables import Assigned, ignored_by_all, is_used, variables
from fsdplint.configs.launched import (
    Given,
    config_file,
    python_file,
    settings_of,
    settings_with,
    turned_on,
)
from fsdplint.configs.versions import unapplied
from fsdplint.files.discover import SCRIPT_SUFFIXES
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import Settings
from fsdplint.knowledge.accelerate_variables import (
    PREFIX,
    SWITCH,
    VERSION,
    launcher_default,
    launcher_sets,
    of_releases,
    setting,
    turns_on,
)
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD918",
    summary="a variable of FSDP has no effect on the launch that it is set for",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="No public script that was read has this mistake, so only examples and proofs "
    "tell how precise the rule is.",
)

_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_ON = "true"
# Code that mentions FSDP may turn it on by itself, and so may arguments that code reads.
_FSDP = rb"(?i)fsdp|fullysharded|hfargumentparser|trlparser|trainingarguments"


@dataclass(frozen=True, slots=True)
class _Ignored:
    """Why a variable has no effect.

    Attributes:
        word: the value that has an effect, "" if it is another variable that is wrong.
    """

    why: str
    because: Assigned | None = None
    word: str = ""


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each variable that has no effect on any launch that gets it."""
    releases = of_releases(script.releases)
    if not (PREFIX in script.text or SWITCH in script.text) or not releases:
        return
    why: dict[int, _Ignored] = {}
    for launch, variable in ignored_by_all(script, _ignored(script, releases, why)):
        ignored = why[variable.start]
        shown = " ".join(script.text[variable.start : variable.end].split())
        because = ignored.because
        yield Report(
            script.span(variable.start, variable.end),
            f"`{shown}` {ignored.why}",
            "has no effect",
            (Evidence(script.span(because.start, because.end), "because of this"),)
            if because
            else (Evidence(script.span(launch.start, launch.end), "the launch"),),
            partial(_fix, script, variable, ignored.word),
        )


def _ignored(
    script: LaunchScript, releases: tuple[Settings, ...], why: dict[int, _Ignored]
) -> Iterator[tuple[Launch, Assigned]]:
    for launch in script.launches:
        switch = variables(script, launch, SWITCH).get(SWITCH)
        given = variables(script, launch, PREFIX)
        judged = (
            _replaced(script, launch, given, releases)
            if launch.launcher == ACCELERATE
            else _unread(script, launch, given, switch, releases)
        )
        for variable, ignored in judged:
            if not is_used(script, variable.name):
                why.setdefault(variable.start, ignored)
                yield launch, variable


def _replaced(
    script: LaunchScript,
    launch: Launch,
    given: Mapping[str, Assigned],
    releases: tuple[Settings, ...],
) -> Iterator[tuple[Assigned, _Ignored]]:
    """Yield the variables that `accelerate launch` replaces by other values."""
    names = [name for name in given if launcher_sets(releases, name)]
    file = config_file(script, launch) if names else None
    if not names or not turned_on(launch, file) or not launch.closed:
        return
    settings = settings_with(script, launch, file)
    for name in names:
        variable, found = given[name], settings.get(setting(name))
        if variable.value is None or (found is not None and not found.word):
            continue
        default = "" if settings.mapping.merged else launcher_default(releases[-1], name)
        sets = found.word if found else default
        if sets and sets != variable.value.upper():
            from_ = f"from `--{setting(name)}`, the config file or its default"
            yield variable, _Ignored(f"has no effect: `accelerate launch` sets it {from_} ({sets})")


def _unread(
    script: LaunchScript,
    launch: Launch,
    given: Mapping[str, Assigned],
    switch: Assigned | None,
    releases: tuple[Settings, ...],
) -> Iterator[tuple[Assigned, _Ignored]]:
    """Yield the variables that a rank under torchrun does not read."""
    if switch is None:
        yield from _not_turned_on(script, launch, given, releases)
    if switch is None or switch.value is None:
        return
    is_on = turns_on(releases, switch.value)
    if is_on:
        yield from _of_other_version(script, launch, given, releases)
    seems_on = is_on is False and switch.value.lower() in _TRUE
    if seems_on and not _may_turn_on(script, launch):
        why = f"does not turn FSDP on: only `{_ON}` does, and the model is not sharded"
        yield switch, _Ignored(why, word=_ON)


def _not_turned_on(
    script: LaunchScript,
    launch: Launch,
    given: Mapping[str, Assigned],
    releases: tuple[Settings, ...],
) -> Iterator[tuple[Assigned, _Ignored]]:
    """Yield the first variable if no file of the project has the switch."""
    read = [each for name, each in given.items() if all(r.is_known(name) for r in releases)]
    if not read or SWITCH in script.text or _may_turn_on(script, launch):
        return
    if not script.readers.may_have(script.path, SWITCH.encode(), SCRIPT_SUFFIXES):
        first = min(read, key=lambda each: each.start)
        yield first, _Ignored(f"has no effect: nothing turns FSDP on with `{SWITCH}={_ON}`")


def _of_other_version(
    script: LaunchScript,
    launch: Launch,
    given: Mapping[str, Assigned],
    releases: tuple[Settings, ...],
) -> Iterator[tuple[Assigned, _Ignored]]:
    """Yield the variables that only the other version of FSDP reads."""
    version = given.get(VERSION)
    if version is None or version.value not in ("1", "2"):
        return
    if not python_file(script, launch) or script.readers.may_have(script.path, _FSDP):
        return
    by_name = {setting(name): variable for name, variable in given.items()}
    every = [Given.of(name, v.value, v) for name, v in by_name.items()]
    for each in unapplied(settings_of(script, every)):
        variable = by_name[each.setting.name]
        number = int(version.value)
        read = [release.has_effect(variable.name, number) for release in releases]
        if each.instead and not any(read):
            why = f"has no effect with `{VERSION}={number}`: {each.instead}"
            yield variable, _Ignored(why, version)


def _may_turn_on(script: LaunchScript, launch: Launch) -> bool:
    """Return whether something else than the switch may turn FSDP on."""
    text = script.text
    for start, end in reversed(script.script.comments):
        text = text[:start] + text[end:]
    others = re.sub(rf"{SWITCH}=|{PREFIX}[A-Z_]+=", "", text)
    return (
        "fsdp" in others.lower()
        or not python_file(script, launch)
        or script.readers.may_have(script.path, _FSDP)
    )


def _fix(script: LaunchScript, variable: Assigned, word: str) -> Fix | Declined:
    if not word:
        return Declined("the intended value is unclear; remove the variable by hand, or set it")
    edit = Edit(script.span(variable.value_start, variable.end), word)
    return Fix(f"set `{variable.name}={word}`", Safety.UNSAFE, (edit,))
