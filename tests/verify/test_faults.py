"""Every seeded fault is violated on exactly its clause; its corrected twin keeps the contract.

Nothing here looks at what the linter says: the scripts run, and only what they do is judged. Faults
of which there is an example are in test_rules.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from verifier import Verifier

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runtime"
FAULTS = {
    "barrier-under-guard": "collectives",
    "collective-under-guard": "collectives",
    "no-sync-guarded": "accumulation",
    "one-device-for-all": "device-per-rank",
    "only-root-sharded-fsdp1": "blocks",
    "replicas-drift": "replicas",
    "root-before-children": "sharding-order",
    "tied-weights-split": "ties",
}
"""Fault folders and the one clause each of them breaks."""
RANKS = {"replicas-drift": 4}
"""How many ranks a fault needs to show, where two are too few."""


def test_every_fault_is_listed() -> None:
    assert {folder.name for folder in FIXTURES.iterdir()} == set(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_violates_its_clause_alone(verifier: Verifier, fault: str) -> None:
    result = verifier(FIXTURES / fault / "broken.py", ranks=RANKS.get(fault, 2))

    assert [verdict.clause for verdict in result.violated] == [FAULTS[fault]], result.failure
    assert result.exit_code == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_the_corrected_twin_is_confirmed(verifier: Verifier, fault: str) -> None:
    result = verifier(FIXTURES / fault / "fixed.py", ranks=RANKS.get(fault, 2))

    assert (result.violated, result.failure) == ((), "")
    confirmed = {v.clause for v in result.verdicts if v.status.value == "confirmed"}
    assert FAULTS[fault] in confirmed
