"""Whole programs and projects: the findings are exactly the markers in their lines.

A line ending in ``# error: <rule>`` carries one finding of that rule; every other line carries
none. ``tests/fixtures/README.md`` tells how to add a program.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.files.file import from_text
from fsdplint.rules import RULES
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

FIXTURES = Path(__file__).parent / "fixtures"
PROJECTS = sorted(path for path in (FIXTURES / "projects").iterdir() if path.is_dir())
SINGLES = sorted([*FIXTURES.glob("scripts/*/*.py"), *FIXTURES.glob("clean/*.py")])
SOURCES = sorted(
    path
    for folder in ("scripts", "clean", "projects")
    for path in (FIXTURES / folder).rglob("*.py")
)

MARKER = re.compile(r"# error: ([a-z0-9-]+(?:, [a-z0-9-]+)*)")

Found = list[tuple[str, int, str]]
FOLDERS = sorted({path.parent for path in SOURCES})


def name(path: Path) -> str:
    return path.relative_to(FIXTURES).as_posix()


def markers(path: Path, root: Path) -> Found:
    """Where ``path`` says that findings are, as (path under ``root``, line, rule)."""
    relative = path.relative_to(root).as_posix()
    return [(relative, line, rule) for line, rule in _markers(path)]


@cache
def _markers(path: Path) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    return [
        (comment.start[0], rule)
        for comment in comments
        if (match := MARKER.fullmatch(comment.string))
        for rule in match[1].split(", ")
    ]


@pytest.mark.parametrize("path", SINGLES, ids=name)
def test_single_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    source = from_text(text, path.name)
    whole = {source.path: source}
    outcome = check([source.path], defaults(EVERYTHING), whole, alone=True)
    assert not (outcome.failures or outcome.partly)
    found = [
        (path.name, source.position(finding.span.start)[0], finding.rule)
        for finding in outcome.findings
    ]
    assert sorted(found) == sorted(markers(path, path.parent))


@pytest.mark.parametrize("root", PROJECTS, ids=name)
def test_project(root: Path) -> None:
    outcome = check([root], defaults(EVERYTHING))
    assert not (outcome.failures or outcome.partly)
    found: Found = []
    for finding in outcome.findings:
        relative = Path(finding.span.path).relative_to(root.resolve()).as_posix()
        line, _ = outcome.sources[finding.span.path].position(finding.span.start)
        found.append((relative, line, finding.rule))
    expected = [marker for path in root.rglob("*.py") for marker in markers(path, root)]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_fixtures_are_well_formed(folder: Path) -> None:
    for path in folder.glob("*.py"):
        expect_well_formed(path)


def expect_well_formed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    compile(text, str(path), "exec", dont_inherit=True)
    if path.name != "__init__.py":
        docstring = ast.get_docstring(ast.parse(text))
        assert docstring and "\n" not in docstring, path
    marked = {rule for _, _, rule in markers(path, FIXTURES)}
    assert text.count("# error") == len(MARKER.findall(text)), path
    assert marked <= {rule.name for rule in RULES}, path
    if path.is_relative_to(FIXTURES / "clean"):
        assert not marked, path
    if path.is_relative_to(FIXTURES / "scripts"):
        assert marked == {path.parent.name}, path
