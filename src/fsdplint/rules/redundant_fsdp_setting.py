"""Settings that accelerate ignores and that ask for what it does anyway."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig, Setting
from fsdplint.configs.versions import unapplied
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.fixes.settings import remove_setting
from fsdplint.knowledge.accelerate_settings import (
    CLASSES,
    POLICY,
    SIZE,
    SYNC,
    WRAPS_BY_SIZE,
    WRAPS_CLASSES,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD907",
    summary="a setting has no effect, and nothing is lost by it",
    severity=Severity.NOTE,
    fix=Safety.SAFE,
    since="0.1.0",
)


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report for each setting that could be left out."""
    if not config.shards:
        return
    for each in unapplied(config):
        # Where the launcher refuses it, that is reported.
        if not each.instead and not (each.setting.name == SYNC and each.setting.is_false):
            with_ = "`fsdp_version: 2`" if config.version == 2 else "FSDP1"
            yield _report(config, each.setting, f"with {with_}", config.get("fsdp_version"))
    policy = config.get(POLICY)
    for name, wanted in ((CLASSES, WRAPS_CLASSES), (SIZE, WRAPS_BY_SIZE)):
        setting = config.get(name)
        other = {WRAPS_CLASSES, WRAPS_BY_SIZE} - {wanted}
        if setting and policy and policy.word in other:
            yield _report(config, setting, f"with `{config.shown(policy)}`", policy)


def _report(
    config: AccelerateConfig, setting: Setting, where: str, reason: Setting | None
) -> Report:
    return Report(
        config.span(setting.entry),
        f"`{setting.entry.name}` has no effect {where} and can be removed",
        "has no effect",
        (Evidence(config.span(reason.entry), "because of this"),) if reason else (),
        partial(_fix, config, setting),
    )


def _fix(config: AccelerateConfig, setting: Setting) -> Fix | Declined:
    return remove_setting(config.path, config.text, config.mapping, setting.entry)
