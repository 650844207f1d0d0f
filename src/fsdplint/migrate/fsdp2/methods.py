"""Calls of methods that only FSDP1's wrapper has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter.values import Object, Origin, followed
from fsdplint.finding import Safety
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.knowledge.fsdp import METHODS_OF_FSDP1
from fsdplint.migrate.calls import definition
from fsdplint.migrate.fsdp2.classes import missing
from fsdplint.migrate.step import Change, Context, Found, Question, attempt, kept
from fsdplint.rules.direct_forward import call_module
from fsdplint.rules.fsdp1_api_on_fsdp2_model import clip_by_torch

_CLIP = "clip_grad_norm_"
# FSDP1's wrapper has one of its own; that of FSDP2's model runs no hooks.
_FORWARD = "forward"


def methods(context: Context) -> Iterator[Found]:
    """Yield what becomes of each such call on a sharded model, or on one that is not known."""
    words = (_CLIP, _FORWARD, *sorted(METHODS_OF_FSDP1))
    models: dict[ir.Node, list[Object]] = {}
    for trace in (*context.program.traces, *context.program.method_traces):
        for call in trace.calls(*words):
            model = followed(call.receiver)
            known = models.setdefault(call.site.node, [])
            known += [model] if isinstance(model, Object) and not _is_given(model) else []
    for code in context.codes(*words):
        for node in code.walk(*words):
            if not isinstance(node, ir.Call) or not isinstance(node.func, ir.Attribute):
                continue
            known = models.get(node, [])
            sharded = any(model.generation() is not None for model in known)
            if known and not sharded:
                continue
            if _may_be_forward(context, code, node) or _may_be_fsdp(context, code, node):
                yield from attempt(code, node, partial(_changed, context, code, node, sharded))
            elif node.func.attr in METHODS_OF_FSDP1 and not context.name(code, node.func):
                yield kept(code, node, missing(node.func))


def _is_given(model: Object) -> bool:
    """True if a model is, or is part of, what unknown code gives a function."""
    return model.generation() is None and any(
        each.origin is Origin.PARAMETER for each in (model, *model.ancestors())
    )


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


def _may_be_forward(context: Context, code: Code, call: ir.Call) -> bool:
    """Return whether a call runs a model that its function is given, past the hooks of FSDP2.

    Modules call those inside them, which need not be units.
    """
    model = call.func.value if isinstance(call.func, ir.Attribute) else None
    name = ir.last_name(model)
    if ir.last_name(call.func) != _FORWARD or not call.args or context.name(code, call.func):
        return False
    classes = [each for each in code.ancestors(call) if isinstance(each, ir.ClassDef)]
    methods = [n for c in classes for n in ir.walk(c) if isinstance(n, ir.Function)]
    inside = any(each.name == _FORWARD for each in methods)
    return not inside and name not in ("", "self", "cls") and not name[0].isupper()


def _changed(context: Context, code: Code, call: ir.Call, sharded: bool) -> Change | None:
    assert isinstance(call.func, ir.Attribute)
    span = code.span(call)
    model = code.short(call.func.value)
    text = f"Is `{model}`, on which `{call.func.attr}` is called, the model that is sharded?"
    question = Question(span, call.func.attr.strip("_").replace("_", "-"), text, ("yes", "no"))
    if not sharded and context.decided(question) == "no":
        return None
    used = not isinstance(code.parent(call), ir.Expression)
    fix = (
        call_module(code, call.func, Safety.UNSAFE)
        if call.func.attr == _FORWARD
        else clip_by_torch(code, call, used, Safety.UNSAFE)
    )
    if isinstance(fix, Declined):
        raise NoFixError(fix.reason)
    return Change(span, fix.title, fix.edits)
