"""Numbers of processes and machines in a config file that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.edits import new_value
from fsdplint.configs.nodes import Entry, Scalar
from fsdplint.configs.parallelism import integer
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD927",
    summary="the processes of a config file do not fit its machines",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Options of `accelerate launch`, which this rule does not see, count more than the "
    "file.",
)

_PROCESSES, _MACHINES, _RANK = "num_processes", "num_machines", "machine_rank"


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report for each number that contradicts the number of machines."""
    machines, processes = config.root.get(_MACHINES), config.root.get(_PROCESSES)
    count, number, rank = integer(machines), integer(processes), config.root.get(_RANK)
    if not config.shards or config.root.merged or machines is None or not count or count < 2:
        return
    place = integer(rank)
    if rank and place is not None and place >= count:
        text = (
            f"`{_RANK}: {place}` does not exist with `{_MACHINES}: {count}`: ranks are counted "
            "from 0, and this machine waits for the others and starts nothing"
        )
        yield _report(config, rank, machines, text, partial(_no_rank, count))
    if processes and number and number > 0 and number % count:
        yield _report(
            config,
            processes,
            machines,
            _lost(number, count),
            partial(_round, config, processes, number, count),
        )


def _lost(number: int, count: int) -> str:
    shown = f"`{_PROCESSES}: {number}`"
    if number < count:
        return (
            f"{shown} counts the processes of all machines: {count} machines start none each, and "
            "the launcher fails"
        )
    return (
        f"{shown} is no multiple of `{_MACHINES}: {count}`: accelerate rounds down and starts only "
        f"{number // count * count} processes"
    )


def _report(
    config: AccelerateConfig,
    entry: Entry,
    machines: Entry,
    message: str,
    fix: Callable[[], Fix | Declined],
) -> Report:
    evidence = (Evidence(config.span(machines), "the number of machines"),)
    return Report(config.span(entry), message, "does not fit", evidence, fix)


def _no_rank(count: int) -> Declined:
    return Declined(f"which machine this is is unclear; set a rank from 0 to {count - 1} by hand")


def _round(config: AccelerateConfig, entry: Entry, number: int, count: int) -> Fix | Declined:
    assert isinstance(entry.value, Scalar)  # it is a number
    if number < count:
        return Declined(
            f"how many GPUs a machine has is unclear; set `{_PROCESSES}` to that times {count}"
        )
    value = str(number // count * count)
    edit = new_value(config.path, entry.value, value)
    return Fix(f"set `{_PROCESSES}: {value}`", Safety.UNSAFE, (edit,))
