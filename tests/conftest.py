"""Fixtures every test may ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from ranks import Ranks
from verifier import Verifier

from fsdplint.verify.warm import Warm

# No run of a test is told by another's; the tests of the cache turn it on.
os.environ["FSDPLINT_NO_CACHE"] = "1"


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Gloo ranks forked from one process with torch loaded, shared by the whole session."""
    with Ranks() as pool:
        yield pool


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Ranks for verifications, forked from one process with torch loaded."""
    with Warm() as launcher:
        yield launcher


@pytest.fixture(scope="session")
def verifier(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Verifier:
    """Verifies scripts on warm ranks, a few tenths of a second each."""
    return Verifier(warm, tmp_path_factory)
