"""Settings in `fsdp_config` that transformers does not know."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.edits import renaming
from fsdplint.configs.trainer import PREFIX, TrainerSettings
from fsdplint.engine.facts.training_arguments import training_arguments
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.fixes.settings import remove_setting
from fsdplint.knowledge.transformers_settings import (
    OFFLOAD,
    OTHER_NAMES,
    RESHARD,
    STRATEGY_BY_WORD,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD921",
    summary="`fsdp_config` has a setting that transformers does not know",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
)

_PRECISION = frozenset({"mixed_precision", "mixed_precision_policy"})
_STRATEGY = "sharding_strategy"
_OFFLOADS = "offload_params"


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in training_arguments(program):
        yield from trainer_reports(settings)


def trainer_reports(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report for each setting that no release of the project reads."""
    if settings.shards is False:
        return
    for setting in settings.settings:
        known = any(release.is_known(setting.name) for release in settings.releases)
        # With a leading underscore, JSON has comments.
        if known or setting.name.startswith("_"):
            continue
        name = _meant(settings, setting)
        yield Report(
            settings.span(setting.entry.key),
            f"{settings.transformers} ignores `{setting.entry.name}` without a message: "
            f"`fsdp_config` has no such setting{_hint(settings, setting, name)}",
            "is ignored",
            (),
            partial(_fix, settings, setting, name),
        )


def _meant(settings: TrainerSettings, setting: Setting) -> str:
    """Return the setting that is evidently meant, "" if none is."""
    every = settings.releases
    names = [name for name, _ in every[-1].rows if all(each.is_known(name) for each in every)]
    if setting.name.removeprefix(PREFIX) in names:
        return setting.name.removeprefix(PREFIX)
    other = OTHER_NAMES.get(setting.name, "")
    if setting.name in OTHER_NAMES:
        return other if other in names else ""
    close = get_close_matches(setting.name.strip(), names, 1, 0.85)
    return close[0] if close else ""


def _hint(settings: TrainerSettings, setting: Setting, name: str) -> str:
    if name:
        return f"; did you mean `{name}`?"
    if setting.name in _PRECISION:
        return "; the arguments `bf16` and `fp16` choose the precision"
    by_word = settings.all(lambda release, version: release.has_effect(STRATEGY_BY_WORD, version))
    if setting.name == _OFFLOADS and by_word:
        return "; `offload` in `fsdp` asks for it"
    if setting.name == _STRATEGY and settings.all(
        lambda r, version: r.has_effect(RESHARD, version)
    ):
        return f"; FSDP2 has `{RESHARD}`"
    if setting.name == _STRATEGY and by_word:
        return "; `fsdp` names the strategy"
    return ""


def _fix(settings: TrainerSettings, setting: Setting, name: str) -> Fix | Declined:
    # Any text but an empty one turns offloading on.
    differs = name == OFFLOAD and setting.word == "FALSE" and not setting.is_false
    if name and not differs and settings.get(name) is None and not settings.mapping.merged:
        prefix = PREFIX if setting.entry.name != setting.name else ""
        edit = renaming(settings.path, setting.entry, f"{prefix}{name}")
        return Fix(f"rename it to `{prefix}{name}`", Safety.UNSAFE, (edit,))
    return remove_setting(settings.path, settings.text, settings.mapping, setting.entry)
