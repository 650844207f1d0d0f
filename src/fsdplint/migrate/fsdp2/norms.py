"""Norms and other numbers that FSDP1 takes of one rank's shards, and FSDP2 of whole tensors."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.clipping import local_norms
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code
from fsdplint.knowledge.names import OPTIMIZER
from fsdplint.knowledge.tensors import REDUCTIONS
from fsdplint.migrate.calls import has_fsdp1
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.clip_grad_util_on_fsdp1 import clip_over_all_ranks

_DIFFERS = (
    "it takes the norm over all ranks, no longer that of each rank's own shards, so training "
    "changes"
)
_ELEMENTS = "numel()"
_WORLD = "world_size"
_WHOLE = "FSDP2 counts whole parameters, so the product is too large"
_OF_OPTIMIZER = "it is of the whole tensor, no longer of each rank's own shard, so training changes"


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


def counts(context: Context) -> Iterator[Found]:
    """Yield each number of the parameters' elements that is multiplied by the number of ranks."""
    for code in context.codes(_WORLD) if has_fsdp1(context) else ():
        for node in ir.walk(code.module):
            if not isinstance(node, ir.BinOp) or node.op != "Multiply":
                continue
            for count, ranks in ((node.left, node.right), (node.right, node.left)):
                if _WORLD in code.slice(ranks) and _counts(context, code, count):
                    yield Change(code.span(node), f"keep `{code.short(node)}`", (), (), _WHOLE)


def _counts(context: Context, code: Code, value: ir.Expr) -> bool:
    """True if an expression counts elements, or calls a function of the program that does."""
    made = code.meaning(value)
    if not isinstance(made, ir.Call):
        return False
    name = ir.last_name(made.func)
    return _ELEMENTS in code.slice(made) or any(
        function.name == name and _ELEMENTS in other.slice(function)
        for other in context.codes(_ELEMENTS)
        for function in other.functions
    )


def optimizer_norms(context: Context) -> Iterator[Found]:
    """Yield each number of a whole tensor by which an optimizer of the program steps.

    Source: a run on two ranks before and after, torch 2.13.
    """
    for code in context.codes("Optimizer") if has_fsdp1(context) else ():
        for node in ir.walk(code.module):
            bases = node.bases if isinstance(node, ir.ClassDef) else ()
            if not any(context.name(code, base) == OPTIMIZER for base in bases):
                continue
            for call in ir.walk(node):
                method = call.func if isinstance(call, ir.Call) else None
                if isinstance(method, ir.Attribute) and method.attr in REDUCTIONS:
                    what = f"keep `{code.short(call)}`"
                    yield Change(code.span(call), what, (), (), _OF_OPTIMIZER)
