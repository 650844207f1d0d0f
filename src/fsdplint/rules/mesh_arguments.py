"""A device mesh is created or used with invalid arguments."""

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
    summary="a device mesh is created or used with invalid arguments",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


# A message and a label for each kind; `{call}` is the call that raises the error.
_WORDS = {
    "index": (
        "`{call}` raises an error: the device type must be `{0!r}`, without an index",
        "device type has an index",
    ),
    "device": (
        "`{call}` raises an error: the device type must be a string, not a `torch.device`",
        "device type is not a string",
    ),
    "number": (
        "`{call}` raises an error: the shape of a mesh must be a tuple, not the number `{0}`",
        "shape is not a tuple",
    ),
    "position": (
        "`{call}` raises an error: the dimension names must be the keyword argument "
        "`mesh_dim_names`",
        "names are not a keyword argument",
    ),
    "letters": (
        "the string `{0!r}` names the mesh dimensions {2}, by its letters: none is called `{0}`",
        "names are not a tuple",
    ),
    "text": (
        "`{call}` raises an error: it takes each letter of the string `{0!r}` for a name, and "
        "these do not fit a mesh of {1}",
        "names are not a tuple",
    ),
    "dimensions": (
        "`{call}` raises an error: it takes a mesh of one or two dimensions, and this one has {0}",
        "mesh has too many dimensions",
    ),
    "which": (
        "`{call}` raises an error: the mesh has {1} dimensions, and the call names none of them",
        "names no dimension",
    ),
    "unknown": (
        "`{call}` raises an error: the mesh has no dimension `{0}`, only {1}",
        "no such dimension",
    ),
    "nameless": (
        "`{call}` raises an error: the two dimensions of the mesh need names",
        "mesh dimensions have no names",
    ),
}

_BY_HAND = {
    "text": "the intended names are unclear; pass a tuple with one name per dimension by hand",
    "device": "the device is no variable here; pass its type as a string by hand",
    "dimensions": "the intended dimensions are unclear; pass one or two of them by hand",
    "which": "the intended dimension is unclear; pass its name by hand",
    "unknown": "the intended dimension is unclear; pass its name by hand",
    "nameless": "the intended names are unclear; pass `mesh_dim_names` to the mesh by hand",
}


def reports(program: Program) -> Iterator[Report]:
    for fact in bad_meshes(program):
        message, label = _words(program, fact)
        yield Report(
            program.span(fact.site),
            message,
            label,
            program.conditions(fact.site),
            partial(_fix, program, fact),
        )


def _words(program: Program, fact: BadMesh) -> tuple[str, str]:
    """Return the message and the label."""
    kind, given = fact.kind, fact.given
    if kind == "text":
        text, dimensions = str(given[0]), given[1]
        given = text, f"{dimensions} dimension{'s' * (dimensions != 1)}"
        if len(text) == len(set(text)) == dimensions:  # legal, and not as intended
            kind, given = "letters", (*given, " and ".join(f"`{each}`" for each in text))
    assert isinstance(fact.site.node, ir.Call)
    call = program.text(fact.site.path, fact.site.node.func)
    message, label = _WORDS[kind]
    return message.format(*given, call=call), label


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
    return Declined(_BY_HAND[fact.kind])


def _safety(code: Code, given: ir.Expr | None) -> Safety:
    """Return SAFE where the value is a literal, or assigned once to the name that is passed."""
    meant = None if given is None else code.meaning(given)
    stated = isinstance(meant, (ir.Constant, ir.FormattedString)) or (
        isinstance(meant, ir.Call) and ir.last_name(meant.func) == "device"
    )
    return Safety.SAFE if stated else Safety.UNSAFE
