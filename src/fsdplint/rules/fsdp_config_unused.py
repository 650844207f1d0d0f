"""Settings of FSDP in a config file for another kind of training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.edits import new_value
from fsdplint.configs.nodes import Scalar
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD903",
    summary="a config file has settings of FSDP but another `distributed_type`",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report if accelerate does not read `fsdp_config`."""
    entry = config.root.get("distributed_type")
    if config.shards is not False or entry is None or not isinstance(entry.value, Scalar):
        return
    number = config.root.get("num_processes")
    if number and isinstance(number.value, Scalar) and number.value.value == 1:
        return  # one process has nothing to shard
    kind = entry.value.value
    yield Report(
        config.span(config.section.key),
        f"accelerate does not use `fsdp_config` with `distributed_type: {kind}`: the model is not "
        "sharded unless the command line has `--use_fsdp`",
        "is not used",
        (Evidence(config.span(entry), "this does not shard with FSDP"),),
        partial(_fix, config, entry.value),
    )


def _fix(config: AccelerateConfig, value: Scalar) -> Fix:
    edit = new_value(config.path, value, "FSDP")
    return Fix("set `distributed_type: FSDP`", Safety.UNSAFE, (edit,))
