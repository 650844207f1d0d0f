"""What the safe fixes of each rule make of a program."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.differential.program import Fixed, Program
from fsdplint.check import check
from fsdplint.finding import Finding, Safety
from fsdplint.fixes.apply import fixed
from fsdplint.outcome import Outcome
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

ALL = "(all)"
"""The name for the fixes of all rules at once."""


def safe_fixes(program: Program) -> list[Fixed]:
    """Return the program as the safe fixes of each rule leave it, and as those of all do."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write(program.files, folder)
        outcome = check([folder], defaults(EVERYTHING))
        rules = sorted({f.rule for f in outcome.findings if f.fix and f.fix.safety is Safety.SAFE})
        together = [ALL] if len(rules) > 1 else []
        found = [Fixed(rule, _fixed(folder, outcome, rule)) for rule in (*rules, *together)]
    return [Fixed(each.rule, {**program.files, **each.files}) for each in found if each.files]


def write(files: Mapping[str, str], folder: Path) -> None:
    """Put a program's files into a folder."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def _fixed(folder: Path, outcome: Outcome, rule: str) -> dict[str, str]:
    changes = fixed(
        outcome,
        lambda overlay: check([folder], defaults(EVERYTHING), overlay),
        unsafe=False,
        curing=partial(_curing, rule),
    )
    return {Path(new.path).relative_to(folder).as_posix(): new.text for _, new in changes.files}


def _curing(rule: str, outcome: Outcome) -> Sequence[Finding]:
    """Return all findings, of which those of one rule alone keep their fix."""
    return [f if f.rule == rule or rule == ALL else replace(f, fix=None) for f in outcome.findings]


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return what a fix changed, as a unified diff."""
    lines: list[str] = []
    for path in sorted(after):
        old, new = before.get(path, "").splitlines(), after[path].splitlines()
        lines += difflib.unified_diff(old, new, path, path, lineterm="", n=2)
    return "\n".join(lines)
