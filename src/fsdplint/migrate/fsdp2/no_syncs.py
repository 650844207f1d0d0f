"""`model.no_sync()`: gradients that are accumulated before they are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import NoSync
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.names import FSDP2_MODULE
from fsdplint.migrate.fsdp2.calls import FSDP1_WORDS, fsdp1_calls
from fsdplint.migrate.fsdp2.modes import may_be_ddp, wraps_by_ddp
from fsdplint.migrate.helpers import defined
from fsdplint.migrate.states import sharded_names
from fsdplint.migrate.step import Change, Context, Found, Question, attempt
from fsdplint.rules.no_sync_under_fsdp2 import sync_last_micro_batch

_METHOD = "no_sync"
_HELPER = "without_gradient_sync"
_DEFINITION = f'''@{{}}
def {_HELPER}(model):
    """Accumulate gradients without reducing them."""
    {{}}model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


'''
_OF_DDP = """if not isinstance(model, {}):
        with model.no_sync():
            yield
        return
    """


def no_syncs(context: Context) -> Iterator[Found]:
    """Yield a change for each `no_sync` of the model, or a question if that is not known."""
    words = FSDP1_WORDS
    early = any(True for code in context.codes(*words) for _ in fsdp1_calls(context, code))
    traces = (*context.program.traces, *context.program.method_traces)
    sharded: dict[ir.Node, bool] = {}
    for trace in traces:
        for use in trace.of(NoSync):
            ddp = may_be_ddp(context, trace, use)
            sharded[use.site.node] = sharded.get(use.site.node, False) or ddp
    others = {call.site.node for trace in traces for call in trace.calls(_METHOD)}
    named = sharded_names(context.program)
    for code in context.codes(_METHOD):
        for node in code.walk(_METHOD):
            function = code.function(node)
            if not isinstance(node, ir.Attribute) or node.attr != _METHOD:
                continue
            if function is not None and function.name == _HELPER:
                continue
            call = code.parent(node)
            use = call if isinstance(call, ir.Call) and call.func is node else node
            if early and use is node:
                continue  # what the wrappers wrap is known by the calls that shard it
            names = named.get((code.path, code.scope(node)), {})
            known = use in sharded or (use is node and code.slice(node.value) in names)
            if not known and (use in others or (isinstance(use, ir.Call) and use.args)):
                continue  # another class has such a method, or accelerate's takes the model
            ddp = sharded.get(use, wraps_by_ddp(context))
            yield from attempt(code, use, partial(_changed, context, code, use, known, ddp))


def _changed(
    context: Context, code: Code, use: ir.Call | ir.Attribute, known: bool, ddp: bool
) -> Change | None:
    method = use.func if isinstance(use, ir.Call) else use
    assert isinstance(method, ir.Attribute)
    span, model = code.span(use), code.short(method.value)
    text = f"Is `{model}`, on which `{_METHOD}` is called, the model that FSDP shards?"
    question = Question(span, "no-sync", text, ("yes", "no"))
    if not known and context.decided(question) == "no":
        return None
    fix = Declined("") if ddp else sync_last_micro_batch(code, use)
    if isinstance(fix, Fix):
        return Change(span, fix.title, fix.edits)
    if fix.reason and isinstance(code.parent(use), ir.WithItem):
        raise NoFixError(fix.reason)
    return _by_helper(context, code, use, method)


def _by_helper(
    context: Context, code: Code, use: ir.Call | ir.Attribute, method: ir.Attribute
) -> Change:
    """Call a context manager that the file defines, or bind it to the model."""
    imports = Imports(code, use)
    manager = imports.name("contextlib", "contextmanager")
    first = ""
    if wraps_by_ddp(context):
        first = _OF_DDP.format(imports.name(*FSDP2_MODULE.rsplit(".", 1)))
    text = f"{_HELPER}({code.slice(method.value)})"
    if use is method:
        text = f"{imports.name('functools', 'partial')}({_HELPER}, {code.slice(method.value)})"
    edits = (
        *defined(code, _HELPER, _DEFINITION.format(manager, first)),
        code.edit(use.start, use.end, text),
    )
    what = "turn gradient reduction off and on with `set_requires_gradient_sync`"
    return Change(code.span(use), what, edits, (imports,))
