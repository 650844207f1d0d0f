"""Options of `accelerate launch` by which a program shards with FSDP1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fsdplint.configs.accelerate import AccelerateConfig, Setting
from fsdplint.configs.launch_lines import Launch, LaunchScript, Option
from fsdplint.configs.launch_variables import variables
from fsdplint.configs.launched import (
    Given,
    config_file,
    program_file,
    settings_with,
    turned_on,
)
from fsdplint.configs.nodes import UNKNOWN, Scalar
from fsdplint.finding import Edit, Span
from fsdplint.knowledge.accelerate_settings import NO_FSDP2, STATES, STRATEGY, VERSION, has_fsdp2
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.migrate.fsdp2.accelerate import STRATEGY_ANSWERS
from fsdplint.migrate.fsdp2.launches import differences, if_launched
from fsdplint.migrate.step import Change, Context, Found, Kept, Question
from fsdplint.rules.fsdp1_config import added_with_2, obstacle, with_2

_USE, _STATES_VARIABLE = "use_fsdp", "FSDP_STATE_DICT_TYPE"
_NAME = re.compile(r"--[\w-]+")
_COMMENT = re.compile(r"[ \t]+#[^\r\n]*")
_REST = re.compile(r"[ \t]*(\r?\n)?")


def launch_lines(context: Context) -> Iterator[Found]:
    """Yield a change for each launch line of the program whose options are for FSDP1.

    A line of which it is not known what it runs is asked about, unless its file is given.
    """
    scripts = [each for each in context.configs.values() if isinstance(each, LaunchScript)]
    for script in scripts:
        for launch in script.launches:
            runs = program_file(script, launch)
            for found in _migrated(context, script, launch):
                if runs in context.files:
                    yield found
                elif not runs or script.path in context.given:
                    yield from if_launched(context, found)
        for word in script.unread:
            reason = (
                "these options of `accelerate launch` are in no line that fsdplint understands; "
                f"pass `--{VERSION} 2` and convert them by hand"
            )
            kept = Kept(script.span(word.start, word.end), "options for FSDP", reason)
            if f"{VERSION} 2" not in script.text[word.start : word.end].replace("=", " "):
                yield from if_launched(context, kept)


def _migrated(context: Context, script: LaunchScript, launch: Launch) -> Iterator[Found]:
    file = config_file(script, launch)
    is_on = turned_on(launch, file)
    if is_on is False or launch.launcher != ACCELERATE or not any(_of_fsdp(launch)):
        return
    if is_on is None and launch.get(_USE):
        return  # accelerate refuses another kind of training beside it
    settings = settings_with(script, launch, file)
    if is_on is None:
        settings = replace(settings, mapping=replace(settings.mapping, merged=True))
    span, what = script.span(launch.start, launch.end), "`accelerate launch`"
    version = settings.version or _asked(context, span)
    if version == 2:
        return
    if isinstance(version, Question):
        yield version
        return
    strategy = settings.get(STRATEGY)
    if strategy and not strategy.word:
        text = f"Which strategy does `{STRATEGY}` select?"
        question = Question(span, "sharding-strategy", text, tuple(STRATEGY_ANSWERS))
        answer = context.answer(question)
        if answer is None:
            yield question
            return
        settings = _with(settings, strategy, STRATEGY_ANSWERS[answer])
    if reason := _obstacle(context, script, launch, settings):
        yield Kept(span, what, reason)
    elif edits := tuple(_edits(script, launch, settings)):
        precision = launch.get("mixed_precision")
        differs = "; ".join(differences(settings, precision.value if precision else None))
        yield Change(span, "have `accelerate launch` shard with FSDP2", edits, differs=differs)


def _with(settings: AccelerateConfig, setting: Setting, word: str) -> AccelerateConfig:
    """Return settings with another value of one, unknown if ``word`` is empty."""
    place = setting.entry.value
    value = Scalar(place.start, place.end, word or UNKNOWN, "")
    new = replace(setting, entry=replace(setting.entry, value=value))
    every = (new if each is setting else each for each in settings.settings)
    return replace(settings, settings=tuple(every))


def _asked(context: Context, span: Span) -> Question | int:
    """Return the version of FSDP by the user's answer, or the question."""
    text = "Which version of FSDP does `accelerate launch` select?"
    question = Question(span, "fsdp-version", text, ("2", "1"))
    answer = context.answer(question)
    return question if answer is None else int(answer)


def _obstacle(
    context: Context, script: LaunchScript, launch: Launch, settings: AccelerateConfig
) -> str:
    file, options = config_file(script, launch), list(_of_fsdp(launch))
    if not has_fsdp2(script.releases):
        return NO_FSDP2
    if settings.mapping.merged:
        return f"not all of its options are known; pass `--{VERSION} 2` and convert them by hand"
    if isinstance(file, AccelerateConfig) and not file.shards:
        return "its config file has settings of FSDP, too; convert both by hand"
    if any(script.text[each.start] != "-" for each in options):
        return "its options are quoted; convert them by hand"
    starts = {each.start for each in options}
    for other in script.launches if script.path not in context.given else ():
        runs = program_file(script, other)
        if runs and runs not in context.files and any(o.start in starts for o in other.options):
            return f"`{Path(runs).name}` gets the same options; convert them by hand"
    return obstacle(settings)


def _of_fsdp(launch: Launch) -> Iterator[Option]:
    return (each for each in launch.options if each.name == _USE or each.name.startswith("fsdp_"))


def _edits(script: LaunchScript, launch: Launch, settings: AccelerateConfig) -> Iterator[Edit]:
    text, options = script.text, [each for each in _of_fsdp(launch) if each.name != _USE]
    for option in options:
        setting = Given.of(option.name, option.value, option).setting
        after = with_2(settings.get(option.name) or setting if option.value is None else setting)
        if after is None:
            yield _removal(script, launch, option)
        elif after[1] and after != (option.name, option.value):
            name = _NAME.match(text, option.start)
            assert name is not None
            yield Edit(script.span(*name.span()), f"--{after[0]}")
            yield Edit(script.span(option.value_start, option.value_end), after[1])
    anchor, file = launch.get(_USE), config_file(script, launch)
    # A config file that shards by itself gets the version, too.
    if anchor and not isinstance(file, AccelerateConfig):
        own = variables(script, launch, _STATES_VARIABLE)
        added = {n: v for n, v in added_with_2(settings).items() if n != STATES or not own}
        before = text[: anchor.start]
        blanks = before[len(before.rstrip(" \t\r\n\\")) :] or " "
        sign = "=" if options and "=" in text[options[0].start : options[0].end] else " "
        new = "".join(f"{blanks}--{name}{sign}{value}" for name, value in added.items())
        # In an array, a comment may follow.
        in_array = anchor.start < launch.command.start and "\n" in blanks
        comment = _COMMENT.match(text, anchor.end) if in_array else None
        at = comment.end() if comment else anchor.end
        yield Edit(script.span(at, at), new)


def _removal(script: LaunchScript, launch: Launch, option: Option) -> Edit:
    """Return the edit that removes an option, in an array with a line that holds nothing else."""
    if launch.command.start <= option.start:
        return script.removal(launch, option)
    start = len(script.text[: option.start].rstrip(" \t"))
    if script.text[start - 1] != "\n":
        return Edit(script.span(start, option.end), "")
    rest = _REST.match(script.text, option.end)
    assert rest is not None
    return Edit(script.span(start if rest[1] else option.start, rest.end()), "")
