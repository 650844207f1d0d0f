"""Optimizers: the parameters that they capture, and calls that replace these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.interpreter import tracking
from fsdplint.engine.interpreter.events import BuildOptimizer, Repoint
from fsdplint.engine.interpreter.state import Effect, Frame, PathState
from fsdplint.engine.interpreter.values import (
    Arguments,
    ClassValue,
    Object,
    Offered,
    Origin,
    Parameters,
    Symbol,
    Value,
    class_names,
    contained,
)
from fsdplint.knowledge.calls import REPOINTING_CALLS
from fsdplint.knowledge.names import names_optimizer

# Nothing else that is made of parameters has both, without arguments.
_USES = frozenset({"step", "zero_grad"})


def is_class(cls: ClassValue | Symbol | None) -> bool:
    """Return whether a class is, or derives from, an optimizer's."""
    return any(map(names_optimizer, class_names(cls)))


def construct(
    state: PathState, cls: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Create an optimizer of a library's class."""
    made = state.new(Origin.ALLOCATED, cls, state.site(node, frame))
    built(state, made, arguments, node, frame)
    return made


def built(
    state: PathState, optimizer: Object, arguments: Arguments, node: ir.Node, frame: Frame
) -> None:
    """Note that an optimizer is constructed, with the parameters that it captures."""
    captures = captured(state, arguments) or optimizer.captures
    optimizer.captures = list(captures)
    optimizer.args, optimizer.keywords = tuple(arguments.args), dict(arguments.keywords)
    cls = optimizer.cls
    label = cls.name.rpartition(".")[2] if isinstance(cls, Symbol) else ""
    label = cls.node.name if isinstance(cls, ClassValue) else label.replace("?", "the optimizer")
    state.note(BuildOptimizer, node, frame, optimizer, tuple(captures), label)
    tracking.track(state, optimizer)


def offered(
    state: PathState, made: Value, arguments: Arguments, node: ir.Call, frame: Frame
) -> None:
    """Note the objects passed to unknown code, whose result may be an optimizer of theirs."""
    values = arguments.values()
    taken = captured(state, arguments)
    given = arguments.open or any(isinstance(value, Object) for value in values)
    given = given or bool(taken)
    if given and isinstance(made, Object) and not any(map(_is_optimizer, values)):
        made.offered = Offered(tuple(taken), state.tick(), state.site(node, frame))


def _is_optimizer(value: Value) -> bool:
    return any(isinstance(each, Object) and bool(each.captures) for each in contained(value))


def used(state: PathState, receiver: Value, name: str, arguments: Arguments) -> None:
    """Treat what was made of parameters as an optimizer once it was stepped and zeroed.

    One that a caller outside of the program gives is that of the only model that is sharded.
    """
    if not isinstance(receiver, Object):
        return
    if receiver.origin is Origin.PARAMETER and is_class(receiver.cls) and not receiver.captures:
        receiver.captures = _of_the_only_model(state)
    made = receiver.offered
    if made is None or name not in _USES or arguments.args:
        return
    made.uses.add(name)
    if made.uses == _USES and made.parameters:
        _found_out(state, receiver, made)


def _of_the_only_model(state: PathState) -> list[Parameters]:
    """Return the parameters of the sharded model if there is one, around all units."""
    units = {unit.module: unit.site for unit in state.trace.units()}
    roots = [each for each in units if units.keys().isdisjoint(each.ancestors())]
    if len(roots) != 1:
        return []
    return [Parameters(roots[0], state.tick(), units[roots[0]])]


def scheduled(state: PathState, arguments: Arguments) -> None:
    """Treat what a schedule of torch gets as an optimizer: it refuses anything else."""
    value = arguments.get(0, "optimizer")
    if isinstance(value, Object) and value.offered is not None:
        _found_out(state, value, value.offered)


def _found_out(state: PathState, optimizer: Object, made: Offered) -> None:
    """Note that what unknown code made is an optimizer; of which parameters may stay unknown."""
    optimizer.offered = None
    if optimizer.captures:
        return
    optimizer.captures = list(made.parameters)
    cls = optimizer.cls
    label = cls.name.rpartition(".")[2] if isinstance(cls, Symbol) else "the optimizer"
    state.emit(BuildOptimizer(made.time, made.site, optimizer, made.parameters, label))
    if state.trace.method_code is not None:  # a constructor's code, which no program shows
        node = made.site.node
        state.trace.method_code.add((made.site.path, node.start, node.end))
    tracking.track(state, optimizer)


def captured(state: PathState, arguments: Arguments) -> list[Parameters]:
    """Return the parameters that an optimizer takes: its constructor consumes generators."""
    now = state.tick()
    return [
        replace(item, time=now, lazy=False) if item.lazy else item
        for value in arguments.values()
        for item in contained(value)
        if isinstance(item, Parameters)
    ]


def repoint(state: PathState, arguments: Arguments, node: ir.Node, frame: Frame) -> None:
    for value in arguments.values():
        for item in contained(value):
            if isinstance(item, Object) and item.captures:
                state.note(Repoint, node, frame, item)


def repoint_self(state: PathState, receiver: Object, node: ir.Call, frame: Frame) -> bool:
    for whole in (receiver, *receiver.ancestors()):
        if whole.captures:
            state.note(Repoint, node, frame, whole)
            return True
    return False


EFFECTS: Mapping[str, Effect] = dict.fromkeys(REPOINTING_CALLS, repoint)
