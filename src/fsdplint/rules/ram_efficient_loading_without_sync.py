"""Loading on one rank without the broadcast that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig, Setting
from fsdplint.configs.edits import insertion, new_value, removal
from fsdplint.configs.nodes import Scalar
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import RAM_EFFICIENT, SYNC
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD905",
    summary="a config file loads on one rank but does not broadcast",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report if `accelerate launch` refuses the combination."""
    sync, loading = config.get(SYNC), config.get(RAM_EFFICIENT)
    if not config.shards or config.mapping.merged or sync is None or not sync.is_false:
        return
    if loading is not None and (loading.is_false or not loading.word):
        return
    why = "is on by default" if loading is None else "needs it"
    yield Report(
        config.span(sync.entry),
        f"`accelerate launch` refuses `{config.shown(sync)}`: `{RAM_EFFICIENT}` {why}",
        "is refused",
        (Evidence(config.span(loading.entry), "this needs the broadcast"),) if loading else (),
        partial(_fix, config, sync, loading),
    )


def _fix(config: AccelerateConfig, sync: Setting, loading: Setting | None) -> Fix | Declined:
    value = sync.entry.value
    assert isinstance(value, Scalar)
    if config.version == 2:
        made = removal(config.path, config.text, config.mapping, sync.entry)
        assert made is not None  # the version is beside it
        return Fix("remove the setting, which FSDP2 does not need", made[1], (made[0],))
    if loading is None:
        edit = insertion(config.path, config.text, config.mapping, RAM_EFFICIENT, "false")
        return Fix(f"set `{RAM_EFFICIENT}: false`", Safety.UNSAFE, (edit,))
    edit = new_value(config.path, value, "true")
    return Fix(f"set `{sync.entry.name}: true`", Safety.UNSAFE, (edit,))
