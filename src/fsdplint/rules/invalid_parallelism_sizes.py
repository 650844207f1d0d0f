"""Sizes in `parallelism_config` that accelerate refuses in each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.edits import insertion, new_value
from fsdplint.configs.nodes import Entry, Scalar
from fsdplint.configs.parallelism import Parallelism, integer, read
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.parallelism_settings import (
    CONTEXT,
    PREFIX,
    REPLICATE,
    SEQUENCE,
    SHARD,
    SIZES,
    TENSOR,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD926",
    summary="accelerate refuses the sizes in `parallelism_config`",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Options of `accelerate launch`, which this rule does not see, count more than the "
    "file.",
)

_PROCESSES = "num_processes"


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report if `Accelerator()` refuses the sizes."""
    found = read(config)
    sizes = found.sizes if found else None
    # Deepspeed divides the ranks for sequences by itself.
    if found is None or sizes is None or sizes[SEQUENCE] != 1:
        return
    given = [entry for name in SIZES if (entry := found.mapping.get(name))]
    processes = config.root.get(_PROCESSES)
    count = integer(processes)
    if message := _refused(config, sizes):
        yield _report(config, found, given, message, partial(_unclear, message))
    elif processes and count and prod(sizes.values()) not in (1, count):
        text = (
            f"accelerate refuses these sizes: their product is {prod(sizes.values())}, but "
            f"`{_PROCESSES}` is {count}"
        )
        fix = partial(_resize, config, found, sizes, count)
        yield _report(config, found, [*given, processes], text, fix)


def _refused(config: AccelerateConfig, sizes: Mapping[str, int]) -> str:
    """Return why the sizes are refused for any number of processes, "" if they are not."""
    small = [_short(name) for name in SIZES if sizes[name] < 1]
    if small:
        return f"accelerate refuses `{small[0]}` below 1"
    if prod(sizes.values()) == 1:
        return ""
    if config.version == 1:
        return f"accelerate refuses `{_short(SHARD)}` and the others with FSDP1: they need FSDP2"
    # It is a setting of FSDP that may be merged from elsewhere.
    if config.version == 2 and sizes[SHARD] == 1 and sizes[CONTEXT] == 1:
        return (
            f"`{_short(SHARD)}` and `{_short(CONTEXT)}` are 1, so FSDP has no ranks to shard over"
        )
    if sizes[REPLICATE] > 1 and sizes[SHARD] == 1 and max(sizes[TENSOR], sizes[CONTEXT]) > 1:
        shown = f"`{_short(REPLICATE)}: {sizes[REPLICATE]}` with `{_short(SHARD)}: 1`"
        return (
            f"accelerate refuses {shown} where `{_short(TENSOR)}` or `{_short(CONTEXT)}` is given"
        )
    return ""


def _short(name: str) -> str:
    return name.removeprefix(PREFIX)


def _report(
    config: AccelerateConfig,
    found: Parallelism,
    entries: list[Entry],
    message: str,
    fix: Callable[[], Fix | Declined],
) -> Report:
    evidence = tuple(Evidence(config.span(entry), "this counts") for entry in entries)
    return Report(config.span(found.section.key), message, "is refused", evidence, fix)


def _unclear(message: str) -> Declined:
    if "FSDP1" in message:
        return Declined("convert the file to FSDP2 first, as `fsdp1-config` does")
    return Declined("how the ranks are meant to be divided is unclear; correct the sizes by hand")


def _resize(
    config: AccelerateConfig, found: Parallelism, sizes: Mapping[str, int], count: int
) -> Fix | Declined:
    rest = prod(sizes.values()) // sizes[SHARD]
    entry = found.mapping.get(SHARD)
    alone = sizes[CONTEXT] == 1 or sizes[REPLICATE] > 1
    if count % rest or (count == rest and alone):
        return Declined(f"no `{_short(SHARD)}` fits {count} processes; correct the sizes by hand")
    value = str(count // rest)
    if entry is None:
        edit = insertion(config.path, config.text, found.mapping, SHARD, value)
    else:
        assert isinstance(entry.value, Scalar)  # it is a number
        edit = new_value(config.path, entry.value, value)
    return Fix(f"set `{SHARD}: {value}`", Safety.UNSAFE, (edit,))
