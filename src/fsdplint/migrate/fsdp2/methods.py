"""`clip_grad_norm_`, which only FSDP1's wrapper has, on models that the engine does not know."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Safety
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.migrate.calls import definition
from fsdplint.migrate.step import Change, Context, Found, Question, attempt
from fsdplint.rules.fsdp1_api_on_fsdp2_model import clip_by_torch

_CLIP = "clip_grad_norm_"


def methods(context: Context) -> Iterator[Found]:
    """Yield a question for each such call, or what its answer makes of it.

    Rules change the calls on models that the engine knows.
    """
    known = {
        call.site.node
        for trace in (*context.program.traces, *context.program.method_traces)
        for call in trace.calls(_CLIP)
    }
    for code in context.codes(_CLIP):
        for node in code.walk(_CLIP):
            if (
                isinstance(node, ir.Call)
                and node not in known
                and _may_be_fsdp(context, code, node)
            ):
                yield from attempt(code, node, partial(_changed, context, code, node))


def _may_be_fsdp(context: Context, code: Code, call: ir.Call) -> bool:
    """Return whether a call has the form of FSDP1's: a number to clip at, or no argument."""
    method = call.func
    if not isinstance(method, ir.Attribute) or context.name(code, method):
        return False
    made = definition(code, method.value)
    if isinstance(made, ir.Call) and context.name(code, made.func).startswith("accelerate."):
        return False
    # accelerate's method and PyTorch's function take the parameters first.
    first = call.args[0].value if call.args else None
    gets_parameters = isinstance(first, ir.Call) and ir.last_name(first.func) == "parameters"
    return method.attr == _CLIP and first is not None and not gets_parameters


def _changed(context: Context, code: Code, call: ir.Call) -> Change | None:
    assert isinstance(call.func, ir.Attribute)
    span = code.span(call)
    model = code.short(call.func.value)
    text = f"Is `{model}`, on which `{call.func.attr}` is called, the model that is sharded?"
    question = Question(span, call.func.attr.strip("_").replace("_", "-"), text, ("yes", "no"))
    if context.decided(question) == "no":
        return None
    used = not isinstance(code.parent(call), ir.Expression)
    fix = clip_by_torch(code, call, used, Safety.UNSAFE)
    if isinstance(fix, Declined):
        raise NoFixError(fix.reason)
    return Change(span, fix.title, fix.edits)
