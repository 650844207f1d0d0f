"""Settings of the other version of FSDP, and repeated ones, that would change something."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig, Setting
from fsdplint.configs.edits import new_value, renaming
from fsdplint.configs.nodes import Scalar
from fsdplint.configs.versions import RESHARD, Unapplied, unapplied
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.fixes.settings import remove_setting
from fsdplint.knowledge.accelerate_settings import STRATEGY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD902",
    summary="accelerate does not apply a setting that would change how it shards",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
)


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report for each setting without effect whose value would make a difference."""
    if not config.shards:
        return
    for each in unapplied(config):
        if each.instead:
            yield _of_other_version(config, each)
    for setting, later in config.overridden:
        if setting.word and later.word and setting.word != later.word:
            yield _repeated(config, setting, later)


def _of_other_version(config: AccelerateConfig, each: Unapplied) -> Report:
    version = config.get("fsdp_version")
    with_ = "`fsdp_version: 2`" if config.version == 2 else "FSDP1"
    reads = {STRATEGY: RESHARD, RESHARD: STRATEGY}.get(each.setting.name)
    instead = f", which reads `{reads}`" if reads else ""
    evidence = [Evidence(config.span(version.entry), "the version of FSDP")] if version else []
    if each.same:
        evidence.append(Evidence(config.span(each.same.entry), "this decides instead"))
    return Report(
        config.span(each.setting.entry),
        f"`{config.shown(each.setting)}` has no effect with {with_}{instead}: {each.instead}",
        "has no effect",
        tuple(evidence),
        partial(_fix, config, each),
    )


def _fix(config: AccelerateConfig, each: Unapplied) -> Fix | Declined:
    entry = each.setting.entry
    if each.setting.name == STRATEGY and each.equal is None:
        return Declined(
            "accelerate has no setting of FSDP2 for this strategy; choose one by hand, such as "
            "`dp_replicate_size` in `parallelism_config`"
        )
    if each.equal is None or each.same is not None:
        return remove_setting(config.path, config.text, config.mapping, entry)
    name, value = each.equal
    assert isinstance(entry.value, Scalar)
    edits = (
        renaming(config.path, entry, name),
        new_value(config.path, entry.value, value),
    )
    return Fix(f"set `{name}: {value}` instead", Safety.UNSAFE, edits)


def _repeated(config: AccelerateConfig, setting: Setting, later: Setting) -> Report:
    def fix() -> Fix | Declined:
        return remove_setting(config.path, config.text, config.mapping, setting.entry)

    return Report(
        config.span(setting.entry),
        f"`{config.shown(setting)}` has no effect: the later `{config.shown(later)}` replaces it",
        "has no effect",
        (Evidence(config.span(later.entry), "this is what counts"),),
        fix,
    )
