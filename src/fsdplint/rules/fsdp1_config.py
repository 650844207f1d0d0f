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
    POLICY,
    RESHARDS,
    STATES,
    STRATEGIES,
    STRATEGY,
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

_VERSION = "fsdp_version"


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report if the file could be for FSDP2."""
    if not config.shards or config.version != 1 or not config.have_effect(_VERSION, 2):
        return
    version = config.get(_VERSION)
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
    strategy, states = config.get(STRATEGY), config.get(STATES)
    if config.mapping.merged or config.overridden:
        return Declined("settings are merged or given twice; convert the file by hand")
    if all(each.name in GONE_WITH_2 for each in config.settings):
        return Declined("no setting is left with FSDP2; write the file anew")
    reshard = config.get(RESHARD)
    if strategy and reshard:
        return Declined(f"`{STRATEGY}` and `{RESHARD}` are given; convert the file by hand")
    for each in filter(None, (strategy, reshard)):
        if STRATEGIES.get(each.word, "FULL_SHARD") not in RESHARDS:
            return Declined(f"FSDP2 has no `{config.shown(each)}`; convert the file by hand")
    if strategy and strategy.word not in STRATEGIES:
        return Declined(f"`{config.shown(strategy)}` is no strategy; correct it by hand")
    if states and states.word not in CONVERTED:
        return Declined(f"FSDP2 does not take `{config.shown(states)}`; convert the file by hand")
    policy = config.get(POLICY)
    if policy and policy.word == WRAPS_BY_SIZE:
        return Declined(
            f"{BY_SIZE_WITH_2}; name the classes of the blocks with `TRANSFORMER_BASED_WRAP`"
        )
    edit = one_edit(config.path, config.text, _converted(config))
    return Fix("convert the settings to FSDP2", Safety.UNSAFE, (edit,))


def _converted(config: AccelerateConfig) -> str:
    """Return the text for FSDP2, made step by step: each changes the places of the others."""
    text = config.text
    for setting in config.settings:
        section = section_of(text, config.path)
        entry = section.get(setting.entry.name)
        assert entry is not None
        made = _steps(config.path, text, section, setting, entry)
        text = apply(text, made)
    if _saves_otherwise(config):
        section = section_of(text, config.path)
        text = apply(text, [insertion(config.path, text, section, STATES, WHOLE_STATES)])
    if config.get(_VERSION) is None:
        section = section_of(text, config.path)
        text = apply(text, [insertion(config.path, text, section, _VERSION, "2")])
    return text


def _saves_otherwise(config: AccelerateConfig) -> bool:
    """Return whether FSDP2 would save another type of states, where it could save the same."""
    states = config.get(STATES)
    takes = all(WHOLE_STATES in release.takes(STATES, 2) for release in config.releases)
    return states is None and takes


def _steps(path: str, text: str, section: Mapping, setting: Setting, entry: Entry) -> list[Edit]:
    """Return the edits that make of a setting what FSDP2 has for it."""
    if setting.name in GONE_WITH_2:
        made = removal(path, text, section, entry)
        return [made[0]] if made else []
    if not isinstance(entry.value, Scalar):
        return []
    if setting.name == _VERSION:
        return [new_value(path, entry.value, "2")]
    reshards = RESHARDS.get(STRATEGIES.get(setting.word, ""))
    # What is a number already is no strategy there, but true or false.
    if setting.name == RESHARD and setting.word.isdigit():
        return []
    if reshards is None or setting.name not in (STRATEGY, RESHARD):
        return []
    value = new_value(path, entry.value, str(reshards).lower())
    return [value] if setting.name == RESHARD else [renaming(path, entry, RESHARD), value]
