"""What is known of transformers' settings is what the installed release does."""

from __future__ import annotations

import pytest
from measuring import installed

from fsdplint.knowledge.torch_range import TorchRange
from fsdplint.knowledge.transformers_settings import (
    OTHER_NAMES,
    STRATEGY_WORDS,
    XLA,
    accepts,
    admitted,
    default_version,
    settings,
)

NEWEST = settings()[-1]


def test_the_newest_release_is_installed() -> None:
    assert installed("transformers", settings()) is NEWEST


def test_releases_are_in_order() -> None:
    releases = [each.release for each in settings()]
    assert releases == sorted(set(releases))


def test_fsdp2_is_known_since_5_0_and_the_default_since_5_10() -> None:
    for release in settings():
        assert release.has_effect("version", 2) is (release.release >= (5, 0))
        assert default_version(release) == (2 if release.release >= (5, 10) else 1)


def test_other_names_are_of_settings() -> None:
    known = set(NEWEST.names(1))
    assert set(OTHER_NAMES.values()) <= known
    assert not OTHER_NAMES.keys() & known
    assert known >= XLA


@pytest.mark.parametrize(
    ("words", "version", "taken"),
    [
        (("full_shard", "auto_wrap", "offload"), 2, True),
        (("hybrid_shard", "auto_wrap"), 2, False),
        (("hybrid_shard", "auto_wrap"), 1, True),
        (("full_shard,auto_wrap",), 1, False),
        (("full_shard", "full_shard"), 2, True),
        (("true",), 2, False),
    ],
)
def test_words_that_the_newest_release_takes(
    words: tuple[str, ...], version: int, taken: bool
) -> None:
    assert accepts(NEWEST, words, version) is taken


def test_words_are_those_of_strategies() -> None:
    takes = NEWEST.takes("fsdp", 1)
    assert takes.issuperset(STRATEGY_WORDS)


def test_without_requirements_the_newest_release_counts_and_none_if_all_are_older() -> None:
    assert admitted(None) == (NEWEST,)
    assert admitted(TorchRange.parse("==4.31.0")) == ()
    assert {each.release for each in admitted(TorchRange.parse("~=4.57.0"))} == {(4, 57)}
