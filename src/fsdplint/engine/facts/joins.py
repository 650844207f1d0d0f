"""What is handed to torch's ``Join``, which asks each object for its hook and its process group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Shard, Trace
from fsdplint.engine.program import Program
from fsdplint.engine.values import (
    ClassValue,
    Const,
    Object,
    Origin,
    Sequence,
    Symbol,
    Value,
    class_names,
    resolved,
)
from fsdplint.engine.written import argument
from fsdplint.knowledge.launch import HOOKED_OPTIMIZERS, JOINS, NEW_GROUP, WORLD
from fsdplint.knowledge.replicas import DDP

# Bases of a class that surely have no hook, and of which none can be looked up otherwise.
_HOOKLESS = ("torch.nn.", "torch.optim.", "object", "abc.ABC", "typing.")
_ANY_ATTRIBUTE = ("join_hook", "__getattr__", "__getattribute__")
# Of DistributedDataParallel, ahead of the process group, whose position differs by release.
_MAX_POSITIONAL = 5


class Trouble(Enum):
    """Why ``Join`` raises."""

    EMPTY = "nothing to join"
    SHARDED = "a sharded model"
    HOOKLESS = "no hook"
    LOOSE = "no list"
    GROUPS = "process groups"


@dataclass(frozen=True, slots=True)
class WrongJoin:
    """A ``Join`` that raises for one of the objects it is given.

    Attributes:
        node: the object as it is written in the list, or the list.
        shard: what sharded it, where that is the trouble.
        made: what built it and the object before it, where their process groups differ.
        name: of the object's class.
    """

    call: Call
    trouble: Trouble
    node: ir.Node
    shard: Shard | None = None
    made: tuple[Joined, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """An object that has a hook: what was called for it, and its process group.

    Attributes:
        group: the call that makes it, which may do so once for all; None for that of all ranks.
        replicas: it is a model of DistributedDataParallel.
    """

    call: ir.Call
    path: str
    group: ir.Node | None
    replicas: bool


def wrong_joins(program: Program) -> Iterator[WrongJoin]:
    """Calls of ``Join`` that raise, for what they are given."""
    for trace in program.traces:
        for call in trace.calls(*JOINS):
            written, given = argument(call.site.node, 0, "joinables"), call.arguments
            joinables = given.get(0, "joinables")
            if written is None or joinables is None:
                continue
            listed = resolved(joinables)
            if not isinstance(listed, Sequence):
                yield from _unlisted(trace, call, written.value, joinables)
            elif not listed.items and not listed.rest:
                yield WrongJoin(call, Trouble.EMPTY, written.value)
            else:
                yield from _elements(trace, call, written.value, listed)


def _unlisted(trace: Trace, call: Call, written: ir.Node, given: Value) -> Iterator[WrongJoin]:
    shard = _sharded(trace, call, given)
    if shard is not None:
        yield WrongJoin(call, Trouble.SHARDED, written, shard)
    elif isinstance(given, Object) and _hooked(trace, given) is not None:
        yield WrongJoin(call, Trouble.LOOSE, written)


def _elements(trace: Trace, call: Call, written: ir.Node, listed: Sequence) -> Iterator[WrongJoin]:
    """What is wrong with single elements, else with the first that has another group."""
    troubles = []
    for index, item in enumerate(listed.items):
        node = _element(written, index)
        shard = _sharded(trace, call, item)
        if shard is not None:
            troubles.append(WrongJoin(call, Trouble.SHARDED, node, shard))
        elif isinstance(item, Object) and _is_hookless(trace, item):
            troubles.append(WrongJoin(call, Trouble.HOOKLESS, node, name=_name(item)))
    yield from troubles
    joined = [_hooked(trace, item) for item in listed.items if isinstance(item, Object)]
    if troubles or listed.rest or len(joined) < len(listed.items):
        return
    for index, (before, after) in enumerate(itertools.pairwise(joined), start=1):
        if before is None or after is None:
            return
        if before.group is not after.group:
            yield WrongJoin(call, Trouble.GROUPS, _element(written, index), made=(before, after))
            return


def _element(written: ir.Node, index: int) -> ir.Node:
    if isinstance(written, ir.Collection) and index < len(written.elements):
        return written.elements[index]
    return written


def _sharded(trace: Trace, call: Call, given: Value) -> Shard | None:
    module = resolved(given)
    shards = (s for s in trace.of(Shard) if s.module is module and s.time < call.time)
    return next(shards, None)


# Hooks


def _is_hookless(trace: Trace, item: Object) -> bool:
    """Whether an object is of a known class that has no hook, and nothing has wrapped it."""
    if item.cls is None or item.origin is not Origin.ALLOCATED or item.escaped is not None:
        return False
    if isinstance(item.cls, ClassValue):
        if any(item.cls.lookup(name) is not None for name in _ANY_ATTRIBUTE) or item.cls.opaque():
            return False
        bases = class_names(item.cls)
    else:
        bases = frozenset((item.cls.name,))
    known = all(f"{name}.".startswith(_HOOKLESS) for name in bases) and not bases & {*DDP}
    given = any(call.argument(0, "module") is item for call in trace.calls(*DDP))
    return known and not given and "join_hook" not in item.attrs


def _name(item: Object) -> str:
    if isinstance(item.cls, ClassValue):
        return item.cls.node.name
    return item.cls.name.rpartition(".")[2] if item.cls is not None else ""


def _hooked(trace: Trace, item: Object) -> Joined | None:
    """What built an object that has a hook, None where its process group is not known."""
    replicas = [call for call in trace.calls(*DDP) if call.argument(0, "module") is item]
    if replicas:
        made = replicas[-1]
        keywords, given = made.arguments.keywords, len(made.arguments.args)
        if made.arguments.open or "device_mesh" in keywords or given > _MAX_POSITIONAL:
            return None
        site = made.site
    elif class_names(item.cls) & HOOKED_OPTIMIZERS and isinstance(item.cls, Symbol):
        keywords, found = item.keywords, item.site
        if found is None or not isinstance(found.node, ir.Call):
            return None
        if any(each.star for each in found.node.args) or len(item.args) > 2:
            return None
        site = found
    else:
        return None
    known, group = _group(trace, keywords.get("process_group"))
    if not known or not isinstance(site.node, ir.Call):
        return None
    return Joined(site.node, site.path, group, bool(replicas))


def _group(trace: Trace, given: Value | None) -> tuple[bool, ir.Node | None]:
    """Whether a process group is known, and the call that makes it, None for that of all ranks."""
    if given is None or (isinstance(given, Const) and given.value is None):
        return True, None
    if isinstance(given, Symbol):
        return given.name == WORLD, None
    made = next((call for call in trace.calls(NEW_GROUP) if call.result is given), None)
    return (False, None) if made is None else (True, made.site.node)
