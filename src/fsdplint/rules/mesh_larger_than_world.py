"""Launch lines that start fewer processes than the mesh of the training script needs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

from fsdplint.configs.launch_lines import Launch, LaunchScript, Option
from fsdplint.configs.launched_code import LaunchedCode, launched_code
from fsdplint.engine import ir
from fsdplint.finding import Evidence, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.launch import INIT_DEVICE_MESH
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD957",
    summary="a launch line starts fewer processes than a mesh has ranks",
    severity=Severity.ERROR,
    fix=None,
    since="0.1.0",
    preview="No public script that was read has this mistake, so only examples and proofs "
    "tell how precise the rule is.",
)

# Code that chooses the number of processes itself, and variables that do it for torchrun.
_OTHERS = ("world_size=", "spawn", "fake")
_ENVIRONMENT = "PET_"
_MESH = INIT_DEVICE_MESH.rpartition(".")[2]


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each launch whose ranks all fail at a mesh."""
    for launch in script.launches if _ENVIRONMENT not in script.text else ():
        found = _processes(launch)
        code = launched_code(script, launch, _MESH) if found else None
        sizes = _sizes(code) if code else None
        if found is None or sizes is None or prod(sizes) <= found[1]:
            continue
        option, number = found
        file = Path(launch.script.literal or "").name if launch.script else ""
        yield Report(
            script.span(option.start, option.end),
            f"this starts {number} processes, but `{file}` makes a mesh of "
            f"{prod(sizes)} ranks ({', '.join(map(str, sizes))}): every rank fails there",
            "too few processes",
            (Evidence(script.span(launch.start, launch.end), "the launch"),),
            _fix,
        )


def _fix() -> Declined:
    return Declined("either the launch line or the mesh has to change; correct one by hand")


def _processes(launch: Launch) -> tuple[Option, int] | None:
    """Return how many processes a launch line starts, with the option that says so."""
    if not launch.closed:
        return None
    if launch.launcher == ACCELERATE:
        option = launch.get("num_processes")
        number = option.number if option else None
    else:
        option, nodes = launch.get("nproc_per_node"), launch.number("nnodes", 1)
        own = option.number if option else None
        number = own * nodes if own and nodes else None
    return (option, number) if option and number else None


def _sizes(code: LaunchedCode) -> list[int] | None:
    """Return the sizes of the first mesh that each run makes, None if they are unknown."""
    if any(word in code.tree.text for word in _OTHERS):
        return None
    for call in code.calls:
        if code.name_of(call.func) == INIT_DEVICE_MESH:
            named = [each.value for each in call.args if each.keyword == "mesh_shape"]
            plain = [each.value for each in call.args if each.keyword is None and not each.star]
            shape = named[0] if named else plain[1] if len(plain) > 1 else None
            return _numbers(code, shape) if shape is not None else None
    return None


def _numbers(code: LaunchedCode, shape: ir.Expr) -> list[int] | None:
    shape = code.tree.meaning(shape)
    items = shape.elements if isinstance(shape, ir.Collection) else ()
    values = [code.tree.meaning(each) for each in items]
    sizes = [
        each.value
        for each in values
        if isinstance(each, ir.Constant) and type(each.value) is int and each.value > 0
    ]
    return sizes if sizes and len(sizes) == len(items) else None
