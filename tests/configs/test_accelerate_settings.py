"""What is known of accelerate's settings is what the installed release does.

The tests that ask accelerate import it: collecting them takes seconds less.
"""

from __future__ import annotations

from measuring import installed

from fsdplint.knowledge.accelerate_settings import (
    FIELDS,
    OTHER_NAMES,
    RESHARDS,
    STRATEGIES,
    settings,
)


def test_the_newest_release_is_installed() -> None:
    assert installed("accelerate", settings()) is settings()[-1]


def test_releases_are_in_order_and_version_2_is_since_1_6() -> None:
    releases = [each.release for each in settings()]
    assert releases == sorted(set(releases))
    assert {each.release for each in settings() if each.is_known("fsdp_version")} == {
        release for release in releases if release >= (1, 6)
    }


def test_fields_are_those_of_a_config_file() -> None:
    from accelerate.commands.config.config_args import ClusterConfig

    assert set(ClusterConfig.__dataclass_fields__) <= FIELDS


def test_strategies_are_those_of_accelerate() -> None:
    from accelerate.commands import to_fsdp2
    from accelerate.utils.constants import FSDP_SHARDING_STRATEGY

    assert list(dict.fromkeys(STRATEGIES.values())) == FSDP_SHARDING_STRATEGY
    assert [STRATEGIES[str(number)] for number in range(1, 6)] == FSDP_SHARDING_STRATEGY
    converted = to_fsdp2.ARGUMENT_VALUE_MAPPING["fsdp_sharding_strategy"]
    assert RESHARDS.items() <= converted.items()


def test_other_names_are_of_settings() -> None:
    known = {name for each in settings() for name in each.names(1)}
    assert set(OTHER_NAMES.values()) <= known
    assert not OTHER_NAMES.keys() & set(settings()[-1].names(1))
