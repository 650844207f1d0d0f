"""Mistakes under FSDP1 that FSDP2 corrects, so that training changes."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.cleared_gradients import gathered_clears, optimizer_of
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Symbol
from fsdplint.finding import Fix
from fsdplint.fixes.clear_gradients import clear_by_optimizer
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fsdp import SHARDING_STRATEGIES
from fsdplint.migrate.fsdp2.strategies import KEEPING
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
_CLEARED = (
    "FSDP1 clears no gradients between forward and backward with `use_orig_params=True` and "
    "parameters that stay gathered, so training changes"
)


def corrected(context: Context) -> Iterator[Found]:
    """Yield each such place.

    Source: runs on two ranks before and after, torch 2.13.
    """
    for fact in lost_groupings(context.program):
        yield from _said(context, fact.site, fact.test, _GROUPS)
    for mesh in not_reduced(context.program):
        yield from _said(context, mesh.made.site, mesh.made.site.node, _MESH)
    yield from _cleared(context)


def _cleared(context: Context) -> Iterator[Found]:
    """Yield what clears gradients of the module where FSDP1 keeps views instead of parameters."""
    found = {c.event.site.node: c for c in gathered_clears(context.program, Generation.FSDP1)}
    for node, clear in found.items():
        path, strategy = clear.event.site.path, clear.shard.strategy
        name = strategy.name if isinstance(strategy, Symbol) else ""
        keeps_views = name.removeprefix(SHARDING_STRATEGIES) in KEEPING
        if keeps_views and clear.shard.keeps_parameters and path in context.files:
            code = Code.of(context.program.tree(path))
            made = clear_by_optimizer(code, node, optimizer_of(clear))
            if isinstance(made, Fix):  # otherwise `cleared` says why
                yield Change(code.span(node), made.title, made.edits, (), _CLEARED, made.edits)


def _said(context: Context, site: Site, node: ir.Node, differs: str) -> Iterator[Found]:
    if site.path in context.files:
        code = Code.of(context.program.tree(site.path))
        yield Change(code.span(node), f"keep `{code.short(node)}`", (), (), differs)
