"""What a project's config files say of the code that is launched with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fsdplint.configs.accelerate import AccelerateConfig, OtherConfig
from fsdplint.configs.launch_lines import LaunchScript
from fsdplint.configs.launched import named_file, program_file, settings_with, turned_on
from fsdplint.engine.project.launch_settings import LaunchSettings
from fsdplint.knowledge.accelerate_settings import (
    DEFAULT_STATE_2,
    PARALLELISM,
    STATE_TYPES,
    STATES,
    STRATEGIES,
    STRATEGY,
    SYNC,
    VERSION,
)
from fsdplint.knowledge.launch_options import ACCELERATE

_BOOLEANS = {"FALSE": False, "0": False, "TRUE": True, "1": True}
_SWITCHES = ("fsdp_use_orig_params", "fsdp_reshard_after_forward", SYNC)
_OTHER = "not known: by parallelism, transformers saves in another way"


def launch_settings(values: Mapping[str, object]) -> tuple[LaunchSettings, ...]:
    """Return what a project's config files say of the code that is launched with them.

    A launch line that names a config file, or turns FSDP on by itself, says it of its script. For
    each other script that torchrun does not launch, since that reads no config file, it is what all
    config files of the project agree on.

    Args:
        values: by path, what the files of other kinds than Python hold.
    """
    by_script: dict[str, list[AccelerateConfig]] = {}
    for lines in values.values():
        if isinstance(lines, LaunchScript):
            for script, config in _launched(lines, values):
                by_script.setdefault(script, []).append(config)
    own = [_common(found, script) for script, found in by_script.items()]
    every = [v for v in values.values() if isinstance(v, (AccelerateConfig, OtherConfig))]
    configs = [each for each in every if isinstance(each, AccelerateConfig)]
    # Of a project that may be launched without FSDP nothing is known.
    common = _common(configs) if len(configs) == len(every) else None
    common = common and replace(common, others=frozenset(_by_torch(values)))
    return tuple(each for each in (*own, common) if each)


def _by_torch(values: Mapping[str, object]) -> Iterator[str]:
    """Yield each script that a launcher of PyTorch starts."""
    for lines in (each for each in values.values() if isinstance(each, LaunchScript)):
        for launch in lines.launches:
            if launch.launcher != ACCELERATE and launch.script and launch.script.literal:
                yield named_file(lines, launch.script.literal)


def _launched(
    lines: LaunchScript, values: Mapping[str, object]
) -> Iterator[tuple[str, AccelerateConfig]]:
    """Yield each script that is launched, with its settings of FSDP."""
    for launch in lines.launches:
        config, path = launch.get("config_file"), program_file(lines, launch)
        known = values.get(named_file(lines, config.value or "")) if config else None
        file = known if isinstance(known, (AccelerateConfig, OtherConfig)) else None
        if not path or (config and file is None):
            continue
        if turned_on(launch, file):
            yield path, settings_with(lines, launch, file)
        elif isinstance(file, AccelerateConfig) and not file.shards:
            yield path, file


def _common(
    configs: Sequence[AccelerateConfig], script: str | None = None
) -> LaunchSettings | None:
    """Return what config files have in common, None if one of them may not shard.

    The first one stands for all of them.
    """
    if not configs or not all(config.shards and config.version for config in configs):
        return None
    first, *others = (dict(_keywords(config)) for config in configs)
    common = {n: v for n, v in first.items() if all(o.get(n) == v for o in others)}
    key = configs[0].section.key
    scripts = None if script is None else frozenset({script})
    return LaunchSettings(configs[0].path, key.start, key.end, common, scripts)


def _keywords(config: AccelerateConfig) -> Iterator[tuple[str, str | int | bool]]:
    """Yield the arguments of accelerate's plugin that settings come to."""
    assert config.version is not None
    yield "fsdp_version", config.version
    states = STATES.removeprefix("fsdp_")
    is_parallel = config.mapping.merged or config.root.get(PARALLELISM) is not None
    if is_parallel:
        yield states, _OTHER
    elif config.version == 2 and config.get(STATES) is None and config.have_effect(VERSION, 2):
        yield states, DEFAULT_STATE_2
    for setting in config.settings:
        name = setting.name.removeprefix("fsdp_")
        if not config.have_effect(setting.name, config.version):
            continue
        if setting.name in _SWITCHES and setting.word in _BOOLEANS:
            yield name, _BOOLEANS[setting.word]
        elif setting.name == STRATEGY:
            # A word that is not known may mean that nothing is sharded.
            yield name, STRATEGIES.get(setting.word, "NO_SHARD")
        elif setting.name == STATES and not is_parallel:
            yield name, STATE_TYPES.get(setting.word, setting.word)
