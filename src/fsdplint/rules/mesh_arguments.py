"""A device mesh is made with arguments that it cannot have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.meshes import BadMesh, bad_meshes
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.arguments import argument_of, set_argument
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.mesh import name_by_keyword
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD108",
    summary="a device mesh is made with arguments that it cannot have",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


_MESSAGES = {
    "index": "the device type of a mesh has no index: each rank has a device of its own",
    "device": "the device type of a mesh is a string, not a `torch.device`",
    "number": "the shape of a mesh is a tuple, not the number {0}",
    "position": "the names of a mesh's dimensions are a keyword argument, `mesh_dim_names`",
    "text": "the string `{0!r}` is taken letter by letter for the names of {1} dimension(s)",
    "dimensions": "`fully_shard` takes a mesh of one or two dimensions, not {0}",
    "which": "`{0}` of a mesh of {1} dimensions needs one of them as its argument",
    "unknown": "the mesh has no dimension `{0}`, it has {1}",
    "nameless": "`fully_shard` takes a mesh of two dimensions only if these have names",
}


def reports(program: Program) -> Iterator[Report]:
    for fact in bad_meshes(program):
        yield Report(
            program.span(fact.site),
            _MESSAGES[fact.kind].format(*fact.given),
            "raises",
            program.conditions(fact.site),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: BadMesh) -> Fix | Declined:
    code, call = Code.of(program.tree(fact.site.path)), fact.site.node
    assert isinstance(call, ir.Call)
    if fact.kind == "index":
        given = argument_of(call, 0, "device_type")
        safety = _safety(code, None if given is None else given.value)
        return set_argument(code, call, 0, "device_type", f'"{fact.given[0]}"', safety)
    if fact.kind == "number":
        shape = argument_of(call, 1, "mesh_shape")
        text = "" if shape is None else code.slice(shape.value)
        safety = _safety(code, None if shape is None else shape.value)
        return set_argument(code, call, 1, "mesh_shape", f"({text},)", safety)
    if fact.kind == "position":
        return name_by_keyword(code, call)
    if fact.kind == "text" and fact.given[1] == 1:
        names = argument_of(call, 2, "mesh_dim_names")
        text = "" if names is None else code.slice(names.value)
        safety = _safety(code, None if names is None else names.value)
        return set_argument(code, call, 2, "mesh_dim_names", f"({text},)", safety)
    if fact.kind == "device":
        given = argument_of(call, 0, "device_type")
        if given is not None and isinstance(given.value, (ir.Name, ir.Attribute, ir.Call)):
            text = f"{code.slice(given.value)}.type"
            safety = _safety(code, given.value)
            return set_argument(code, call, 0, "device_type", text, safety)
    return Declined("what is meant is not known")


def _safety(code: Code, given: ir.Expr | None) -> Safety:
    """Safe where the value stands there, or is given to the name once: it has no other one."""
    meant = None if given is None else code.meaning(given)
    stated = isinstance(meant, (ir.Constant, ir.FormattedString)) or (
        isinstance(meant, ir.Call) and ir.last_name(meant.func) == "device"
    )
    return Safety.SAFE if stated else Safety.UNSAFE
