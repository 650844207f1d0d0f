"""Correct scripts that look unusual: no clause is violated, and each finishes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.verdict import Verification

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runtime_clean"
RANKS = {"replicas_reduced_at_the_last_micro_batch": 4}
"""How many ranks a script is for, where it is not two."""


@pytest.fixture(scope="module")
def verified(verifier: Verifier) -> Callable[[Path], Verification]:
    """Verifies a script to its end, once."""
    return cache(lambda script: verifier(script, ranks=RANKS.get(script.stem, 2), steps=None))


@pytest.mark.parametrize("script", sorted(FIXTURES.glob("*.py")), ids=lambda path: path.stem)
def test_a_correct_script_violates_nothing(
    verified: Callable[[Path], Verification], script: Path
) -> None:
    result = verified(script)

    violated = [f"{verdict.clause}: {verdict.figures}" for verdict in result.violated]
    assert (violated, result.failure) == ([], "")
    assert result.exit_code == 0


def test_wrappers_do_not_hide_what_a_block_is(verified: Callable[[Path], Verification]) -> None:
    result = verified(FIXTURES / "every_second_block_checkpointed.py")

    blocks = next(verdict for verdict in result.verdicts if verdict.clause == "blocks")
    assert blocks.figures == "`blocks`: 3 blocks (94% of the sharded parameters) in 3 units"


def test_files_written_at_one_line_are_told_apart(
    verified: Callable[[Path], Verification],
) -> None:
    result = verified(FIXTURES / "saved_in_every_way.py")

    saves = next(verdict for verdict in result.verdicts if verdict.clause == "saves")
    assert saves.details == (
        "`model.pt` loads into an unsharded `Net`: 22 of 22 parameters of `Net`, 3,524 elements",
        "`copy.pt` loads into an unsharded `Net`: 22 of 22 parameters of `Net`, 3,524 elements",
    )
