"""Gradient norms that FSDP1 takes of one rank's shards, and FSDP2 of the whole gradients."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.clipping import local_norms
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.clip_grad_util_on_fsdp1 import clip_over_all_ranks

_DIFFERS = (
    "it takes the norm over all ranks, no longer that of each rank's own shards, so training "
    "changes"
)


def norms(context: Context) -> Iterator[Found]:
    """Yield each norm that ``torch.nn.utils`` takes of an FSDP1 model: with DTensors it is right.

    Source: a run on two ranks before and after, torch 2.13.
    """
    for fact in local_norms(context.program):
        site, call = fact.call.site, fact.call.site.node
        if site.path in context.files and isinstance(call, ir.Call):
            code = Code.of(context.program.tree(site.path))
            fix = clip_over_all_ranks(context.program, fact)
            corrects = fix.edits if isinstance(fix, Fix) else ()
            what = f"keep `{code.short(call.func)}`"
            yield Change(code.span(call), what, (), (), _DIFFERS, corrects)
