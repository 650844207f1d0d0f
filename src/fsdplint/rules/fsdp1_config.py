"""Config files for FSDP1."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig, Setting, section_of
from fsdplint.configs.edits import insertion, new_value, one_edit, removal, renaming
from fsdplint.configs.nodes import Entry, Mapping, Scalar
from fsdplint.configs.versions import RESHARD
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.fixes.edits import apply
from fsdplint.knowledge.accelerate_settings import (
    BY_SIZE_WITH_2,
    CONVERTED,
    GONE_WITH_2,
    OTHER_NAMES,
    POLICY,
    RESHARDS,
    STATES,
    STRATEGIES,
    STRATEGY,
    VERSION,
    WHOLE_STATES,
    WRAPS_BY_SIZE,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD908",
    summary="a config file is for FSDP1",
    severity=Severity.NOTE,
    fix=Safety.UNSAFE,
    since="0.1.0",
)
_BY_HAND = {
    "NO_SHARD": "train with DDP instead",
    "HYBRID_SHARD": "give both sizes in `parallelism_config` instead, by hand",
}
_BY_HAND["HYBRID_SHARD_ZERO2"] = _BY_HAND["HYBRID_SHARD"]


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report if the file could be for FSDP2."""
    if not config.shards or config.version != 1 or not config.have_effect(VERSION, 2):
        return
    version = config.get(VERSION)
    yield Report(
        config.span(version.entry if version else config.section.key),
        "this file shards with FSDP1, which PyTorch only maintains; accelerate also has FSDP2",
        "is for FSDP1",
        tuple(_evidence(config)),
        partial(_fix, config),
    )


def _evidence(config: AccelerateConfig) -> Iterator[Evidence]:
    for setting in config.settings:
        if setting.name in GONE_WITH_2 or setting.name == STRATEGY:
            yield Evidence(config.span(setting.entry), "FSDP2 does not read this")


def _fix(config: AccelerateConfig) -> Fix | Declined:
    if config.mapping.merged or config.overridden:
        return Declined("settings are merged or given twice; convert the file by hand")
    if all(each.name in GONE_WITH_2 for each in config.settings):
        return Declined("no setting is left with FSDP2; write the file anew")
    if reason := obstacle(config):
        return Declined(reason)
    edit = one_edit(config.path, config.text, _converted(config))
    return Fix("convert the settings to FSDP2", Safety.UNSAFE, (edit,))


def obstacle(config: AccelerateConfig) -> str:
    """Return why the settings cannot become those of FSDP2, "" if they can."""
    strategy, reshard, states, policy = map(config.get, (STRATEGY, RESHARD, STATES, POLICY))
    for each in filter(None, (strategy, reshard, states, policy, config.get(VERSION))):
        if not each.word:
            return f"the value of `{each.name}` is not known; convert the settings by hand"
    if strategy and reshard:
        return f"`{STRATEGY}` and `{RESHARD}` are given; convert the settings by hand"
    if strategy and strategy.word not in STRATEGIES:
        return f"`{strategy.value}` is no strategy; correct it by hand"
    for each in filter(None, (strategy, reshard)):
        if STRATEGIES.get(each.word, "FULL_SHARD") not in RESHARDS:
            return (
                f"FSDP2 has no strategy `{each.value}`; {_BY_HAND[STRATEGIES[each.word]]} by hand"
            )
    if states and states.word not in CONVERTED:
        return f"FSDP2 does not take `{STATES}` {states.value}; convert the settings by hand"
    if policy and policy.word == WRAPS_BY_SIZE:
        return f"{BY_SIZE_WITH_2}; name the classes of the blocks with `TRANSFORMER_BASED_WRAP`"
    return ""


def with_2(setting: Setting) -> tuple[str, str] | None:
    """Return the name and the value of a setting with FSDP2, None if FSDP2 lacks it.

    The value is "" if it stays as it is.
    """
    name = setting.name
    if OTHER_NAMES.get(name, name) in GONE_WITH_2:
        return None
    if name == VERSION:
        return name, "2"
    reshards = RESHARDS.get(STRATEGIES.get(setting.word, ""))
    # What is a number already is no strategy there, but true or false.
    is_strategy = name == STRATEGY or (name == RESHARD and not setting.word.isdigit())
    return (RESHARD, str(reshards).lower()) if is_strategy and reshards is not None else (name, "")


def added_with_2(config: AccelerateConfig) -> dict[str, str]:
    """Return the settings that FSDP2 needs beside the others, each with its value."""
    added = {} if config.get(VERSION) else {VERSION: "2"}
    # FSDP2 saves another type of states by default.
    takes = all(WHOLE_STATES in release.takes(STATES, 2) for release in config.releases)
    return added if config.get(STATES) or not takes else {**added, STATES: WHOLE_STATES}


def _converted(config: AccelerateConfig) -> str:
    """Return the text for FSDP2, made step by step: each changes the places of the others."""
    text = config.text
    for setting in config.settings:
        section = section_of(text, config.path)
        entry = section.get(setting.entry.name)
        assert entry is not None
        made = _steps(config.path, text, section, setting, entry)
        text = apply(text, made)
    for name, value in reversed(added_with_2(config).items()):
        section = section_of(text, config.path)
        text = apply(text, [insertion(config.path, text, section, name, value)])
    return text


def _steps(path: str, text: str, section: Mapping, setting: Setting, entry: Entry) -> list[Edit]:
    """Return the edits that make of a setting what FSDP2 has for it."""
    after = with_2(setting)
    if after is None:
        made = removal(path, text, section, entry)
        return [made[0]] if made else []
    name, value = after
    if not value or not isinstance(entry.value, Scalar):
        return []
    renamed = [renaming(path, entry, name)] if name != setting.name else []
    return [*renamed, new_value(path, entry.value, value)]
