"""Options on a launch line that the training script does not know."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from fsdplint.configs.command_line import CommandLine, command_line, may_refuse
from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.launched import python_file
from fsdplint.configs.launched_code import launched_code
from fsdplint.configs.shell import MANY
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.launch_options import LAUNCH
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD956",
    summary="a launch line has an option that the training script refuses",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="No public script that was read has this mistake, so only examples and proofs "
    "tell how precise the rule is.",
)


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each option that argparse refuses in every rank."""
    for launch in script.launches:
        given = list(_options(script, launch))
        text = script.readers.text(python_file(script, launch)) if given else None
        if text is None or not may_refuse(text, (option for _, option in given)):
            continue
        code = launched_code(script, launch)
        known = command_line(code) if code else None
        if code is None or known is None:
            continue
        for start, option in given:
            if not known.takes(option):
                yield _report(script, launch, known, start, option)


def _options(script: LaunchScript, launch: Launch) -> Iterator[tuple[int, str]]:
    """Yield the long options that a launch line hands to its script, each with its place."""
    if launch.script is None or launch.script not in launch.command.words:
        return
    if launch.launcher == LAUNCH:
        return  # it adds an option of its own, by which the script is refused before
    after = launch.command.words.index(launch.script) + 1
    for word in launch.command.words[after:]:
        text = script.script.text_of(word, launch.command)
        # What follows may be positional, whatever it looks like.
        if text is MANY or text == "--":
            return
        option = text.partition("=")[0] if isinstance(text, str) else ""
        written = script.text[word.start : word.end]
        is_option = option.startswith("--") and isinstance(text, str) and " " not in text
        if is_option and written.startswith(option):
            yield word.start, option


def _report(
    script: LaunchScript, launch: Launch, known: CommandLine, start: int, option: str
) -> Report:
    same = [each for each in known.options if each.replace("_", "-") == option.replace("_", "-")]
    close = same or get_close_matches(option, sorted(known.options), 1, 0.8)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    place = script.span(start, start + len(option))
    runs = launch.script
    assert runs is not None  # its options are reported
    return Report(
        place,
        f"`{Path(runs.literal or '').name}` has no option `{option}`: argparse ends every rank at "
        f"its start{hint}",
        "is refused",
        (Evidence(script.span(runs.start, runs.end), "this script parses the options"),),
        partial(_fix, place, close[0] if close else ""),
    )


def _fix(place: Span, name: str) -> Fix | Declined:
    if not name:
        return Declined("the intended option is unclear; correct or remove it by hand")
    return Fix(f"rename it to `{name}`", Safety.UNSAFE, (Edit(place, name),))
