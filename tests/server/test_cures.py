"""A fix from the editor is checked like one of the command line, and ends one finding alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.edits import apply
from fsdplint.outcome import Outcome
from fsdplint.server.analysis import Analysis, Buffers, Choices, as_file

SCRIPTS = Path(__file__).parents[1] / "fixtures" / "scripts"
REASON = "a known bug"


def analyzed(folder: Path, script: str) -> tuple[Analysis, Outcome, Buffers]:
    (folder / "pyproject.toml").touch()
    file = (folder / "train.py").as_posix()
    buffers = {file: as_file(file, (SCRIPTS / script).read_text("utf-8"))}
    analysis = Analysis(folder.as_posix())
    return analysis, analysis.check([file], Choices(), buffers), buffers


@pytest.mark.parametrize(
    "script", ["direct-forward/loops_over_batches.py", "old-import-path/lazy_and_grouped.py"]
)
def test_a_fix_ends_one_finding_alone(tmp_path: Path, script: str) -> None:
    analysis, outcome, buffers = analyzed(tmp_path, script)
    fixable = [finding for finding in outcome.findings if finding.fix is not None]
    assert len(fixable) > 1
    for finding in fixable:
        assert finding.fix is not None
        changes = analysis.cured(outcome, finding, "", Choices(), buffers)
        ((before, after),) = changes.files
        assert after.text == apply(before.text, finding.fix.edits)
        assert len(changes.outcome.findings) == len(outcome.findings) - 1


@pytest.mark.parametrize("text", ["((", "pass"])
def test_a_fix_that_breaks_the_code_is_rolled_back(tmp_path: Path, text: str) -> None:
    analysis, outcome, buffers = analyzed(tmp_path, "direct-forward/bound_before_sharding.py")
    (finding,) = outcome.findings
    broken = Fix("break it", Safety.SAFE, (Edit(finding.span, text),))
    finding = replace(finding, fix=broken)
    outcome = replace(outcome, findings=(finding,))
    changes = analysis.cured(outcome, finding, "", Choices(), buffers)
    reason = "a fix of direct-forward was rolled back: the fixed code is not valid Python"
    assert (changes.files, changes.notes) == ((), ((finding.span.path, reason),))


def test_a_comment_ends_a_finding_too(tmp_path: Path) -> None:
    analysis, outcome, buffers = analyzed(tmp_path, "direct-forward/loops_over_batches.py")
    changes = analysis.cured(outcome, outcome.findings[0], REASON, Choices(), buffers)
    ((_, after),) = changes.files
    assert after.text.count(f"# fsdplint: ignore[direct-forward] -- {REASON}") == 1
    assert len(changes.outcome.findings) == len(outcome.findings) - 1
