"""Variables that scripts set, by which accelerate shards with FSDP1 in ranks of torchrun."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.launch_variables import Assigned, variables
from fsdplint.configs.launched import Given, program_file, settings_of
from fsdplint.finding import Edit
from fsdplint.knowledge.accelerate_settings import NO_FSDP2, RAM_EFFICIENT, SYNC, has_fsdp2
from fsdplint.knowledge.accelerate_variables import (
    PREFIX,
    SWITCH,
    of_releases,
    setting,
    turns_on,
)
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.migrate.fsdp2.launches import differences, if_launched
from fsdplint.migrate.step import Change, Context, Found, Kept
from fsdplint.rules.fsdp1_config import added_with_2, obstacle, with_2

_REST = re.compile(r"[ \t]*(\r?\n)?")


def launch_variables(context: Context) -> Iterator[Found]:
    """Yield a change for the variables of each launch line of the program, if they are for FSDP1.

    `accelerate launch` sets them itself, by its options.
    """
    scripts = [each for each in context.configs.values() if isinstance(each, LaunchScript)]
    for script in scripts:
        for launch in script.launches:
            runs = program_file(script, launch)
            found = _migrated(context, script, launch) if launch.launcher != ACCELERATE else None
            if found is None:
                continue
            if runs in context.files:
                yield found
            elif not runs or script.path in context.given:
                yield from if_launched(context, found)


def _migrated(context: Context, script: LaunchScript, launch: Launch) -> Found | None:
    switch = variables(script, launch, SWITCH).get(SWITCH)
    is_on = switch and switch.value and turns_on(of_releases(script.releases), switch.value)
    if not switch or not is_on:
        return None
    given = variables(script, launch, PREFIX)
    # Both are off if nothing sets them.
    every = [Given.of(name, "false", switch) for name in (RAM_EFFICIENT, SYNC)]
    every += [Given.of(setting(name), each.value, each) for name, each in given.items()]
    settings = settings_of(script, every)
    if settings.version == 2:
        return None
    span = script.span(switch.start, switch.end)
    if reason := _obstacle(context, script, switch, settings):
        return Kept(span, f"`{SWITCH}`", reason)
    edits = tuple(_edits(script, switch, given, settings))
    differs = "; ".join(differences(settings, None))
    return Change(span, "have accelerate shard with FSDP2", edits, differs=differs)


def _obstacle(
    context: Context, script: LaunchScript, switch: Assigned, settings: AccelerateConfig
) -> str:
    if not has_fsdp2(script.releases):
        return NO_FSDP2
    for other in script.launches if script.path not in context.given else ():
        runs = program_file(script, other)
        own = variables(script, other, SWITCH).get(SWITCH)
        if runs and runs not in context.files and own and own.start == switch.start:
            return f"`{Path(runs).name}` gets the same variables; convert them by hand"
    return obstacle(settings)


def _edits(
    script: LaunchScript, switch: Assigned, given: dict[str, Assigned], settings: AccelerateConfig
) -> Iterator[Edit]:
    for variable in given.values():
        found = settings.get(setting(variable.name))
        assert found is not None
        after = with_2(found)
        if after is None:
            yield _removal(script, variable)
        elif after[1] and after != (setting(variable.name), variable.value):
            new = f"{after[0].upper()}={after[1]}"
            yield Edit(script.span(variable.start, variable.end), new)
    added = {name.upper(): value for name, value in added_with_2(settings).items()}
    line = script.text.rfind("\n", 0, switch.start) + 1
    head = script.text[line : switch.start]
    # After `export`, each has a line of its own.
    between = f"\n{head}" if head.split() == ["export"] else " "
    text = "".join(f"{between}{name}={value}" for name, value in added.items())
    yield Edit(script.span(switch.end, switch.end), text)


def _removal(script: LaunchScript, variable: Assigned) -> Edit:
    """Return the edit that removes an assignment, with `export` if it has no other."""
    commands = script.script.commands
    command = next(c for c in commands if c.start <= variable.start and variable.end <= c.end)
    text, rest = script.text, _REST.match(script.text, variable.end)
    assert rest is not None
    if variable.exported and len(command.words) == 2:
        line = text.rfind("\n", 0, command.start) + 1
        whole = rest[1] and not text[line : command.start].strip()
        return Edit(script.span(line if whole else command.start, rest.end()), "")
    if variable.exported:
        start = len(text[: variable.start].rstrip(" \t\r\n\\"))
        return Edit(script.span(start, variable.end), "")
    following = next(word.start for word in command.words if word.start > variable.start)
    return Edit(script.span(variable.start, following), "")
