"""What a rule is stands in the catalogue, what it finds in a module of its name."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

from fsdplint import rules
from fsdplint.catalogue import tool
from fsdplint.engine.program import Program
from fsdplint.rule import Report, Rule

FOUND = [rule for rule in rules.RULES if rule not in tool.RULES]


def test_every_module_is_declared_and_every_declaration_has_its_module() -> None:
    assert rules.__file__ is not None
    modules = {path.stem for path in Path(rules.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == {rule.name.replace("-", "_") for rule in FOUND}


@pytest.mark.parametrize("rule", FOUND, ids=lambda rule: rule.name)
def test_a_module_has_a_function_of_its_name_that_makes_reports(rule: Rule) -> None:
    stem = rule.name.replace("-", "_")
    function = getattr(import_module(f"fsdplint.rules.{stem}"), stem)
    assert function.__module__ == f"fsdplint.rules.{stem}"
    assert list(inspect.signature(function).parameters) == ["program"]
    hints = get_type_hints(function, {"Program": Program, "Iterator": Iterator, "Report": Report})
    assert hints == {"program": Program, "return": Iterator[Report]}


def test_rules_are_ordered_by_codes_that_each_has_to_itself() -> None:
    codes = [rule.code for rule in rules.RULES]
    assert codes == sorted(set(codes))
    assert len({rule.name for rule in rules.RULES}) == len(codes)


def test_what_rules_are_is_known_without_the_engine() -> None:
    code = (
        "import sys; from fsdplint.rules import RULES; print(sorted(name for name in sys.modules "
        "if name.startswith(('libcst', 'fsdplint.engine', 'fsdplint.fixes', 'fsdplint.rules.'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
