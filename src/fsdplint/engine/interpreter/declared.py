"""What the code says of its values: an annotation, a test or a call only for units says what it is.

Only of values that come from outside of the program, whose sharding nothing shows. A value that the
program makes is what it is, whatever is said of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Declared
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Condition,
    Object,
    Origin,
    Sharded,
    Symbol,
    Value,
    followed,
)
from fsdplint.knowledge.calls import UNIT_CLASSES, Generation
from fsdplint.knowledge.fsdp import FSDP1_STATICS
from fsdplint.knowledge.names import names_optimizer

_FROM_OUTSIDE = frozenset({Origin.PARAMETER, Origin.UNKNOWN, Origin.PART})


def annotated(state: PathState, value: Object, annotation: ir.Expr | None, frame: Frame) -> None:
    """Note that a parameter is a unit or an optimizer, if its annotation is the class of one."""
    named = _without_none(annotation)
    if named is None:
        return
    cls = state.evaluate(named, frame)
    if named is annotation:  # an optional unit need not be one
        _declare(state, value, [cls], named, frame, True)
    if isinstance(cls, Symbol) and names_optimizer(cls.name):
        value.cls = cls


def _without_none(annotation: ir.Expr | None) -> ir.Name | ir.Attribute | None:
    """Return the class in an annotation, in `Optional[Class]` and in `Class | None`."""
    if isinstance(annotation, ir.Subscript) and ir.last_name(annotation.value) == "Optional":
        annotation = annotation.index
    if isinstance(annotation, ir.BinOp) and annotation.op == "BitOr":
        annotation = annotation.left
    return annotation if isinstance(annotation, (ir.Name, ir.Attribute)) else None


def tested(state: PathState, test: Value, outcome: bool, node: ir.Node, frame: Frame) -> None:
    """Note that a value is a unit, if ``test`` with this outcome says so."""
    if not isinstance(test, Condition):
        return
    if test.op == "not":
        tested(state, test.operands[0], not outcome, node, frame)
    elif test.op == ("and" if outcome else "or"):
        for operand in test.operands:
            tested(state, operand, outcome, node, frame)
    elif test.op == "isinstance" and outcome:
        value, *classes = map(followed, test.operands)
        _declare(state, value, classes, node, frame)


def given(
    state: PathState, function: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> None:
    """Note a model as a unit of FSDP1 if it is given to ``FSDP.state_dict_type`` and the like."""
    position, keyword, _ = FSDP1_STATICS[function]
    value = followed(arguments.get(position, keyword) or NONE)
    if not _is_for_a_subclass(state, node, frame):
        _note(state, value, Generation.FSDP1, node, frame)


def _is_for_a_subclass(state: PathState, node: ir.Call, frame: Frame) -> bool:
    """True if a class asks for a unit in one of its branches, and a subclass of it shards.

    Then an object of the class itself need not have one.
    """
    classes = [each for each in frame.unit.module.body if isinstance(each, ir.ClassDef)]
    around = next((each for each in classes if each.start < node.start < each.end), None)
    if around is None or not any(
        guard.path == frame.unit.path and around.start < guard.test.start < around.end
        for guard in state.guards
    ):
        return False
    return any(
        around.name in each.own_names | each.own_attributes
        and not state.priorities.sharding.isdisjoint(each.names | each.attributes)
        for unit in state.project.units.values()
        for each in (unit.definitions.values() if unit is not None else ())
        if each.kind == "class" and each.name != around.name
    )


def _declare(
    state: PathState,
    value: Value,
    classes: Iterable[Value],
    node: ir.Node,
    frame: Frame,
    annotated: bool = False,
) -> None:
    kinds = {UNIT_CLASSES.get(each.name) if isinstance(each, Symbol) else None for each in classes}
    generation = kinds.pop() if len(kinds) == 1 else None
    if generation is not None:
        _note(state, value, generation, node, frame, annotated)


def _note(
    state: PathState,
    value: Value,
    generation: Generation,
    node: ir.Node,
    frame: Frame,
    annotated: bool = False,
) -> None:
    if not isinstance(value, Object) or state.importing or state.enumerating:
        return
    if value.origin not in _FROM_OUTSIDE or value.cls is not None or value.sharded:
        return
    time, site = state.tick(), state.site(node, frame)
    value.sharded.append(Sharded(generation, time, site, declared=True))
    state.emit(Declared(time, site, generation, value, annotated))
