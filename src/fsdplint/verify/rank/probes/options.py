"""Note the script's own options that say how large its model or its batches are."""

from __future__ import annotations

import argparse
import re
from typing import Any

from fsdplint.verify.events import Options
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen

_SIZE = re.compile(
    r"layers?|depth|blocks?|dim|width|hidden|embd?|embedding|heads?|experts?|batch|size|seq|"
    r"length|context|tokens?|vocab|accumulation|accum"
)


def install(seen: Seen) -> None:
    """Wrap what every `argparse.ArgumentParser` parses with."""
    note = seen.recorder.probe("options")(_note)

    def parse(original: Any, parser: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(parser, *args, **kwargs)
        note(seen, parser, result[0])
        return result

    wrap(argparse.ArgumentParser, "parse_known_args", parse)


def _note(seen: Seen, parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    found = {}
    for action in parser._actions:
        value = getattr(given, action.dest, None)
        long = [name for name in action.option_strings if name.startswith("--")]
        if long and type(value) is int and value > 1 and _words(long[0]):
            found[long[0]] = value
    if found:
        seen.write(Options(tuple(found), tuple(found.values())))


def _words(name: str) -> bool:
    return any(_SIZE.fullmatch(word) for word in re.split(r"[-_]+", name.lower()))
