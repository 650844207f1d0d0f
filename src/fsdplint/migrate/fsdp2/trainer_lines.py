"""`--fsdp` and its companions on launch lines: transformers' training arguments for FSDP1.

Source: transformers 4.57 and 5.24 (`training_args.py`, `hf_argparser.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.launched import program_file
from fsdplint.configs.projects import projects_of
from fsdplint.finding import Edit
from fsdplint.fixes.code import NoFixError
from fsdplint.knowledge.accelerate_settings import BY_SIZE_WITH_2, RESHARDS
from fsdplint.knowledge.transformers_settings import (
    ARGUMENT,
    CLASSES,
    RESHARD,
    SIZE,
    STRATEGY_WORDS,
    VERSION,
    VERSION_SINCE,
    default_version,
)
from fsdplint.migrate.fsdp2.launches import if_launched
from fsdplint.migrate.fsdp2.trainer import DIFFERS, SINCE, TOO_OLD
from fsdplint.migrate.step import Change, Context, Found, Kept

_CONFIG = "fsdp_config"
_OF_CLASSES, _OF_SIZE = f"fsdp_{CLASSES}", f"fsdp_{SIZE}"
_NAMES = (ARGUMENT, _CONFIG, _OF_CLASSES, _OF_SIZE)


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of the launched program, with its place.

    Attributes:
        value: None if it is unknown.
    """

    start: int
    end: int
    value: str | None


def trainer_lines(context: Context) -> Iterator[Found]:
    """Yield a change for each launch line of the program by which a `Trainer` uses FSDP1."""
    scripts = [each for each in context.configs.values() if isinstance(each, LaunchScript)]
    for script in scripts:
        for launch in script.launches:
            found = _migrated(script, launch)
            runs = program_file(script, launch)
            if found is None:
                continue
            if runs in context.files:
                yield found
            elif not runs or script.path in context.given:
                yield from if_launched(context, found)


def _migrated(script: LaunchScript, launch: Launch) -> Found | None:
    given = dict(_arguments(script, launch))
    fsdp = given.get(ARGUMENT)
    if fsdp is None or fsdp.value == "" or not script.readers.parses_arguments(script.path):
        return None
    span = script.span(fsdp.start, fsdp.end)
    try:
        edit = _edit(script, given)
    except NoFixError as reason:
        return Kept(span, f"`--{ARGUMENT}`", str(reason))
    if edit is None:
        return None
    return Change(span, "have transformers shard with FSDP2", (edit,), differs=DIFFERS)


def _arguments(script: LaunchScript, launch: Launch) -> Iterator[tuple[str, _Argument]]:
    """Yield those for FSDP that the command line itself gives the program."""
    words = launch.command.words
    first = launch.script.end if launch.script else launch.end
    for word, following in zip(words, (*words[1:], None), strict=True):
        text = script.script.text_of(word, launch.command)
        written, equals, value = (text if isinstance(text, str) else "").partition("=")
        name = written.removeprefix("--").replace("-", "_")
        if word.start < first or name not in _NAMES or not written.startswith("--"):
            continue
        if equals or following is None:
            yield name, _Argument(word.start, word.end, value)
        else:
            got = script.script.text_of(following, launch.command)
            known = got if isinstance(got, str) and not got.startswith("--") else None
            end = word.end if known is None else following.end
            yield name, _Argument(word.start, end, known)


def _edit(script: LaunchScript, given: Mapping[str, _Argument]) -> Edit | None:
    """Return the edit that makes the arguments those of FSDP2, None if they are.

    Raises:
        NoFixError: FSDP2 lacks what one asks for, or it is not known.
    """
    fsdp, classes = given[ARGUMENT], given.get(_OF_CLASSES)
    releases = projects_of({}).transformers(Path(script.path))
    is_old = any(default_version(release) == 1 for release in releases)
    if _CONFIG in given and classes is None:
        return None  # the file has the settings
    if not releases:
        raise NoFixError(
            "the project admits no release of transformers that is known; require "
            f"`transformers>={SINCE}`, then migrate again"
        )
    if not is_old and classes is None and _OF_SIZE not in given:
        return None
    if any(release.release < VERSION_SINCE for release in releases):
        raise NoFixError(TOO_OLD)
    if any(script.text[each.start] != "-" for each in given.values()):
        raise NoFixError("the arguments are quoted; convert them by hand")
    if _OF_SIZE in given:
        raise NoFixError(f"{BY_SIZE_WITH_2}; name the classes of the blocks by hand")
    if _CONFIG in given or fsdp.value is None or (classes and not classes.value):
        raise NoFixError(f"its settings are not all known; put them into `{_CONFIG}` by hand")
    words = [word for word in fsdp.value.split() if word in STRATEGY_WORDS]
    if any(word.upper() not in RESHARDS for word in words):
        raise NoFixError("FSDP2 has no such strategy; choose `full_shard` by hand")
    config: dict[str, object] = {VERSION: 2}
    if any(not RESHARDS[word.upper()] for word in words):
        config[RESHARD] = False
    if classes and classes.value:
        config[CLASSES] = classes.value.split(",")
    text = f"--{_CONFIG} '{json.dumps(config)}'"
    if classes:
        return Edit(script.span(classes.start, classes.end), text)
    return Edit(script.span(fsdp.end, fsdp.end), f" {text}")
