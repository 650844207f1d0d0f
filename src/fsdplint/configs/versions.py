"""Settings of the other version of FSDP than the file is for, and what happens instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.configs.accelerate import AccelerateConfig, Setting
from fsdplint.knowledge.accelerate_settings import RESHARDS, STRATEGIES, STRATEGY

RESHARD = "fsdp_reshard_after_forward"
_FORWARD_PREFETCH = "fsdp_forward_prefetch"
_INSTEAD = {
    "NO_SHARD": "the model is fully sharded",
    "HYBRID_SHARD": "parameters are sharded over all ranks, not within each node",
    "HYBRID_SHARD_ZERO2": "parameters are sharded over all ranks, not within each node",
}


@dataclass(frozen=True, slots=True)
class Unapplied:
    """A setting that only the other version of FSDP reads.

    Attributes:
        instead: what happens where the setting asks for something else, "" if it asks for that.
        equal: the name and the value by which this version does what the setting asks for.
        same: the setting of this version that decides instead, None if none is given.
    """

    setting: Setting
    instead: str = ""
    equal: tuple[str, str] | None = None
    same: Setting | None = None


def unapplied(config: AccelerateConfig) -> Iterator[Unapplied]:
    """Yield each setting that has an effect with the other version of FSDP only."""
    version = config.version
    if version is None or config.mapping.merged:
        return
    for setting in config.settings:
        name = setting.name
        # What is read for nothing may stop the run all the same.
        if config.have_effect(name, version) is not False or config.refuses(setting, version):
            continue
        if config.have_effect(name, 3 - version):
            yield _with_2(config, setting) if version == 2 else _with_1(config, setting)


def _with_2(config: AccelerateConfig, setting: Setting) -> Unapplied:
    if setting.name == _FORWARD_PREFETCH and setting.is_on:
        return Unapplied(setting, "accelerate does not pass it on to `fully_shard`")
    if setting.name != STRATEGY or not setting.word:
        return Unapplied(setting)
    strategy = STRATEGIES.get(setting.word)
    reshard = config.get(RESHARD)
    reshards = reshard is None or reshard.word not in ("FALSE", "0")
    if strategy is None or strategy in _INSTEAD:
        instead = _INSTEAD.get(strategy or "", "the model is fully sharded")
        return Unapplied(setting, instead, same=reshard)
    if RESHARDS[strategy] == reshards:
        return Unapplied(setting, same=reshard)
    does = "" if reshards else " not"
    instead = f"parameters are{does} resharded after the forward"
    return Unapplied(setting, instead, (RESHARD, str(not reshards).lower()), reshard)


def _with_1(config: AccelerateConfig, setting: Setting) -> Unapplied:
    if setting.name != RESHARD or not setting.word:
        return Unapplied(setting)
    strategy = config.get(STRATEGY)
    is_ = STRATEGIES.get(strategy.word if strategy else "FULL_SHARD", "")
    named = {"TRUE": "FULL_SHARD", "FALSE": "SHARD_GRAD_OP"}.get(setting.word, setting.word)
    asked = STRATEGIES.get(named, "")
    if not asked or not is_ or asked == is_:
        return Unapplied(setting, same=strategy)
    return Unapplied(setting, f"the strategy is {is_}", (STRATEGY, asked), strategy)
