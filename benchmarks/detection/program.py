"""The programs of the benchmark and the mutants made of them, as values."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent / "programs"

# Stands before the places where a mutant is wrong, until they are turned into lines.
MARK = "§"


@dataclass(frozen=True, slots=True)
class Program:
    """A correct training program, with what its mutators need to be told.

    Attributes:
        files: text by path relative to the program's folder.
        entry: the file that is run.
        args: argument lists it is run with; one run each.
        launch: "torchrun", "python" (it starts its own ranks) or "" where it cannot be run here.
        units: the expressions that are FSDP2 units wherever the program calls them, root first.
        plain: functions in which those names are modules that nobody shards.
        roots: what root sharding calls are given, where that is not plain to see.
        optimizer_first: the optimizer may legally be built before the sharding.
    """

    name: str
    files: Mapping[str, str]
    entry: str
    args: tuple[tuple[str, ...], ...]
    launch: str
    units: tuple[str, ...]
    plain: frozenset[str]
    roots: frozenset[str]
    optimizer_first: bool


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with one mistake in it.

    Attributes:
        rule: the rule that must find it; "" for a mutant that is still correct.
        kind: how the mistake was made, in a few words.
        files: all of the program's files.
        places: (path, line) of the wrong expression and what it captured earlier; a finding is
            right if it stands at one of them or names one of them in its evidence.
    """

    program: str
    rule: str
    kind: str
    files: Mapping[str, str]
    places: frozenset[tuple[str, int]]


def load(folder: Path) -> Program:
    """The program in ``folder``, described by its program.toml."""
    about: dict[str, Any] = tomllib.loads((folder / "program.toml").read_text())
    files = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="ascii")
        for path in sorted(folder.rglob("*.py"))
    }
    return Program(
        name=folder.name,
        files=files,
        entry=about["entry"],
        args=tuple(tuple(line) for line in about.get("args", [[]])),
        launch=about.get("launch", "torchrun"),
        units=tuple(about["units"]),
        plain=frozenset(about.get("plain", [])),
        roots=frozenset(about.get("roots", [])),
        optimizer_first=about.get("optimizer-first", False),
    )


def load_all() -> list[Program]:
    return [load(path.parent) for path in sorted(ROOT.glob("*/program.toml"))]


def mutant(program: Program, rule: str, kind: str, changed: Mapping[str, str]) -> Mutant:
    """The mutant with ``changed`` files, in which MARK stands before each wrong place."""
    places = {
        (path, text.count("\n", 0, offset) + 1)
        for path, text in changed.items()
        for offset in _marks(text)
    }
    clean = {path: text.replace(MARK, "") for path, text in changed.items()}
    return Mutant(program.name, rule, kind, {**program.files, **clean}, frozenset(places))


def _marks(text: str) -> Iterator[int]:
    offset = text.find(MARK)
    while offset >= 0:
        yield offset
        offset = text.find(MARK, offset + 1)
