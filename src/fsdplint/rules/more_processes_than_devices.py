"""More processes on a node than the devices that they see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.configs.launch_lines import DEVICES, Launch, LaunchScript, Option
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity, Span
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD913",
    summary="a launcher starts more processes than there are devices for them",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="No public script that was read has this mistake, so only examples and proofs "
    "tell how precise the rule is.",
)

_GPUS = re.compile(r"gpu(?::[a-z][\w.-]*)?:(\d{1,6})|(?:[a-z][\w.-]*:)?(\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Devices:
    """What processes of a node see: how many, as it is written, and where."""

    count: int
    shown: str
    span: Span


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each launch line with processes that have no device."""
    for launch in script.launches:
        processes, devices = _processes(launch), _devices(script, launch)
        if processes is None or devices is None or (processes.number or 0) <= devices.count:
            continue
        yield Report(
            script.span(processes.start, processes.end),
            f"`{script.shown(processes)}` starts {processes.number} processes, but "
            f"`{devices.shown}` leaves {devices.count} {_plural(devices.count)}: those with a "
            f"local rank from {devices.count} on fail with an invalid device ordinal",
            "is more than there are",
            (Evidence(devices.span, "the devices are set here"),),
            partial(_fix, script, processes, devices.count),
        )


def _plural(count: int) -> str:
    return "device" if count == 1 else "devices"


def _processes(launch: Launch) -> Option | None:
    """Return the option for the processes of a node, None if something else may decide."""
    if not launch.closed or launch.get("virtual_local_rank"):
        return None
    if launch.launcher != ACCELERATE:
        return launch.get("nproc_per_node")
    # A config file may name other machines, and other devices.
    on_one = launch.number("num_machines", 0) == 1 and launch.get("cpu", "use_cpu") is None
    several = launch.get("multi_gpu", "use_fsdp")
    return launch.get("num_processes") if on_one and several else None


def _devices(script: LaunchScript, launch: Launch) -> _Devices | None:
    listed = launch.get("gpu_ids") if launch.launcher == ACCELERATE else None
    if listed is not None and listed.value != "all":
        ids = listed.value or ""
        known = re.fullmatch(r"\d+(?:,\d+)+", ids)
        span = script.span(listed.start, listed.end)
        return _Devices(len(ids.split(",")), script.shown(listed), span) if known else None
    if launch.devices is not None and (launch.launcher != ACCELERATE or listed):
        value, start, end = launch.devices
        return _Devices(len(value.split(",")), f"{DEVICES}={value}", script.span(start, end))
    return _of_slurm(script, launch)


def _of_slurm(script: LaunchScript, launch: Launch) -> _Devices | None:
    """Return what SLURM gives a node of the job, unless the step or the script may differ."""
    if launch.wrappers or launch.launcher == ACCELERATE or DEVICES in script.text:
        return None
    given = [each for each in map(script.directive, ("--gres", "--gpus-per-node")) if each]
    found = _GPUS.fullmatch(given[0].value) if len(given) == 1 else None
    if found is None:
        return None
    directive, count = given[0], int(found[1] or found[2])
    if directive.name == "--gres" and not directive.value.startswith("gpu"):
        return None
    span = script.span(directive.start, directive.end)
    return _Devices(count, script.shown(directive), span)


def _fix(script: LaunchScript, processes: Option, count: int) -> Fix:
    value = script.text[processes.value_start : processes.value_end]
    is_number = re.fullmatch(r"([\"']?)\d+\1", value)
    text = re.sub(r"\d+", str(count), value) if is_number else str(count)
    edit = Edit(script.span(processes.value_start, processes.value_end), text)
    return Fix(f"start {count} {'process' if count == 1 else 'processes'}", Safety.UNSAFE, (edit,))
