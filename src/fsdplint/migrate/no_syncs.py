"""`model.no_sync()`: gradients that are accumulated before they are reduced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import NoSync, Trace
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.names import FSDP2_MODULE
from fsdplint.migrate.calls import has_fsdp1
from fsdplint.migrate.helpers import defined
from fsdplint.migrate.modes import may_be_ddp, may_stay_whole, wraps_by_ddp
from fsdplint.migrate.states import sharded_names
from fsdplint.migrate.step import Change, Context, Found, Question, attempt
from fsdplint.rules.no_sync_under_fsdp2 import selects, sync_last_micro_batch

EACH = "reduce the gradients of each micro-batch"
REMAIN = (
    "FSDP2 keeps gradients that are not reduced through `zero_grad()`, so that those of the "
    "micro-batches that remain at the end of an epoch would be added to the next step's"
)
_LAST = re.compile(r"len\(|last|final|end_of|total|num_batches", re.IGNORECASE)
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
    early = has_fsdp1(context)
    traces = (*context.program.traces, *context.program.method_traces)
    events = [(trace, event) for trace in traces for event in trace.of(NoSync)]
    sharded = {event.site.node for _, event in events}
    ddp = {event.site.node for trace, event in events if may_be_ddp(context, trace, event)}
    ddp |= {event.site.node for trace, event in events if _is_partly(context, trace, event)}
    others = {call.site.node for trace in traces for call in trace.calls(_METHOD)}
    named = sharded_names(context.program)
    for code, method, use in _uses(context):
        is_call = isinstance(use, ir.Call)
        names = named.get((code.path, code.scope(method)), {})
        known = use in sharded or code.slice(method.value) in names
        if early and not is_call:
            continue  # what the wrappers wrap is known by the calls that shard it
        if known or use not in others:
            of_ddp = use in ddp if use in sharded else wraps_by_ddp(context)
            change = partial(_changed, context, code, method, use, known=known, of_ddp=of_ddp)
            yield from attempt(code, use, change)


def _is_partly(context: Context, trace: Trace, use: NoSync) -> bool:
    """True if a choice of contexts may have a model that is not sharded for its other arm."""
    shard, node = unit_of(trace, use.module), use.site.node
    if shard is None or not isinstance(node, (ir.Call, ir.Attribute)):
        return False
    chosen = selects(Code.of(context.program.tree(use.site.path)), node) is not None
    return chosen and may_stay_whole(context.program, shard)


def _uses(context: Context) -> Iterator[tuple[Code, ir.Attribute, ir.Call | ir.Attribute]]:
    """Yield each method of that name, with its call if it is called; accelerate's takes a model."""
    for code in context.codes(_METHOD):
        for node in code.walk(_METHOD):
            if not isinstance(node, ir.Attribute) or node.attr != _METHOD:
                continue
            function, call = code.function(node), code.parent(node)
            is_call = isinstance(call, ir.Call) and call.func is node
            own = function is not None and function.name == _HELPER
            if not own and isinstance(call, ir.Call) and is_call and not call.args:
                yield code, node, call
            elif not own and not is_call:
                yield code, node, node


def _changed(
    context: Context,
    code: Code,
    method: ir.Attribute,
    use: ir.Call | ir.Attribute,
    *,
    known: bool,
    of_ddp: bool,
) -> Change | None:
    span, model = code.span(use), code.short(method.value)
    text = f"Is `{model}`, on which `{_METHOD}` is called, the model that is sharded?"
    question = Question(span, "no-sync", text, ("yes", "no"))
    if not known and context.decided(question) == "no":
        return None
    if may_remain(code, use):
        return _reduced(code, use)
    fix = Declined("") if of_ddp else sync_last_micro_batch(code, use)
    if isinstance(fix, Fix):
        return Change(span, fix.title, fix.edits)
    if fix.reason and isinstance(code.parent(use), ir.WithItem):
        raise NoFixError(fix.reason)
    return _by_helper(context, code, method, use)


def may_remain(code: Code, use: ir.Node) -> bool:
    """Whether micro-batches may remain at the end of an epoch, whose gradients nothing reduces.

    They do where a step is due after each ``n`` of them, but not after the last one.
    """
    tests = [each.test for each in code.ancestors(use) if isinstance(each, (ir.If, ir.Conditional))]
    if isinstance(use, ir.Assign):
        tests.append(use.value)
    names = (each for test in tests for each in ir.walk(test) if isinstance(each, ir.Name))
    parts = [*tests, *(value for name in names for value in code.assigned(name))]
    counts = any(isinstance(n, ir.BinOp) and n.op == "Modulo" for p in parts for n in ir.walk(p))
    return counts and not any(_LAST.search(code.slice(part)) for part in parts)


def _reduced(code: Code, use: ir.Call | ir.Attribute) -> Change:
    """Reduce the gradients of each micro-batch."""
    imports = Imports(code, use)
    text = imports.name("contextlib", "nullcontext") + "()" * isinstance(use, ir.Call)
    edit = code.edit(use.start, use.end, text)
    return Change(code.span(use), EACH, (edit,), (imports,), REMAIN)


def _by_helper(
    context: Context, code: Code, method: ir.Attribute, use: ir.Call | ir.Attribute
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
