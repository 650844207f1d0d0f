"""Fixtures every test may ask for, and how the suite is cut: into files, and into what is quick."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import Ranks
from verifier import Verifier

from fsdplint.verify.warm_launcher import Warm

# No run of a test is told by another's; the tests of the cache turn it on.
os.environ["FSDPLINT_NO_CACHE"] = "1"

TESTS = Path(__file__).parent
QUICK = frozenset(
    {
        "test_fixtures.py",
        "test_knowledge_in_one_place.py",
        "test_layers.py",
        "test_pages.py",
        "test_rule_modules.py",
        "test_rule_pages.py",
    }
)
"""What whoever writes a rule runs again and again: it starts no ranks and imports no torch."""
LONG = (
    "test_proofs.py",
    "test_examples.py",
    "verify",
    "test_differential.py",
    "test_fixtures.py",
    "test_rule_pages.py",
)
"""Files and folders of the tests that take longest, which come first: the short ones even out when
the workers of pytest-xdist end."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    # pytest-asyncio asks for a setting that pytest refuses where the plugin is not installed.
    warnings.filterwarnings("ignore", ".*asyncio_default_fixture_loop_scope")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Fixtures are no tests; ``-m quick`` does not even read the files of the other tests."""
    if collection_path == TESTS / "fixtures":
        return True
    if config.option.markexpr == "quick" and collection_path.name.startswith("test_"):
        return collection_path.name not in QUICK or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in QUICK:
            item.add_marker("quick")
    items.sort(key=lambda item: _turn(item.path))


def _turn(path: Path) -> int:
    first = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
    return LONG.index(first) if first in LONG else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Each file is run by one worker: what its tests share is made once, and ranks wait in line."""
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "load":  # asked for
        return None
    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


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
