from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.import_paths import FailingImport, failing_imports
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report
from fsdplint.torch_range import Release


def old_import_path(program: Program) -> Iterator[Report]:
    for fact in failing_imports(program):
        yield Report(
            program.span(fact.site),
            _message(fact),
            "raises an ImportError",
            (),
            partial(_fix, program, fact),
        )


def _message(fact: FailingImport) -> str:
    if fact.gone is None:
        return (
            f"`{fact.name}` is there since torch {_number(fact.since)}, and the code is meant for "
            "older releases"
        )
    now = fact.gone.new and f", and is `{fact.gone.new}` now"
    return f"`{fact.gone.old}` is not there in torch {_number(fact.gone.gone)} and later{now}"


def _number(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def _fix(program: Program, fact: FailingImport) -> Fix | Declined:
    if fact.gone is None:
        there = f"`{fact.before}` has it from torch 2.4 on" if fact.before else "nothing has it"
        return Declined(f"in the releases before, {there}")
    code = fixes.code.Code.of(program.tree(fact.site.path))
    return fixes.import_path.import_from_new_path(code, fact.site.node, program.torch, fact.fatal)
