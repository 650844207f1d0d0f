"""Corrections to device meshes: names by keyword, a part of a mesh, the order of dimensions."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.names import dotted


@builder
def name_by_keyword(code: Code, call: ir.Call) -> Fix:
    """Pass the third argument of ``init_device_mesh`` by keyword."""
    plain = [a for a in call.args if a.keyword is None]
    if len(plain) != 3 or any(a.star for a in plain):
        raise NoFixError(
            f"`{code.short(call)}` unpacks its arguments; pass `mesh_dim_names` by keyword by hand"
        )
    edit = code.edit(plain[2].start, plain[2].start, "mesh_dim_names=")
    return Fix("pass the names as `mesh_dim_names`", Safety.SAFE, (edit,))


@builder
def slice_mesh(code: Code, call: ir.Call, name: str) -> Fix:
    """Pass one dimension of its mesh to ``call``."""
    mesh = argument_of(call, -1, "mesh")
    if mesh is None or dotted(mesh.value) is None:
        raise NoFixError(
            f'`{code.short(call)}` has no variable for its mesh; pass `mesh["{name}"]` by hand'
        )
    edit = code.edit(mesh.value.end, mesh.value.end, f'["{name}"]')
    return Fix(f"shard over the dimension `{name}` only", Safety.UNSAFE, (edit,))


@builder
def take_dimension(code: Code, call: ir.Call, name: str) -> Fix:
    """Pass one of the dimensions that it selects from a mesh to ``call``."""
    mesh = argument_of(call, -1, "mesh")
    if mesh is None or not isinstance(mesh.value, ir.Subscript):
        raise NoFixError(
            f'`{code.short(call)}` does not select dimensions here; pass `mesh["{name}"]` by hand'
        )
    index = mesh.value.index
    edit = code.edit(index.start, index.end, f'"{name}"')
    return Fix(f"shard over the dimension `{name}` only", Safety.UNSAFE, (edit,))


@builder
def flatten_mesh(code: Code, call: ir.Call) -> Fix:
    """Make ``call`` shard over the ranks of both dimensions of its mesh."""
    mesh = argument_of(call, -1, "mesh")
    if mesh is None or not isinstance(mesh.value, (ir.Name, ir.Attribute, ir.Subscript)):
        raise NoFixError(
            f"`{code.short(call)}` has no variable for its mesh; flatten the two dimensions by hand"
        )
    edit = code.edit(mesh.value.end, mesh.value.end, "._flatten()")
    return Fix("flatten the two dimensions into one", Safety.UNSAFE, (edit,))


@builder
def swap_dimensions(code: Code, made: ir.Call) -> Fix:
    """Swap the two dimensions of ``init_device_mesh``, sizes and names."""
    edits = (*_turned(code, made, 1, "mesh_shape"), *_turned(code, made, 2, "mesh_dim_names"))
    return Fix("put the replicate dimension first", Safety.UNSAFE, edits)


@builder
def swap_sizes(code: Code, made: ir.Call) -> Fix:
    """Swap the sizes of the two dimensions of ``init_device_mesh``."""
    edits = tuple(_turned(code, made, 1, "mesh_shape"))
    return Fix("swap the sizes of the two mesh dimensions", Safety.UNSAFE, edits)


def _turned(code: Code, made: ir.Call, position: int, keyword: str) -> Iterator[Edit]:
    argument = argument_of(made, position, keyword)
    value = None if argument is None else argument.value
    if not isinstance(value, ir.Collection) or len(value.elements) != 2:
        raise NoFixError(
            f"`{code.short(made)}` does not list its two dimensions; swap them by hand"
        )
    first, second = value.elements
    yield code.edit(first.start, first.end, code.slice(second))
    yield code.edit(second.start, second.end, code.slice(first))
