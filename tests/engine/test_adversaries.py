"""What is made to cost much is followed within the budgets, and it is told where they end it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import helpers
import pytest
from helpers import paths_started
from limits import limit
from test_check import tree

from benchmarks.adversaries import SHAPES
from fsdplint import run_rules as judging
from fsdplint.check import check
from fsdplint.engine import budget
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.state import SHARD_COST, PathState
from fsdplint.engine.interpreter.values import MAX_CONTAINED, Sequence, contained
from fsdplint.engine.program import Program, analyze
from fsdplint.rules import RULES
from fsdplint.run_rules import judge
from fsdplint.settings.config import Settings

PATH = Path("/project/train.py")


def adversary(shape: str, size: int) -> Program:
    text = SHAPES[shape].text(size)
    return analyze(PATH.parent, [PATH], {PATH: text}.get)


def about(shape: str, length: int) -> int:
    """The size at which a shape's text is about so long."""
    largest = SHAPES[shape].largest
    return max(1, min(largest, largest * length // len(SHAPES[shape].text(largest))))


CUT = {
    "call_chain": {"calls nested more than 60 deep"},
    "classes": {"one path exceeds the step limit"},
    "comprehension_nest": {"one path exceeds the step limit"},
    "conditional_expressions": {
        "one path exceeds the step limit",
        "its paths together exceed the analysis budget",
    },
    "doubling_calls": {"one path exceeds the step limit", "calls nested more than 60 deep"},
    "guarded_shards": {
        "one path exceeds the step limit",
        "its paths together exceed the analysis budget",
    },
    "many_parameters": {"one path exceeds the step limit"},
    "mutual_recursion": {"calls nested more than 60 deep"},
    "shards_in_a_row": {"one path exceeds the step limit"},
    "tries": {"its paths together exceed the analysis budget"},
    "unrolled_loops": {"one path exceeds the step limit"},
}
"""By shape, the budgets that end it; the others are followed to their ends."""


@pytest.mark.parametrize("shape", SHAPES)
def test_no_path_costs_more_than_its_budget_and_what_is_cut_is_told(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Smaller ones, which take less time to use up.
    limit(monkeypatch, path_steps=30_000, long_path_steps=80_000, steps=2_000_000)
    limits = budget.BUDGET
    started = paths_started(monkeypatch)
    project = adversary(shape, about(shape, 6_000)).project
    assert not project.crashes
    assert {stop.reason for stop in project.early_stops} == CUT.get(shape, set())
    assert all(state.steps <= limits.long_path_steps + 1 for state in started)
    assert all(state.cost <= limits.path_cost + SHARD_COST for state in started)
    entries: dict[tuple[str, str], list[PathState]] = {}
    for state in started:
        entries.setdefault((state.trace.path, state.trace.entry), []).append(state)
    for paths in entries.values():
        assert len(paths) <= limits.paths
        assert sum(path.cost for path in paths[:-1]) <= limits.entry_cost


def test_what_is_within_the_budgets_is_followed_to_its_end() -> None:
    program = adversary("shards_in_a_row", 100)
    assert not program.project.early_stops
    assert [len(trace.of(Shard)) for trace in program.traces] == [101]


def calls_made(work: Callable[[], object]) -> int:
    """How many functions ``work`` calls."""
    made = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("early_exits", 60),
        ("tries", 150),
        ("call_chain", 60),
        ("helpers_many_callers", 40),
        ("many_parameters", 60),
        ("training_script", 8),
        ("list_of_layers", 100),
        ("unknown_calls", 40),
        ("displays", 60),
        ("doubled_lists", 30),
        ("doubled_texts", 30),
    ],
)
def test_twice_the_text_takes_about_twice_the_work(
    shape: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "MAX_MENDED", 0)  # fixes look through the file

    def work(n: int) -> None:
        program = adversary(shape, n)
        for rule in RULES:
            judge(rule, program)

    work(1)  # what is done once, such as imports
    assert calls_made(lambda: work(2 * size)) <= 2.4 * calls_made(lambda: work(size))


def test_a_list_added_to_itself_does_not_hide_what_it_holds() -> None:
    program = adversary("doubled_lists", 60)
    assert [event.module.path() for event in helpers.path_of(program).of(Shard)] == [""]


def test_of_very_many_values_not_all_are_looked_at() -> None:
    values = [Sequence([]) for _ in range(3 * MAX_CONTAINED)]
    assert len(list(contained(Sequence([*values])))) == MAX_CONTAINED


def test_a_file_of_very_many_findings_has_fixes_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = "model.forward(x)\n"
    head = "from torch.distributed.fsdp import fully_shard\nmodel = Model()\nfully_shard(model)\n"
    tree(tmp_path, **{"train.py": head + 5 * step})
    monkeypatch.setattr(judging, "MAX_MENDED", 2 * len(head + 5 * step))
    findings = check([str(tmp_path)], Settings()).findings
    assert [finding.fix is not None for finding in findings] == [True, True, False, False, False]
    assert {finding.fix_declined for finding in findings[2:]} == {
        "fixes of the other findings come first, of which this file has very many"
    }
