"""Fixes in files of every encoding, line end and indentation that Python reads.

A variant of a fixture is the same program in other bytes: its findings are the same, its fix is the
same fix, and the lines that the fix leaves alone keep each byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.files.file import SourceFile, from_bytes
from fsdplint.fixes.apply import fixed
from fsdplint.outcome import Outcome
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

FIXTURES = Path(__file__).parents[1] / "fixtures/scripts"
SCRIPTS = [min(folder.glob("*.py")) for folder in sorted(FIXTURES.iterdir())]
COOKIE = b"# -*- coding: latin-1 -*-\n# caf\xe9\n"


def mixed(text: str) -> bytes:
    """LF, CRLF and CR by turns; an empty line with LF would be one line end with a CR above it."""
    lines = text.split("\n")
    ends = [("\n", "\r", "\r\n")[n % 3] if line else "\r\n" for n, line in enumerate(lines[:-1])]
    return "".join(map("".join, zip(lines, [*ends, ""], strict=True))).encode()


def tabs(text: str) -> bytes:
    return re.sub(r"(?m)^(?: {4})+", lambda found: "\t" * (len(found[0]) // 4), text).encode()


def form_feeds(text: str) -> bytes:
    return re.sub(r"(?m)^(?=def |class |import )", "\f", text).encode()


VARIANTS: Mapping[str, Callable[[str], bytes]] = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "CR": lambda text: text.replace("\n", "\r").encode(),
    "mixed": mixed,
    "tabs": tabs,
    "latin-1": lambda text: COOKIE + text.encode("latin-1"),
    "form feeds": form_feeds,
    "no final newline": lambda text: text.removesuffix("\n").encode(),
}
CASES = [
    (path, list(VARIANTS)[(number + shift) % len(VARIANTS)])
    for number, path in enumerate(SCRIPTS)
    for shift in (0, 3, 6)
]


def lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", data.removeprefix(COOKIE))


def plain(line: bytes) -> bytes:
    """The line as the fixture itself has it."""
    bare = line.removeprefix(b"\xef\xbb\xbf").lstrip(b"\f").rstrip(b"\r\n")
    return bare.replace(b"\t", b"    ") + b"\n"


def rules(outcome: Outcome) -> list[str]:
    return sorted(finding.rule for finding in outcome.findings)


@cache
def repaired(path: Path, data: bytes) -> tuple[list[str], bytes, list[str]]:
    """What is found in a file of these bytes, what fixing makes of it, and what is left then."""
    source = from_bytes(data, str(path))

    def recheck(overlay: Mapping[str, SourceFile]) -> Outcome:
        files = {source.path: source, **overlay}
        return check([source.path], defaults(EVERYTHING), files, alone=True)

    outcome = recheck({})
    changes = fixed(outcome, recheck, unsafe=True)
    ((_, after),) = changes.files or ((source, source),)
    return rules(outcome), after.encode(), rules(changes.outcome)


@pytest.mark.parametrize(
    ("path", "variant"), CASES, ids=[f"{path.parent.name}-{name}" for path, name in CASES]
)
def test_a_fix_is_the_same_in_other_bytes(path: Path, variant: str) -> None:
    original = path.read_bytes()
    data = VARIANTS[variant](original.decode())
    found, after, left = repaired(path, original)
    other_found, other_after, other_left = repaired(path, data)
    assert (other_found, other_left) == (found, left)
    old, new, expected = lines(data), lines(other_after), lines(after)
    assert list(map(plain, new)) == expected
    assert other_after.endswith(data[-1:]) or after == original
    for tag, i, j, k, end in SequenceMatcher(None, lines(original), expected, False).get_opcodes():
        if tag == "equal":
            assert told_apart(new[k:end]) == told_apart(old[i:j])


def told_apart(kept: list[bytes]) -> list[bytes]:
    """``kept`` but for what an edit beside them may have: the last line's end, and blank lines."""
    *whole, last = kept
    return [line for line in (*whole, last.rstrip(b"\r\n")) if line.strip()]


def test_every_variant_is_tried() -> None:
    assert {variant for _, variant in CASES} == set(VARIANTS)
