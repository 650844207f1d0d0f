"""Objects that hold sharded modules, and their methods that nothing in the program calls.

The caller of a trainer class is another package, a notebook or a framework. What its methods do to
the modules that its constructor sharded is known all the same. Each such method is followed from
the state that the constructor leaves, and from nothing else: methods have no order but the one that
their attributes force. One that reads what only another sets comes after that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.interpreter.functions import decorators
from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.state import PathState
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    FunctionValue,
    Object,
    Origin,
    Value,
    class_names,
    followed,
    reachable,
)
from fsdplint.engine.project.unit import Unit
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.protocols import called_first

# Decorators of functions that are not called on an object, or not with its state.
_NOT_DRIVEN = frozenset({"staticmethod", "classmethod", "abstractmethod", "overload", "setter"})


@dataclass(frozen=True, slots=True)
class Live:
    """An object as a constructor leaves it, or a method that sets it up.

    Attributes:
        node: its class.
        outcomes: the decisions of the path up to there.
        setup: the method that ran after the constructor, "" if none did.
        first: what a framework calls before all else, in order.
        before: the attributes that had a value before that method.
        attributes: those that have one now.
        generations: of what it holds that is sharded: another arm may shard it otherwise.
        declared: the code only says so.
        holding: those that hold sharded modules, or optimizers.
        methods: the methods of its class and the bases, by name.
        units: the files that they are in.
    """

    node: ir.ClassDef
    outcomes: tuple[bool, ...]
    setup: str
    first: tuple[str, ...]
    before: frozenset[str]
    attributes: frozenset[str]
    generations: frozenset[Generation]
    declared: bool
    holding: frozenset[str]
    methods: dict[str, ir.Function]
    units: dict[str, Unit]


def live(
    made: Object, outcomes: tuple[bool, ...], setup: str = "", before: frozenset[str] | None = None
) -> Live | None:
    """Describe an object that holds sharded modules, None if it holds none."""
    cls = made.cls
    shards = [each for held in reachable(made) for each in held.sharded]
    kinds = frozenset(each.generation for each in shards)
    declared = all(each.declared for each in shards)
    if not isinstance(cls, ClassValue) or not kinds:
        return None
    found = dict(_methods(cls, is_module(made)))
    functions = {name: value.function for name, value in found.items()}
    units = {name: value.scope.unit for name, value in found.items()}
    now = attributes(made)
    if before is not None:
        now -= _set_by_others(made, setup, functions) - before
    holding = frozenset(name for name, value in made.attrs.items() if _holds(value))
    before = now if before is None else before
    first = next(filter(None, map(called_first, sorted(class_names(cls)))), ())
    return Live(
        cls.node, outcomes, setup, first, before, now, kinds, declared, holding, functions, units
    )


def _set_by_others(made: Object, setup: str, methods: Mapping[str, ir.Function]) -> frozenset[str]:
    """Return the attributes that a set-up only reads, and that another method sets.

    That method comes first, and what it sets is not known on a path that starts with the set-up.
    """
    read = {name for name, value in made.attrs.items() if _is_read(made, name, value)}
    others = (function for name, function in methods.items() if name != setup)
    return frozenset(node.attr for each in others for node in _targets(each) if node.attr in read)


def _is_read(made: Object, name: str, value: Value) -> bool:
    """True if an attribute has a value only since it was read."""
    if not isinstance(value, Object) or value.origin is not Origin.PART:
        return False
    return value.parent is made and value.step == f".{name}"


def _holds(value: Value) -> bool:
    return any(each.sharded or each.captures for each in reachable(value))


def without_sharding(
    receivers: Mapping[ir.Function, Set[Object]], declared: bool
) -> set[ir.Function]:
    """Return the methods that ran on objects none of which has an attribute that is sharded.

    What an attribute holds further down is not looked at: a method is then followed once more.

    Args:
        declared: whether an attribute counts of which the code only says that it is sharded.
    """
    return {
        method
        for method, objects in receivers.items()
        if not any(_has_sharded(each, declared) for each in objects)
    }


def _has_sharded(receiver: Object, declared: bool) -> bool:
    values = (receiver, *map(followed, receiver.attrs.values()))
    held = [each for each in values if isinstance(each, Object)]
    shards = any(declared or not each.declared for value in held for each in value.sharded)
    return shards or any(each.captures for each in held)


class Reached(Exception):
    """The object of the class that a path was followed for is there."""

    def __init__(self, made: Object) -> None:
        super().__init__()
        self.made = made


def note_live(
    state: PathState, made: Object, setup: str = "", before: frozenset[str] | None = None
) -> None:
    """Note an object that holds sharded modules once it is constructed, or set up.

    Raises:
        Reached: the path was followed for this.
    """
    cls = made.cls
    if state.importing or not isinstance(cls, ClassValue) or cls.node in state.live:
        return
    if not state.trace.units():
        return
    outcomes = tuple(decision.outcome for decision in state.decisions.made)
    found = live(made, outcomes, setup, before)
    if found is not None:
        state.live[cls.node] = found
        if state.until is cls.node:
            raise Reached(made)


def attributes(made: Object) -> frozenset[str]:
    """Return the attributes of an object that have a value, and not None."""
    held = made.attrs.items()
    return frozenset(n for n, v in held if not (isinstance(v, Const) and v.value is None))


def _methods(cls: ClassValue, module: bool) -> Iterator[tuple[str, FunctionValue]]:
    """Yield the methods of a class and its bases; a module's forward is not called by its name."""
    classes = [each for each in cls.lineage() if isinstance(each, ClassValue)]
    for name, value in {n: v for each in reversed(classes) for n, v in each.attrs.items()}.items():
        if isinstance(value, FunctionValue) and value.function.parameters:
            driven = not decorators(value.function) & _NOT_DRIVEN
            if driven and not (module and name == "forward"):
                yield name, value


def uses_sharded(found: Live, chain: tuple[str, ...]) -> bool:
    """True if one of the methods reads what holds sharded modules, or their optimizer."""
    return any(not _reads(found, name).isdisjoint(found.holding) for name in chain)


def chains(found: Live) -> Iterator[tuple[str, ...]]:
    """Yield each public method, behind the methods that have to run before it.

    What a framework sets up comes before all methods but those that it calls earlier.
    One is left out if several others set what it reads, so that its state is not known.
    """
    by_framework = found.setup in found.first
    earlier = found.first[: found.first.index(found.setup)] if by_framework else ()
    for name in found.methods:
        if not name.startswith("_") and name not in (found.setup, *earlier):
            chain = _chain(found, name, ())
            known = not found.setup or by_framework
            if chain is not None and (known or _is_forced(found, chain)):
                yield chain


def _chain(found: Live, name: str, after: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return a method behind its predecessors, None if these are not known."""
    if name in after:
        return None
    chain: tuple[str, ...] = ()
    for attribute in sorted(_reads(found, name) - found.attributes - _sets(found, name)):
        setters = [m for m in found.methods if m != "__init__" and attribute in _own_sets(found, m)]
        if len(setters) > 1:
            return None
        for setter in setters:
            before = _chain(found, setter, (*after, name))
            if before is None:
                return None
            chain += tuple(each for each in before if each not in chain)
    return (*chain, name)


def _is_forced(found: Live, chain: tuple[str, ...]) -> bool:
    """True if the first method of a chain reads what only the set-up gave a value."""
    return bool(_reads(found, chain[0]) & (found.attributes - found.before))


def _reads(found: Live, name: str) -> frozenset[str]:
    """Return the attributes of the object that a method reads, and the methods that it calls."""
    read: set[str] = set()
    for each in _with_callees(found, name):
        written = {id(node) for node in _targets(found.methods[each])}
        nodes = _attributes(found.methods[each])
        read.update(node.attr for node in nodes if id(node) not in written)
    return frozenset(read - found.methods.keys())


def _sets(found: Live, name: str) -> frozenset[str]:
    """Return the attributes that a method or its callees assign."""
    return frozenset(a for each in _with_callees(found, name) for a in _own_sets(found, each))


def _own_sets(found: Live, name: str) -> frozenset[str]:
    return frozenset(node.attr for node in _targets(found.methods[name]))


def _with_callees(found: Live, name: str) -> list[str]:
    """Return a method and those of the object that it mentions, through any number of others."""
    names = [name]
    for each in names:
        names += sorted(mentioned(found, each) - {*names})
    return names


def mentioned(found: Live, name: str) -> frozenset[str]:
    """Return the methods of the object that a method mentions."""
    named = {node.attr for node in _attributes(found.methods[name])}
    return frozenset(named & found.methods.keys())


def _attributes(function: ir.Function) -> Iterator[ir.Attribute]:
    """Yield the places where a method names an attribute of its object."""
    own = function.parameters[0].name
    for node in ir.walk(function):
        if isinstance(node, ir.Attribute) and _is_name(node.value, own):
            yield node


def _targets(function: ir.Function) -> Iterator[ir.Attribute]:
    """Yield the attributes of the object that are assigned something else than None."""
    own = function.parameters[0].name
    for node in ir.walk(function):
        if isinstance(node, ir.Assign) and not _is_none(node.value):
            for target in node.targets:
                for each in _assigned(target):
                    if isinstance(each, ir.Attribute) and _is_name(each.value, own):
                        yield each


def _assigned(target: ir.Expr) -> Iterator[ir.Expr]:
    """Yield what a target assigns to: not the object in front of an attribute or an index."""
    if isinstance(target, (ir.Collection, ir.Starred)):
        inner = target.elements if isinstance(target, ir.Collection) else (target.value,)
        for each in inner:
            yield from _assigned(each)
    else:
        yield target


def _is_name(node: ir.Expr, name: str) -> bool:
    return isinstance(node, ir.Name) and node.id == name


def _is_none(node: ir.Expr) -> bool:
    return isinstance(node, ir.Constant) and node.value is None
