"""Mistakes under FSDP1 that FSDP2 corrects, so that training changes."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.site import Site
from fsdplint.fixes.code import Code
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.fsdp1_mesh_not_reduced import not_reduced
from fsdplint.rules.parameters_grouped_after_flattening import lost_groupings

_DIFFERS = "{0}, so training changes; to prove the rest of the migration, fix `{1}` first"
_GROUPS = _DIFFERS.format(
    "it tells the parameters apart, which FSDP1 flattens", "parameters-grouped-after-flattening"
)
_MESH = _DIFFERS.format(
    "FSDP2 reduces gradients over all its ranks, which FSDP1 does not", "fsdp1-mesh-not-reduced"
)


def corrected(context: Context) -> Iterator[Found]:
    """Yield each such place.

    Source: runs on two ranks before and after, torch 2.13.
    """
    for fact in lost_groupings(context.program):
        yield from _said(context, fact.site, fact.test, _GROUPS)
    for mesh in not_reduced(context.program):
        yield from _said(context, mesh.made.site, mesh.made.site.node, _MESH)


def _said(context: Context, site: Site, node: ir.Node, differs: str) -> Iterator[Found]:
    if site.path in context.files:
        code = Code.of(context.program.tree(site.path))
        yield Change(code.span(node), f"keep `{code.short(node)}`", (), (), differs)
