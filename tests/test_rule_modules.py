"""What a rule is, finds, says and mends stands in its module; the tables are made from these."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

from fsdplint.configs.kinds import KINDS
from fsdplint.engine.program import Program
from fsdplint.rule import Report, Rule
from fsdplint.rules import RULES

ROOT = Path(__file__).parent.parent
FOUND = [rule for rule in RULES if not (rule.code.startswith("FSD0") or rule.is_of_configs)]
OF_CONFIGS = [rule for rule in RULES if rule.is_of_configs]


def test_the_tables_are_up_to_date() -> None:
    tables = [sys.executable, str(ROOT / "scripts" / "rules.py"), "--check"]
    done = subprocess.run(tables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_module_is_listed() -> None:
    modules = {path.stem for path in (ROOT / "src/fsdplint/rules").glob("*.py")}
    assert modules - {"__init__"} == {rule.name.replace("-", "_") for rule in RULES}


@pytest.mark.parametrize("rule", FOUND, ids=lambda rule: rule.name)
def test_a_module_makes_the_reports_of_its_rule(rule: Rule) -> None:
    module = import_module(f"fsdplint.rules.{rule.name.replace('-', '_')}")
    assert rule == module.RULE
    assert list(inspect.signature(module.reports).parameters) == ["program"]
    hints = get_type_hints(
        module.reports, {"Program": Program, "Iterator": Iterator, "Report": Report}
    )
    assert hints == {"program": Program, "return": Iterator[Report]}


@pytest.mark.parametrize("rule", OF_CONFIGS, ids=lambda rule: rule.name)
def test_a_module_makes_the_reports_of_a_rule_on_other_files(rule: Rule) -> None:
    module = import_module(f"fsdplint.rules.{rule.name.replace('-', '_')}")
    assert rule == module.RULE
    functions = {kind.name: f"{kind.name}_reports" for kind in KINDS}
    made = {kind: vars(module)[name] for kind, name in functions.items() if name in vars(module)}
    assert made or hasattr(module, "reports")
    for kind, reports in made.items():
        (value,) = inspect.signature(reports).parameters
        hints = get_type_hints(reports)
        judged = {each.name: each.judged for each in KINDS}[kind]
        assert hints["return"] == Iterator[Report]
        assert f"{hints[value].__module__}.{hints[value].__name__}" == judged


def test_rules_are_ordered_by_codes_that_each_has_to_itself() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert len({rule.name for rule in RULES}) == len(codes)


def test_listing_rules_imports_none_of_them() -> None:
    code = (
        "import sys; from fsdplint.rules import RULES; print(sorted(name for name in sys.modules "
        "if name.startswith(('libcst', 'fsdplint.engine', 'fsdplint.fixes', 'fsdplint.rules.'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
