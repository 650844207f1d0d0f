"""Launchers that SLURM starts several times on each node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity, Span
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD915",
    summary="SLURM starts a launcher several times on each node",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="No public script that was read has this mistake, so only examples and proofs "
    "tell how precise the rule is.",
)

_NAME = "--ntasks-per-node"
_OF_TASK = re.compile(r"SLURM_(?:PROCID|LOCALID)|--gpus-per-task|--gpu-bind")
_NODES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each torchrun that several tasks of a node run, with several processes."""
    if _OF_TASK.search(script.text):
        return
    for launch in script.launches:
        tasks = _tasks(script, launch)
        processes = launch.get("nproc_per_node")
        count = processes.number if processes and launch.closed else None
        if tasks is None or count is None or count < 2 or not _is_of_nodes(script, launch):
            continue
        place, number, shown = tasks
        yield Report(
            script.span(launch.start, launch.end),
            f"`srun` starts torchrun {number} times on each node (`{shown}`), and each of them "
            f"starts {count} processes: {number * count} share the GPUs of {count}",
            "runs once for each task",
            (Evidence(place, "the tasks of a node"),),
            partial(_fix, place),
        )


def _is_of_nodes(script: LaunchScript, launch: Launch) -> bool:
    """Return whether `--nnodes` is the number of nodes: each task may be one for torchrun."""
    option = launch.get("nnodes")
    if launch.launcher == ACCELERATE:
        return False
    if option is None or option.value in ("1", "1:1"):
        return True
    value = script.text[option.value_start : option.value_end].strip("\"'{}$")
    nodes = script.directive("--nodes")
    return value in _NODES or (nodes is not None and nodes.value == option.value)


def _tasks(script: LaunchScript, launch: Launch) -> tuple[Span, int, str] | None:
    """Return the place of the number of tasks of each node, with the number and the option."""
    if launch.wrapped_by != "srun":
        return None
    words = [word.literal for word in launch.wrappers[1:]]
    if any(word is None or word.startswith(("-n", "--ntask", "--tasks")) for word in words):
        return None
    directive = script.directive(_NAME)
    digits = directive is not None and re.fullmatch(r"[0-9]{1,6}", directive.value)
    if directive is None or not digits or int(directive.value) < 2:
        return None
    # `--ntasks` counts more than this option.
    if script.directive("--ntasks"):
        return None
    end = directive.value_start + len(directive.value)
    place = script.span(directive.value_start, end)
    return place, int(directive.value), f"{_NAME}={directive.value}"


def _fix(place: Span) -> Fix:
    return Fix("start one task on each node", Safety.UNSAFE, (Edit(place, "1"),))
