"""Settings that accelerate does not know."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig, Setting
from fsdplint.configs.edits import renaming
from fsdplint.configs.nodes import Entry
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.fixes.settings import remove_setting
from fsdplint.knowledge.accelerate_settings import FIELDS, OTHER_NAMES
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD901",
    summary="accelerate does not know a setting of a config file",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
)


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report for each setting that every release of the project ignores or refuses."""
    for setting in config.settings if config.shards else ():
        if any(release.is_known(setting.name) for release in config.releases):
            continue
        name = _close(config, setting)
        hint = f"; did you mean `{name}`?" if name else ""
        yield Report(
            config.span(setting.entry.key),
            f"{config.accelerate} ignores `{setting.entry.name}` without a message: it has no "
            f"such setting{hint}",
            "is ignored",
            (),
            partial(_fix, config, setting, name),
        )
    if config.shards is not None and not config.root.merged:
        unknown = (e for e in config.root.entries if e.name and e.name not in FIELDS)
        yield from (_refused(config, entry) for entry in unknown)


def _close(config: AccelerateConfig, setting: Setting) -> str:
    """Return the setting that is evidently meant, "" if none is."""
    newest, version = config.releases[-1], config.version or 1
    names = newest.names(version)
    other = OTHER_NAMES.get(setting.name, "")
    close = [other] if other in names else get_close_matches(setting.name, names, 1, 0.85)
    return close[0] if close else ""


def _fix(config: AccelerateConfig, setting: Setting, name: str) -> Fix | Declined:
    if name and config.get(name) is None and not config.mapping.merged:
        edit = renaming(config.path, setting.entry, name)
        return Fix(f"rename it to `{name}`", Safety.UNSAFE, (edit,))
    return remove_setting(config.path, config.text, config.mapping, setting.entry)


def _refused(config: AccelerateConfig, entry: Entry) -> Report:
    close = get_close_matches(entry.name, sorted(FIELDS), 1, 0.8)
    hint = f"; did you mean `{close[0]}`?" if close else ""

    def fix() -> Fix | Declined:
        if close and config.root.get(close[0]) is None:
            edit = renaming(config.path, entry, close[0])
            return Fix(f"rename it to `{close[0]}`", Safety.UNSAFE, (edit,))
        return Declined("the intended setting is unclear; correct or remove it by hand")

    return Report(
        config.span(entry.key),
        f"`accelerate launch` refuses this file: it has no setting `{entry.name}`{hint}",
        "is refused",
        (),
        fix,
    )
