"""FSDP1's classes in tests and annotations, its gradient scaler, and its wrapper's attributes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety, Span
from fsdplint.fixes.arguments import without
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports, bindings
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import WRAPPED
from fsdplint.knowledge.fsdp import ONLY_OF_FSDP1, WRAPPED_MODULE, WRAPPER_ATTRIBUTES
from fsdplint.knowledge.names import DISTRIBUTED, FSDP1, FSDP1_UNITS, FSDP2_MODULE, canonical
from fsdplint.knowledge.policies import (
    CPU_OFFLOAD,
    MIXED_PRECISION,
    MIXED_PRECISION_POLICY,
    OFFLOAD_POLICY,
)
from fsdplint.knowledge.scaling import GRAD_SCALER, SHARDED_SCALER
from fsdplint.migrate.calls import FSDP1_WORDS, fsdp1_calls, may_be_none
from fsdplint.migrate.fsdp2.settings import arguments
from fsdplint.migrate.fsdp2.strategies import HYBRID, mentioned
from fsdplint.migrate.step import Change, Context, Found, Kept, attempt, kept
from fsdplint.rules.fsdp1_api_on_fsdp2_model import drop_wrapper

_CLASSES = {
    FSDP1: FSDP2_MODULE,
    MIXED_PRECISION: MIXED_PRECISION_POLICY,
    CPU_OFFLOAD: OFFLOAD_POLICY,
}


def shared_names(context: Context) -> Iterator[Found]:
    """Yield each import of another class under FSDP1's name that is tried before FSDP1's.

    Nothing in its file can be changed: no text shows which calls are of which class.
    """
    for code in context.codes(*FSDP1_WORDS):
        first = {each.name: each for each in reversed(list(bindings(code)))}
        names = {each.name for each in bindings(code) if canonical(each.target) == FSDP1}
        for other in (first[name] for name in sorted(names)):
            if canonical(other.target) != FSDP1:
                reason = f"`{other.name}` is also `{other.target}`; name them differently, then "
                span = Span(code.path, other.statement.start, code.module.end)
                yield Kept(span, f"`{code.short(other.statement)}`", f"{reason}migrate again")


def tests(context: Context) -> Iterator[Found]:
    """Yield a change for each `isinstance(…, FSDP)`, annotation and `FSDP.fsdp_modules(…)`."""
    words = (*FSDP1_WORDS, "MixedPrecision", "CPUOffload")
    for code in context.codes(*words):
        for node in code.walk(*words):
            if isinstance(node, ir.Call) and context.name(code, node.func) == FSDP1_UNITS:
                yield _units(code, node)
            for named in _named(node):
                new = _CLASSES.get(context.name(code, named))
                if new is not None:
                    imports = Imports(code, named)
                    name = imports.name(*new.rsplit(".", 1))
                    edit = code.edit(named.start, named.end, name)
                    verb = "test for" if isinstance(node, ir.Call) else "annotate with"
                    units = ", the class of FSDP2's units" if new == FSDP2_MODULE else ""
                    yield Change(edit.span, f"{verb} `{name}`{units}", (edit,), (imports,))


def _named(node: ir.Node) -> Iterator[ir.Expr]:
    """Yield the names in the second argument of an `isinstance`, or in an annotation."""
    found: ir.Expr | None = None
    if isinstance(node, ir.Call) and dotted(node.func) == "isinstance" and len(node.args) == 2:
        found = node.args[1].value
    elif isinstance(node, (ir.Parameter, ir.Declare)):
        found = node.annotation
    elif isinstance(node, ir.Function):
        found = node.returns
    for each in ir.walk(found) if found is not None else ():
        if isinstance(each, (ir.Name, ir.Attribute)):
            yield each


def _units(code: Code, call: ir.Call) -> Change:
    imports = Imports(code, call)
    unit = imports.name(*FSDP2_MODULE.rsplit(".", 1))
    model = code.slice(call.args[0].value)
    text = f"[module for module in {model}.modules() if isinstance(module, {unit})]"
    edit = code.edit(call.start, call.end, text)
    return Change(edit.span, "list the units of FSDP2", (edit,), (imports,))


def scalers(context: Context) -> Iterator[Found]:
    """Yield a change for each `ShardedGradScaler`: FSDP2's gradients need no other scaler.

    Source: a run on two ranks with an infinite gradient on one, torch 2.13.
    """
    for code in context.codes("ShardedGradScaler"):
        for node in code.walk("ShardedGradScaler"):
            if not isinstance(node, ir.Call) or context.name(code, node.func) != SHARDED_SCALER:
                continue
            imports = Imports(code, node)
            module, name = GRAD_SCALER.rsplit(".", 1)
            torch = imports.bound("torch")
            text = imports.name(module, name) if torch is None else f"{torch}.amp.{name}"
            edits: list[Edit] = [code.edit(node.func.start, node.func.end, text)]
            kept = [each for each in node.args if each.keyword != "process_group"]
            edits += without(code, node.args, kept) if len(kept) < len(node.args) else []
            span = code.span(node)
            yield Change(span, "use `torch.amp.GradScaler`", tuple(edits), (imports,))


def attributes(context: Context) -> Iterator[Found]:
    """Yield what reads an attribute of FSDP1's wrapper from a model, which FSDP2's model lacks."""
    for code in context.codes(*FSDP1_WORDS):
        calls = {
            name: call for call in fsdp1_calls(context, code) if (name := _assigned(code, call))
        }
        for node in ir.walk(code.module):
            if not isinstance(node, ir.Attribute):
                continue
            call = calls.get(dotted(node.value) or "")
            if call is not None and node.attr in WRAPPER_ATTRIBUTES - WRAPPED:
                yield from attempt(code, node, partial(_without_wrapper, context, code, node, call))
            elif node.attr in ONLY_OF_FSDP1:
                yield kept(code, node, missing(node))
            elif node.attr == WRAPPED_MODULE:
                fix = drop_wrapper(code, node, Safety.UNSAFE)
                if isinstance(fix, Fix):
                    yield Change(code.span(node), fix.title, fix.edits)


def _without_wrapper(context: Context, code: Code, read: ir.Attribute, call: ir.Call) -> Change:
    """Read the process group that the wrapper was given, or the rank or the size of all ranks."""
    span = code.span(read)
    if read.attr in ("rank", "world_size") and _shards_over_all(context, code, call):
        imports = Imports(code, read)
        text = f"{imports.module(DISTRIBUTED, 'dist')}.get_{read.attr}()"
        return Change(span, f"call `{text}`", (code.edit(read.start, read.end, text),), (imports,))
    if read.attr != "process_group":
        raise NoFixError(missing(read))
    imports = Imports(code, read)
    group = arguments(code, call).get("process_group")
    text = code.slice(group) if group is not None and dotted(group) else ""
    if not text or (group is not None and may_be_none(code, group)):
        world = f"{imports.module(DISTRIBUTED, 'dist')}.group.WORLD"
        text = f"({text} or {world})" if text else world
    edit = code.edit(read.start, read.end, text)
    return Change(span, f"name the process group, which is `{text}`", (edit,), (imports,))


def missing(read: ir.Attribute) -> str:
    """Return why a read of FSDP1's wrapper cannot stay, and what to do."""
    if "flat_param" in read.attr:
        return "FSDP2 shards each parameter by itself; read the model's parameters by hand"
    return f"`fully_shard` adds no `{read.attr}` to the model; change it by hand"


def _shards_over_all(context: Context, code: Code, call: ir.Call) -> bool:
    """Return whether the process group of a wrapper is the default one, whatever it shards."""
    try:
        given = arguments(code, call)
    except NoFixError:
        return False
    if "process_group" in given or "device_mesh" in given:
        return False
    possible = mentioned(context) if "sharding_strategy" in given else frozenset()
    return possible is not None and not possible & HYBRID


def _assigned(code: Code, call: ir.Call) -> str | None:
    """Return the name that a statement gives to the result of a call."""
    statement = code.statement(call)
    if not isinstance(statement, ir.Assign) or statement.value is not call:
        return None
    return dotted(statement.targets[0])
