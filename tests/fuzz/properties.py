"""What must hold for every program, whatever it says."""

from __future__ import annotations

import ast
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsdplint.check import check
from fsdplint.files.file import SourceFile
from fsdplint.finding import Finding
from fsdplint.fixes.apply import fixed
from fsdplint.outcome import Changes, Outcome
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

SETTINGS = defaults(EVERYTHING)


@dataclass(frozen=True, slots=True)
class Failure:
    """A property that does not hold, with what was seen."""

    kind: str
    detail: str


# A fix that would bring another finding is given up and said to be: nothing is wrong with that.
TAKEN_BACK = "fix taken back"


@contextmanager
def written(files: Mapping[str, str]) -> Iterator[Path]:
    """A folder that holds a program, byte for byte."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as made:
        root = Path(made).resolve()
        for path, text in files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode("utf-8", "surrogatepass"))
        yield root


def checked(root: Path, overlay: Mapping[str, SourceFile] | None = None) -> Outcome:
    return check([root], SETTINGS, overlay)


def failures(files: Mapping[str, str]) -> list[Failure]:
    """Every property of checking and fixing that does not hold for a program."""
    with written(files) as root:
        try:
            return list(_failures(root))
        except Exception:  # a crash is what is looked for
            return [Failure("crash", traceback.format_exc(limit=-4))]


def grave(files: Mapping[str, str]) -> list[Failure]:
    """The failures that are faults of the checker, and not its caution."""
    return [failure for failure in failures(files) if failure.kind != TAKEN_BACK]


def _failures(root: Path) -> Iterator[Failure]:
    outcome = checked(root)
    for failure in outcome.failures:
        if "internal error" in failure.reason:
            yield Failure("crash", failure.reason)
    if (again := checked(root)).findings != outcome.findings:
        yield Failure("two runs differ", f"{outcome.findings}\n{again.findings}")
    if any(finding.fix for finding in outcome.findings):
        yield from _fix_failures(root, outcome)


def _fix_failures(root: Path, outcome: Outcome) -> Iterator[Failure]:
    changes = fixed(outcome, lambda overlay: checked(root, overlay), unsafe=True)
    for path, note in changes.notes:
        yield Failure(TAKEN_BACK, f"{Path(path).name}: {note}")
    for before, after in changes.files:
        if parses(before.text) and not parses(after.text):
            yield Failure("fix does not parse", after.text)
    yield from _second_failures(root, changes)


def _second_failures(root: Path, changes: Changes) -> Iterator[Failure]:
    overlay = {after.path: after for _, after in changes.files}
    left = checked(root, overlay)
    if Counter(map(_told, left.findings)) != Counter(map(_told, changes.outcome.findings)):
        yield Failure("fix leaves other findings", f"{left.findings}")
    again = fixed(left, lambda more: checked(root, {**overlay, **more}), unsafe=True)
    if again.files:
        yield Failure("fix is not idempotent", again.files[0][1].text)


def _told(finding: Finding) -> tuple[str, object]:
    return finding.rule, finding.span


def parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
