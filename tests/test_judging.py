from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from test_check import SHARD, TRAIN, tree

from fsdplint.check import check
from fsdplint.engine.interpreter import paths
from fsdplint.engine.interpreter.entry_point import Entry
from fsdplint.engine.interpreter.state import PathState
from fsdplint.engine.program import Program
from fsdplint.outcome import Outcome, State
from fsdplint.rule import Report
from fsdplint.settings.config import Settings

FOUND = "optimizer-before-sharding"
BROKEN = "direct-forward"
AT_FAULT = (
    "internal error in {}, please report it: ZeroDivisionError: why "
    "(FSDPLINT_DEBUG=1 prints the traceback)"
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FSDPLINT_DEBUG", raising=False)
    tree(tmp_path, **{"shard.py": SHARD, "bad.py": TRAIN, "good.py": TRAIN})
    return tmp_path


def module_of(name: str) -> ModuleType:
    return import_module(f"fsdplint.rules.{name.replace('-', '_')}")


def break_rule(
    monkeypatch: pytest.MonkeyPatch, name: str, reports: Callable[[Program], Iterator[Report]]
) -> None:
    monkeypatch.setattr(module_of(name), "reports", reports)


def ran(project: Path) -> Outcome:
    return check([project], Settings(select=frozenset({FOUND, BROKEN})))


def found(outcome: Outcome) -> list[tuple[str, str]]:
    return [(Path(f.span.path).name, f.rule) for f in outcome.findings]


def failed(outcome: Outcome) -> list[tuple[str, str]]:
    return [(Path(e.path).name, e.reason) for e in outcome.failures]


def test_a_rule_that_raises_is_told_with_the_file_and_the_rest_goes_on(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reports(program: Program) -> Iterator[Report]:
        if any(trace.path.endswith("bad.py") for trace in program.traces):
            raise ZeroDivisionError("why")
        return iter(())

    break_rule(monkeypatch, BROKEN, reports)
    outcome = ran(project)
    assert failed(outcome) == [("bad.py", AT_FAULT.format(BROKEN))]
    assert found(outcome) == [("bad.py", FOUND), ("good.py", FOUND)]
    states = {Path(account.path).name: account.state for account in outcome.accounts}
    assert states == {
        "bad.py": State.FAILED,
        "good.py": State.CHECKED,
        "shard.py": State.CHECKED,
    }


def test_what_a_rule_finds_before_it_raises_is_kept(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reports(program: Program) -> Iterator[Report]:
        yield from list(original(program))[:1]
        raise ZeroDivisionError("why")

    original = module_of(FOUND).reports
    break_rule(monkeypatch, FOUND, reports)
    outcome = ran(project)
    assert found(outcome) == [("bad.py", FOUND)]
    assert [name for name, _ in failed(outcome)] == ["bad.py", "good.py"]


def test_a_fix_that_raises_costs_only_itself(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reports(program: Program) -> Iterator[Report]:
        for report in original(program):
            yield dataclasses.replace(report, fix=crash)

    def crash() -> None:
        raise ZeroDivisionError("why")

    original = module_of(FOUND).reports
    break_rule(monkeypatch, FOUND, reports)
    outcome = ran(project)
    assert found(outcome) == [("bad.py", FOUND), ("good.py", FOUND)]
    assert {f.fix_declined for f in outcome.findings} == {"an internal error prevents the fix"}
    fault = AT_FAULT.format(f"the fix of {FOUND}")
    assert failed(outcome) == [("bad.py", fault), ("good.py", fault)]


def test_a_program_that_the_engine_fails_on_costs_no_other(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = paths.start

    def crash(state: PathState, entry: Entry) -> None:
        if state.trace.path.endswith("bad.py"):
            raise ZeroDivisionError("why")
        start(state, entry)

    monkeypatch.setattr(paths, "start", crash)
    outcome = ran(project)
    assert found(outcome) == [("good.py", FOUND)]
    assert failed(outcome) == [("bad.py", AT_FAULT.format("the engine"))]


def test_a_fault_is_raised_where_it_is_looked_for(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reports(_: Program) -> Iterator[Report]:
        raise ZeroDivisionError("why")

    break_rule(monkeypatch, BROKEN, reports)
    monkeypatch.setenv("FSDPLINT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        ran(project)
