"""Device meshes of hybrid sharding, whose dimensions FSDP2 wants named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.arguments import add_argument, argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.knowledge.fsdp import SHARDING_STRATEGIES
from fsdplint.knowledge.launch import INIT_DEVICE_MESH
from fsdplint.migrate.calls import definition, fsdp1_calls
from fsdplint.migrate.fsdp2.settings import arguments
from fsdplint.migrate.fsdp2.strategies import HYBRID
from fsdplint.migrate.step import Change, Context, Found, attempt


def meshes(context: Context) -> Iterator[Found]:
    """Yield a change for each mesh of two dimensions without names that hybrid sharding gets.

    Source: `fully_shard` of torch 2.13 takes them by position, and refuses a mesh without names.
    """
    for code in context.codes("device_mesh"):
        for call in fsdp1_calls(context, code):
            with suppress(NoFixError):  # `wrappers` tells of arguments that are hidden
                given = arguments(code, call)
                mesh, strategy = given.get("device_mesh"), given.get("sharding_strategy")
                if mesh is None or strategy is None or not _is_hybrid(context, code, strategy):
                    continue
                made = definition(code, mesh)
                if isinstance(made, ir.Call) and context.name(code, made.func) == INIT_DEVICE_MESH:
                    yield from attempt(code, made, partial(_named, code, made))


def _is_hybrid(context: Context, code: Code, strategy: ir.Expr) -> bool:
    name = context.name(code, definition(code, strategy))
    return name.removeprefix(SHARDING_STRATEGIES) in HYBRID


def _named(code: Code, made: ir.Call) -> Change | None:
    shape = argument_of(made, 1, "mesh_shape")
    sizes = shape.value if shape else None
    is_pair = isinstance(sizes, ir.Collection) and len(sizes.elements) == 2
    if not is_pair or argument_of(made, 2, "mesh_dim_names"):
        return None
    edit = add_argument(code, made, 'mesh_dim_names=("replicate", "shard")')
    return Change(code.span(made), "name the dimensions of the mesh", (edit,))
