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
_ONE_ENGINE = "(one engine)"

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
"""Those that shard by FSDP, the default first, each with the version."""
STRATEGY = "strategy"
# Before 0.8, another engine may be chosen, which reads the settings in another way.
ENGINE = "trainer.use_legacy_worker_impl"
GROUP = "model_engine"
VERSION_FILE = "verl/version/version"
COPIES = ("verl/__init__.py", VERSION_FILE)
"""Of these files each copy of verl has one."""
DECIDED_IN = "verl/workers/config/actor.py"
DECIDED_BY = 'object.__setattr__(self.engine, "strategy", self.strategy)'
"""The line by which a copy does as the releases that have one engine, whatever its version is."""
MAIN = "verl.trainer.main_ppo"
EXPERIMENTAL = "verl.experimental."

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


def of_copy(version: str, decides: str) -> tuple[Settings, ...]:
    """Return the releases that a copy of verl is between; none if that is unknown.

    Args:
        version: the text of its version file.
        decides: the text of `DECIDED_IN`.
    """
    newest = tuple(filter(has_one_engine, settings())) if DECIDED_BY in decides else ()
    found = _VERSION.fullmatch(version)
    every = [each.release for each in settings()]
    release = (int(found[1]), int(found[2])) if found else (0, 0)
    if found is None or release not in every or (newest and found[3]):
        return newest
    index = every.index(release)
    return settings()[index - 1 if found[3] and index else index : index + 1]


def has_one_engine(release: Settings) -> bool:
    """Return whether all programs of a release shard by the same code."""
    return release.has_effect(_ONE_ENGINE, _EXISTS)


def judges(program: str, releases: tuple[Settings, ...]) -> bool:
    """Return whether it was measured what a program, by its module, does in all releases."""
    if program == MAIN:
        return True
    return program.startswith(EXPERIMENTAL) and all(map(has_one_engine, releases))


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


def is_met(name: str, strategy: str) -> bool:
    """Return whether a strategy always does what a switch asks for if it is on."""
    return strategy == "fsdp2" and name.endswith(".use_orig_params")


def names(release: Settings) -> list[str]:
    """Return the settings that the configuration of a release has."""
    return release.names(_EXISTS)
