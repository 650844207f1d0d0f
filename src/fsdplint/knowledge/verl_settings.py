"""The settings of FSDP in verl's configuration of PPO: where they are, and what has an effect.

The table is measured: `scripts/verl_settings.py` has each release read its configuration and notes
with what it calls FSDP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fsdplint.knowledge.accelerate_settings import Settings, read
from fsdplint.knowledge.torch_range import TorchRange

_TABLE = Path(__file__).with_name("verl_settings.csv")
_EXISTS = 0

ACTOR, REF, CRITIC = "actor", "ref", "critic"
PARTS: Mapping[str, str] = {
    ACTOR: "actor_rollout_ref.actor",
    REF: "actor_rollout_ref.ref",
    CRITIC: "critic",
}
"""By model, its part of the configuration."""
SECTIONS: Mapping[str, tuple[str, ...]] = {
    ACTOR: ("actor_rollout_ref.actor.fsdp_config",),
    REF: ("actor_rollout_ref.ref.fsdp_config",),
    CRITIC: ("critic.fsdp", "critic.model.fsdp_config"),
}
"""By model, what holds its settings of FSDP in one release or another."""
STRATEGIES: Mapping[str, int] = {"fsdp": 1, "fsdp2": 2}
STRATEGY = "strategy"
DEFAULT_STRATEGY = "fsdp"
# Before 0.8, another engine may be chosen, which reads the settings in another way.
ENGINE = "trainer.use_legacy_worker_impl"
GROUP = "model_engine"
BASE_CONFIG = "ppo_trainer"
VERSION_FILE = "verl/version/version"
PACKAGE = "verl."

_VERSION = re.compile(r"\s*(\d+)\.(\d+)[\d.]*(\.?dev\d*)?(?:\.?post\d+)?\s*")


@cache
def settings() -> tuple[Settings, ...]:
    """Return the settings of each release, the oldest first."""
    return read(_TABLE)


def admitted(found: TorchRange | None) -> tuple[Settings, ...]:
    """Return what the releases do that requirements admit: every one if they say nothing."""
    if found is None:
        return settings()
    return tuple(each for each in settings() if found.overlaps(*each.releases))


def of_copy(version: str) -> tuple[Settings, ...]:
    """Return the releases that a copy of verl is between, by the text of its version file.

    There are none if it is older or newer than all that were measured.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return ()
    release = int(found[1]), int(found[2])
    every = [each.release for each in settings()]
    if release not in every:
        return ()
    index = every.index(release)
    return settings()[index - 1 if found[3] and index else index : index + 1]


def exists(release: Settings, name: str) -> bool:
    """Return whether the configuration of a release has a setting."""
    return release.has_effect(name, _EXISTS)


def default(release: Settings, name: str) -> str:
    """Return the default of a switch, "" if it is another setting."""
    return "".join(release.takes(name, _EXISTS))


def decides(release: Settings, name: str) -> bool:
    """Return whether a setting decides which version of FSDP shards a model."""
    return release.has_effect(name, STRATEGIES["fsdp2"])


def is_only_for(release: Settings, name: str, strategy: str) -> bool:
    """Return whether a setting has an effect with one strategy and none with the other."""
    version = STRATEGIES[strategy]
    return release.has_effect(name, version) and not release.has_effect(name, 3 - version)


def names(release: Settings) -> list[str]:
    """Return the settings that the configuration of a release has."""
    return release.names(_EXISTS)
