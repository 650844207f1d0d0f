"""What is mended first: states that FSDP1 gives to some ranks or in part, calls on a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import COMPOUND
from fsdplint.engine.interpreter.events import Shard
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code
from fsdplint.fixes.edits import touch
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.fixes.optimizer_loads import CONVERTS
from fsdplint.fixes.state_calls import TAKES
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.checkpoints import LOADS, SAVES
from fsdplint.knowledge.fsdp import FSDP1_STATICS
from fsdplint.knowledge.names import FSDP1
from fsdplint.migrate.fsdp2.state_calls import METHODS, found_states
from fsdplint.migrate.rules import fixes_of
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.collective_under_rank_guard import missed_collectives, on_every_rank

_CLIP = "clip_grad_norm_"
_EARLY = "FSDP1 replaces the parameters that it holds, so training changes"
_RAW = "the file holds one rank's shards under FSDP1; such a file cannot be loaded any more"
_STATES = (*METHODS, *TAKES, *CONVERTS, *SAVES, *LOADS)


def mistakes(context: Context) -> Iterator[Found]:
    """Yield a change for each state that FSDP1 does not give, or not whole, and of `_statics`."""
    yield from _statics(context)
    yield from _unbound(context)
    yield from _nested(context)
    yield from of_the_wrapper(context)
    yield from on_all_ranks(context)
    yield from _early_optimizers(context)
    yield from _raw_states(context)


def _early_optimizers(context: Context) -> Iterator[Found]:
    """Yield a change for each optimizer that holds none of the parameters that FSDP1 trains."""
    for change in fixes_of("optimizer-before-sharding")(context):
        yield replace(change, differs=_EARLY) if isinstance(change, Change) else change


def _raw_states(context: Context) -> Iterator[Found]:
    """Yield a change for each raw state of an optimizer, if all loads of such states change, too.

    Loads change only if all of these states do. Whether a method is an optimizer's is told by its
    name where nothing calls its function.
    """
    changes = [c for c in fixes_of("optimizer-state-saved-raw")(context) if isinstance(c, Change)]
    starts = {(change.span.path, change.span.start) for change in changes}
    edits = [edit for change in changes for edit in change.edits]
    loads, raw = False, False
    for code in context.codes("state_dict") if changes else ():
        for node in code.walk("load_state_dict", "state_dict"):
            method = node.func if isinstance(node, ir.Call) else None
            owner = ir.last_name(method.value) if isinstance(method, ir.Attribute) else ""
            if "opt" not in owner.lower():
                continue
            taken = code.edit(node.start, node.end, "")
            raw |= ir.last_name(method) == "state_dict" and not any(touch(taken, e) for e in edits)
            if ir.last_name(method) == "load_state_dict":
                loads = True
                if (code.path, node.start) not in starts:
                    return
    if loads and raw:
        return
    for change in changes:
        yield replace(change, differs=_RAW)


def _statics(context: Context) -> Iterator[Found]:
    """Yield a change for each `model.state_dict_type(model, …)`, which is a method of the class."""
    names = {name.rpartition(".")[2] for name in FSDP1_STATICS}
    for code in context.codes(*names):
        for node in code.walk(*names):
            method = node.func if isinstance(node, ir.Call) and node.args else None
            if not isinstance(method, ir.Attribute) or method.attr not in names:
                continue
            model, given = code.slice(method.value), node.args[0].value  # type: ignore[attr-defined]  # a call
            if model == code.slice(given):
                imports = Imports(code, node)
                name = imports.name(*FSDP1.rsplit(".", 1))
                edit = code.edit(method.value.start, method.value.end, name)
                what = f"call `{method.attr}` on `{name}`"
                yield Change(code.span(node), what, (edit,), (imports,))


def _unbound(context: Context) -> Iterator[Found]:
    """Yield a change for each `FSDP.clip_grad_norm_(model, …)`, which is a method of the model."""
    for code in context.codes(_CLIP):
        for node in code.walk(_CLIP):
            if not isinstance(node, ir.Call) or context.name(code, node.func) != f"{FSDP1}.{_CLIP}":
                continue
            model, rest = [*node.args[:1]], node.args[1:]
            if model and not (model[0].keyword or model[0].star):
                end = rest[0].start if rest else node.end - 1
                text = f"{code.slice(model[0].value)}.{_CLIP}("
                edits = (code.edit(node.start, end, text),)
                yield Change(code.span(node), f"call `{_CLIP}` on the model", edits)


def _nested(context: Context) -> Iterator[Found]:
    """Yield a change for each `ema.load_state_dict(model.state_dict())`, to change both calls."""
    found = {state.call: state.code for state in found_states(context)}
    for call, code in found.items():
        taken, statement = call.args[0].value if call.args else None, code.statement(call)
        if taken in found and not isinstance(statement, COMPOUND) and code.alone(statement):
            assert taken is not None
            name, indent = fresh(code, call, "state_dict"), code.indentation(statement)
            line = f"{indent}{name} = {code.slice(taken)}{code.newline}"
            above = code.insert_lines(code.line_start(statement.start), line)
            edits = (above, code.edit(taken.start, taken.end, name))
            yield Change(code.span(taken), f"name the result of `{code.short(taken)}`", edits)


def on_all_ranks(context: Context) -> Iterator[Found]:
    """Yield a change for each call that takes, loads or saves a state on some ranks only."""
    traces = (*context.program.traces, *context.program.method_traces)
    program = replace(context.program, traces=traces)
    facts = list(missed_collectives(program))
    for fact in facts:
        call = fact.collective.call
        fix = on_every_rank(program, fact, facts)
        if call.name in _STATES and isinstance(fix, Fix):
            yield Change(program.span(call.site), fix.title, fix.edits)


def of_the_wrapper(context: Context) -> Iterator[Found]:
    """Yield a change for each state of the module inside FSDP1's wrapper.

    Of what no inner wrapper holds, it has one rank's shards (run on torch 2.13).
    """
    for trace in (*context.program.traces, *context.program.method_traces):
        wrapped = [each for each in trace.of(Shard) if each.generation is Generation.FSDP1]
        for call in trace.calls("state_dict"):
            method = call.site.node.func if isinstance(call.site.node, ir.Call) else None
            inner = method.value if isinstance(method, ir.Attribute) else None
            if not isinstance(inner, ir.Attribute) or inner.attr != "module":
                continue
            if any(each.module is call.receiver and each.time < call.time for each in wrapped):
                code = Code.of(context.program.tree(call.site.path))
                model = code.slice(inner.value)
                edit = code.edit(inner.value.end, inner.end, "")
                differs = "the module inside FSDP1's wrapper may give one rank's shards"
                yield Change(code.span(inner), f"take the state of `{model}`", (edit,), (), differs)
