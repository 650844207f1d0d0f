"""What a project's config files say of the code that is launched with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.configs.accelerate import AccelerateConfig, OtherConfig
from fsdplint.engine.project.launch_settings import LaunchSettings
from fsdplint.knowledge.accelerate_settings import STRATEGIES, STRATEGY, SYNC

_BOOLEANS = {"FALSE": False, "0": False, "TRUE": True, "1": True}
_SWITCHES = ("fsdp_use_orig_params", "fsdp_reshard_after_forward", SYNC)
_STATES = "fsdp_state_dict_type"


def launch_settings(values: Sequence[object]) -> tuple[LaunchSettings, ...]:
    """Return what a project's config files say of the code that is launched with them.

    Args:
        values: what the files of other kinds than Python hold.
    """
    every = [each for each in values if isinstance(each, (AccelerateConfig, OtherConfig))]
    configs = [each for each in every if isinstance(each, AccelerateConfig)]
    # Of a project that may be launched without FSDP nothing is known.
    found = _common(configs) if len(configs) == len(every) else None
    return (found,) if found else ()


def _common(configs: Sequence[AccelerateConfig]) -> LaunchSettings | None:
    """Return what config files have in common, None if one of them may not shard.

    The first one stands for all of them.
    """
    if not configs or not all(config.shards and config.version for config in configs):
        return None
    first, *others = (dict(_keywords(config)) for config in configs)
    common = {n: v for n, v in first.items() if all(o.get(n) == v for o in others)}
    key = configs[0].section.key
    return LaunchSettings(configs[0].path, key.start, key.end, common)


def _keywords(config: AccelerateConfig) -> Iterator[tuple[str, str | int | bool]]:
    """Yield the arguments of accelerate's plugin that settings come to."""
    assert config.version is not None
    yield "fsdp_version", config.version
    for setting in config.settings:
        name = setting.name.removeprefix("fsdp_")
        if not config.have_effect(setting.name, config.version):
            continue
        if setting.name in _SWITCHES and setting.word in _BOOLEANS:
            yield name, _BOOLEANS[setting.word]
        elif setting.name == STRATEGY:
            # A word that is not known may mean that nothing is sharded.
            yield name, STRATEGIES.get(setting.word, "NO_SHARD")
        elif setting.name == _STATES:
            yield name, setting.word
