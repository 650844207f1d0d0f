"""Programs to begin with: those of the benchmark, of the fixtures and of the rules' pages."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.detection.program import load_all
from tests.pages import read_pages

FIXTURES = Path(__file__).parent.parent / "fixtures"


@dataclass(frozen=True, slots=True)
class Program:
    """Text by path relative to the program's folder."""

    name: str
    files: Mapping[str, str]


@cache
def seeds() -> tuple[Program, ...]:
    """Every program of the repository that is checked for exact findings elsewhere."""
    return tuple(sorted((*_benchmark(), *_singles(), *_projects(), *_examples()), key=_name))


def _name(program: Program) -> str:
    return program.name


def _benchmark() -> Iterator[Program]:
    for program in load_all():
        yield Program(f"benchmark/{program.name}", program.files)


def _singles() -> Iterator[Program]:
    for path in (*FIXTURES.glob("scripts/*/*.py"), *FIXTURES.glob("clean/*.py")):
        name = path.relative_to(FIXTURES).with_suffix("").as_posix()
        yield Program(name, {path.name: path.read_text(encoding="utf-8")})


def _projects() -> Iterator[Program]:
    for folder in (FIXTURES / "projects").iterdir():
        files = {
            path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(folder.rglob("*.py"))
        }
        if files:
            yield Program(f"projects/{folder.name}", files)


def _examples() -> Iterator[Program]:
    """Those examples that are modules: some pages show a ``return`` or an ``await`` alone."""
    for page in read_pages():
        for example in page.examples:
            try:
                ast.parse(example.text)
            except SyntaxError:
                continue
            yield Program(f"pages/{page.name}-{example.line}", {"snippet.py": example.text})
