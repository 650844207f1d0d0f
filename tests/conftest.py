"""Fixtures every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Gloo ranks forked from one process with torch loaded, shared by the whole session."""
    with Ranks() as pool:
        yield pool
