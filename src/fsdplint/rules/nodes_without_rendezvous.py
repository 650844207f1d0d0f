"""Launches on several nodes that cannot find each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from fsdplint.configs.launch_lines import Launch, LaunchScript, Option
from fsdplint.configs.shell import Scope
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD914",
    summary="torchrun waits for other nodes, which cannot find it",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="No public script that was read has this mistake, so only examples and proofs "
    "tell how precise the rule is.",
)

_SLURM = "srun"


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each launch line whose nodes never meet."""
    several = [(launch, nodes) for launch in script.launches if (nodes := _nodes(launch))]
    # Options are read from the environment, too.
    if "PET_" in script.text:
        return
    for launch, nodes in several:
        if launch.get("standalone"):
            yield _alone(script, launch, nodes)
        elif len(several) == 1 and launch.command.scope is Scope.ALWAYS:
            yield from _apart(script, launch, nodes)


def _nodes(launch: Launch) -> Option | None:
    """Return the option that asks for several nodes at least, None if it may be one."""
    option = launch.get("nnodes") if launch.closed and launch.launcher != ACCELERATE else None
    least = re.match(r"(\d{1,4})(?::\d+)?$", (option.value or "") if option else "")
    return option if least and int(least[1]) > 1 else None


def _alone(script: LaunchScript, launch: Launch, nodes: Option) -> Report:
    standalone = launch.get("standalone")
    assert standalone is not None
    return Report(
        script.span(standalone.start, standalone.end),
        f"`--standalone` meets on a free port of this machine, which no other node knows, and "
        f"`{script.shown(nodes)}` waits for one: torchrun times out before it starts the script",
        "finds no other node",
        (),
        lambda: Declined(
            "the machines are unknown; replace `--standalone` by `--rdzv-backend=c10d "
            "--rdzv-endpoint=HOST:PORT`, or remove `--nnodes`"
        ),
    )


def _apart(script: LaunchScript, launch: Launch, nodes: Option) -> Iterator[Report]:
    backend, rank = launch.get("rdzv_backend"), launch.get("node_rank")
    name = "static" if backend is None else backend.value
    everywhere = launch.wrapped_by == _SLURM
    place = script.span(nodes.start, nodes.end)
    address = launch.get("rdzv_endpoint") or launch.get("master_addr")
    if name == "static" and rank is None and address is not None and everywhere:
        yield Report(
            place,
            f"without `--node-rank`, every node of `{script.shown(nodes)}` is node 0: torchrun "
            "waits for the others and times out before it starts the script",
            "has one node 0 only",
            (),
            partial(_with_c10d, script, launch),
        )
    # Node 0 may be called so if others have its address; what is not node 0 needs that.
    elsewhere = rank is not None and rank.number != 0
    if address is None and (everywhere or (launch.here and name == "static" and elsewhere)):
        yield Report(
            place,
            f"`{script.shown(nodes)}` has no address to meet at, so each node waits for the "
            "others on its own 127.0.0.1: torchrun times out before it starts the script",
            "meets nobody",
            (),
            lambda: Declined(
                "the machines are unknown; add `--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT` "
                "with one of them"
            ),
        )


def _with_c10d(script: LaunchScript, launch: Launch) -> Fix | Declined:
    endpoint = launch.get("rdzv_endpoint")
    if endpoint is None or launch.get("rdzv_backend"):
        return Declined(
            'the nodes have no numbers; run torchrun with `--node-rank "$SLURM_NODEID"`'
        )
    edit = Edit(script.span(endpoint.start, endpoint.start), "--rdzv-backend=c10d ")
    return Fix("let the nodes number themselves: use the c10d backend", Safety.UNSAFE, (edit,))
