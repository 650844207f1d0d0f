"""Most files are never parsed, for what their text and their imports say: no finding is lost by it.

The same programs are checked once as they are for a user, and once with every file taken for one
that takes part in sharding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from random import Random

import pytest

from fsdplint.engine import program
from fsdplint.engine.project import relevance
from fsdplint.engine.project.project import Project, Unit
from fsdplint.engine.project.reachability import mark_reachability
from tests.fuzz.programs import Program, seeds
from tests.fuzz.properties import checked, written
from tests.fuzz.rewritten import rewritten, steps
from tests.fuzz.scattered import scattered
from tests.fuzz.shaped import shaped
from tests.fuzz.trees import Trees

SCATTERED = 30
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


PROGRAMS = (
    *(scattered(Random(number)) for number in range(SCATTERED)),
    *(split(Random(number)) for number in range(SPLIT)),
    *(each for each in seeds() if each.name.startswith(("projects/", "benchmark/package"))),
)

Place = tuple[str, str, int]


def told(each: Program) -> dict[str, Place]:
    """Each finding in words, with its rule and its place."""
    with written(each.files) as root:
        return {
            repr(f).replace(f"{root}/", ""): (f.rule, f.span.path[len(str(root)) :], f.span.start)
            for f in checked(root).findings
        }


@pytest.fixture(scope="module")
def as_for_users() -> list[dict[str, Place]]:
    """What is found in each program with the sieve as it is."""
    return [told(each) for each in PROGRAMS]


def test_the_prefilter_loses_no_finding(
    as_for_users: list[dict[str, Place]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "related_units", every_unit)
    for each, ours in zip(PROGRAMS, as_for_users, strict=True):
        assert list(ours) == list(told(each)), each.files


def test_importers_that_are_told_by_names_lose_no_place(
    as_for_users: list[dict[str, Place]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relevance, "_MAX_IMPORTERS", 0)
    for each, ours in zip(PROGRAMS, as_for_users, strict=True):
        assert {*told(each).values()} == {*ours.values()}, each.files


def test_the_programs_have_what_could_be_lost(as_for_users: list[dict[str, Place]]) -> None:
    rules = {rule for found in as_for_users for rule, _, _ in found.values()}
    assert {"optimizer-before-sharding", "direct-forward"} <= rules
