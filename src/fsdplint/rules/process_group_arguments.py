"""Calls that create a process group and always raise an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import is_caught
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Choice, Const, Object, Value, class_names, may_be
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.process_group import (
    as_timedelta,
    backend,
    device,
    only_once,
)
from fsdplint.knowledge.launch import (
    DESTROY,
    INIT,
    INIT_DEVICE_MESH,
    MISSPELT_BACKENDS,
    NEW_GROUP,
    PROCESSES,
    REGISTERS_BACKEND,
    SPAWNS,
    TORCH_DEVICE,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD104",
    summary="a process group is created in a way that always raises an error",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


class Wrong(Enum):
    """What is wrong with a call."""

    TIMEOUT = "timeout"
    DEVICE = "device_id"
    BACKEND = "backend"
    TWICE = "twice"


@dataclass(frozen=True, slots=True)
class WrongGroup:
    """A call that raises.

    Attributes:
        node: the argument that is wrong, or the call.
        meant: the intended backend.
        first: the call that created the process group before.
    """

    call: Call
    wrong: Wrong
    node: ir.Node
    meant: str = ""
    first: Call | None = None


def wrong_groups(program: Program) -> Iterator[WrongGroup]:
    """Yield calls that create process groups and always raise an error that nothing handles."""
    for wrong in _wrong_groups(program):
        if not is_caught(program, wrong.call.site):
            yield wrong


def _wrong_groups(program: Program) -> Iterator[WrongGroup]:
    for trace in program.traces:
        for call in trace.calls(INIT):
            if not call.arguments.open:
                yield from _wrong_init(program, call)
        for call in trace.calls(NEW_GROUP):
            yield from _wrong_timeout(call, 1)
        if not trace.calls(*SPAWNS, *PROCESSES):  # each has a group of its own
            yield from _again(trace)


def _wrong_init(program: Program, call: Call) -> Iterator[WrongGroup]:
    yield from _wrong_timeout(call, 2)
    yield from _wrong_backend(program, call)
    yield from _wrong_device(call)


def _wrong_timeout(call: Call, position: int) -> Iterator[WrongGroup]:
    value = call.arguments.get(position, "timeout")
    written = argument(call.site.node, position, "timeout")
    number = isinstance(value, Const) and isinstance(value.value, (int, float))
    if number and written is not None:
        yield WrongGroup(call, Wrong.TIMEOUT, written.value)


def _wrong_backend(program: Program, call: Call) -> Iterator[WrongGroup]:
    value = call.arguments.get(0, "backend")
    written = argument(call.site.node, 0, "backend")
    if not isinstance(value, Const) or not isinstance(value.value, str) or written is None:
        return
    text = value.value
    if ";" in text:
        yield WrongGroup(call, Wrong.BACKEND, written.value, text.replace(";", ","))
    elif text.lower() in MISSPELT_BACKENDS and not any(program.trees_with(REGISTERS_BACKEND)):
        yield WrongGroup(call, Wrong.BACKEND, written.value, MISSPELT_BACKENDS[text.lower()])


def _wrong_device(call: Call) -> Iterator[WrongGroup]:
    value = call.arguments.get(8, "device_id")
    written = argument(call.site.node, 8, "device_id")
    if value is None or written is None:
        return
    if _is_text(value) or _lacks_index(value):
        yield WrongGroup(call, Wrong.DEVICE, written.value)


def _is_text(value: Value) -> bool:
    if isinstance(value, Choice):
        return all(map(_is_text, may_be(value)))
    if isinstance(value, Const):
        return isinstance(value.value, str)
    made = isinstance(value, Object) and value.site is not None and value.cls is None
    return made and isinstance(value.site.node, ir.FormattedString)  # type: ignore[union-attr]  # an Object with a site


def _lacks_index(value: Value) -> bool:
    """True for a device without an index, such as ``torch.device("cuda")``."""
    if not isinstance(value, Object) or TORCH_DEVICE not in class_names(value.cls):
        return False
    kind = value.args[0] if len(value.args) == 1 and not value.keywords else None
    return isinstance(kind, Const) and isinstance(kind.value, str) and ":" not in kind.value


def _again(trace: Trace) -> Iterator[WrongGroup]:
    """Yield the second of two calls that create the default process group."""
    first: Call | None = None
    for call in trace.calls(INIT, DESTROY, INIT_DEVICE_MESH):
        alone = any(guard.divergent or guard.progress for guard in call.site.guards)
        if call.name == DESTROY or alone:
            first = None
        elif first is None:
            first = call
        elif call.name == INIT and _both(first.site, call.site):
            yield WrongGroup(call, Wrong.TWICE, call.site.node, first=first)


def _both(one: Site, other: Site) -> bool:
    """True if two places differ and are not in different arms of a branch."""
    apart = exclude_each_other(one, other)
    caught = any(isinstance(g.test, (ir.Handler, ir.Try)) for g in (*one.guards, *other.guards))
    return not apart and not caught and one.node is not other.node


def reports(program: Program) -> Iterator[Report]:
    for fact in wrong_groups(program):
        site, first = fact.call.site, fact.first
        message, label = _words(program, fact)
        before = [] if first is None else [program.evidence(first.site, "first created here")]
        yield Report(
            Span(site.path, fact.node.start, fact.node.end),
            message,
            label,
            (*before, *program.conditions(site)),
            partial(_fix, program, fact),
        )


def _words(program: Program, fact: WrongGroup) -> tuple[str, str]:
    site = fact.call.site
    assert isinstance(site.node, ir.Call)
    text = program.text(site.path, fact.node)
    raises = f"`{program.text(site.path, site.node.func)}` raises an error"
    if fact.wrong is Wrong.TIMEOUT:
        message = f"`{text}` is a number, but `timeout` must be a `timedelta`: {raises}"
        return message, "number instead of a `timedelta`"
    if fact.wrong is Wrong.DEVICE:
        message = f"`{text}` is not a `torch.device` with an index, as `device_id` must be"
        return f"{message}: {raises}", "not a device with an index"
    if fact.wrong is Wrong.BACKEND:
        message = f"`{text}` is not a valid backend (did you mean `{fact.meant}`?): {raises}"
        return message, "not a valid backend"
    assert fact.first is not None
    where = program.where(fact.first.site, site)
    message = f"{raises}, since the default process group created {where} still exists"
    return message, "created again here"


def _fix(program: Program, fact: WrongGroup) -> Fix | Declined:
    code, call = Code.of(program.tree(fact.call.site.path)), fact.call.site.node
    if fact.wrong is Wrong.TIMEOUT:
        return as_timedelta(code, fact.node)
    if fact.wrong is Wrong.DEVICE:
        return device(code, fact.node)
    if fact.wrong is Wrong.BACKEND:
        return backend(code, fact.node, fact.meant)
    return only_once(code, call)
