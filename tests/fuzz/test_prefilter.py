"""Most files are never parsed, for what their text and their imports say: no finding is lost by it.

The same programs are checked once as they are for a user, and once with every file taken for one
that takes part in sharding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from random import Random

import pytest

from fsdplint.engine import program
from fsdplint.engine.project import relevance
from fsdplint.engine.project.project import Project, Unit
from fsdplint.engine.project.reachability import mark_reachability
from fsdplint.finding import Finding
from tests.fuzz.programs import Program, seeds
from tests.fuzz.properties import checked, written
from tests.fuzz.rewritten import rewritten, steps
from tests.fuzz.scattered import scattered
from tests.fuzz.shaped import shaped
from tests.fuzz.trees import Trees

SCATTERED = 40
SPLIT = 8


def every_unit(
    project: Project,
    files: Iterable[Path],
    focus: Collection[Path] | None = None,  # noqa: ARG001 - as the sieve has it
) -> list[Unit]:
    """In the place of the sieve: all files there are."""
    units = [unit for path in files if (unit := project.unit(path)) is not None]
    mark_reachability(project, units)
    return units


def split(random: Random) -> Program:
    """A shuffled training program, rewritten into functions and files, among those of another."""
    trees, _ = rewritten(Trees.of(shaped(random).files), steps(random, 3))
    return Program("split", {**scattered(random).files, **trees.printed()})


def told(each: Program) -> list[str]:
    with written(each.files) as root:
        return [relative(finding, root) for finding in checked(root).findings]


def places(each: Program) -> set[tuple[str, str, int]]:
    with written(each.files) as root:
        return {
            (f.rule, f.span.path[len(str(root)) :], f.span.start) for f in checked(root).findings
        }


def relative(finding: Finding, root: Path) -> str:
    return repr(finding).replace(f"{root}/", "")


PROGRAMS = (
    *(scattered(Random(number)) for number in range(SCATTERED)),
    *(split(Random(number)) for number in range(SPLIT)),
    *(each for each in seeds() if each.name.startswith(("projects/", "benchmark/package"))),
)


@cache
def told_with_sieve() -> list[list[str]]:
    return [told(each) for each in PROGRAMS]


def test_the_sieve_loses_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    with_sieve = told_with_sieve()
    with monkeypatch.context() as patch:
        patch.setattr(program, "related_units", every_unit)
        without = [told(each) for each in PROGRAMS]
    for each, ours, theirs in zip(PROGRAMS, with_sieve, without, strict=True):
        assert ours == theirs, each.files


def test_importers_that_are_told_by_names_lose_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [places(each) for each in PROGRAMS]
    monkeypatch.setattr(relevance, "_MAX_IMPORTERS", 0)
    for each, theirs in zip(PROGRAMS, every, strict=True):
        assert places(each) == theirs, each.files


def test_the_programs_have_what_could_be_lost() -> None:
    rules = {line.split("rule='")[1].split("'")[0] for told in told_with_sieve() for line in told}
    assert {"optimizer-before-sharding", "direct-forward"} <= rules
