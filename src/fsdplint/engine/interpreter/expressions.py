"""Expressions: operators, tests, texts, displays and comprehensions."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.interpreter import batches, comparison, releases, tensors
from fsdplint.engine.interpreter.differing import differing, is_fine, parts
from fsdplint.engine.interpreter.elements import (
    element_of,
    extend,
    merge,
    store_key,
    surely_any,
    unrolled,
)
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.site import Guard
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.stores import bind_target
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Condition,
    Const,
    FunctionValue,
    Mapping,
    Object,
    Origin,
    Parameters,
    Scope,
    Sequence,
    Taint,
    Value,
    followed,
    key_of,
    taint_of,
)
from fsdplint.knowledge.modules import MATMUL

# Longer texts, and conditions of more operands, become unknown values.
MAX_TEXT = 10_000
_MAX_OPERANDS = 32


def constant(_: PathState, node: ir.Constant, *__: object) -> Value:
    return Const(node.value)


def lambda_(_: PathState, node: ir.Lambda, frame: Frame) -> Value:
    return FunctionValue(node.function, frame.scope)


def truth(state: PathState, node: ir.Expr, frame: Frame) -> Value:
    """Return the value that a test is about; the operands of ``and`` and ``or`` are tests, too."""
    if isinstance(node, ir.BoolOp):
        state.count_step()
        return bool_op(state, node, frame, tested=True)
    if isinstance(node, ir.Not):
        state.count_step()
        inner = truth(state, node.operand, frame)
        if not isinstance(inner, Const):  # a branch depends on it, even where it is decided
            return Condition("not", (inner,), ("not", key_of(inner)), inner.taint)
        return Const(not inner.value, inner.taint)
    return tensors.look(state, state.evaluate(node, frame), node, frame)


def bool_op(state: PathState, node: ir.BoolOp, frame: Frame, *, tested: bool = False) -> Value:
    """Evaluate ``and`` or ``or``; the right operand is under the guard that it is reached at all.

    Args:
        tested: whether only the truth of the result matters.
    """
    left = truth(state, node.left, frame)
    if isinstance(left, Const):
        absorbs = bool(left.value) == (node.op == "or")
        return left if absorbs else _operand(state, node.right, frame, tested)
    group = state.group
    with state.under([state.guard(left, node.left, node.op == "and", frame)]):
        right = _operand(state, node.right, frame, tested)
    state.group = group if group is state.group else None
    key = state.interned((node.op, key_of(left), key_of(right)))
    return _joined(state, node.op, left, right, key)


def _operand(state: PathState, node: ir.Expr, frame: Frame, tested: bool) -> Value:
    return truth(state, node, frame) if tested else state.evaluate(node, frame)


def _joined(state: PathState, op: str, left: Value, right: Value, key: object) -> Value:
    """Return ``left op right``, or an unknown value if that has too many operands."""
    taint = taint_of(left, right)
    operands = sum(each.size if isinstance(each, Condition) else 1 for each in (left, right))
    if operands > _MAX_OPERANDS:
        return state.unknown(taint, key=key)
    return Condition(op, (left, right), key, taint, operands)


def not_(state: PathState, node: ir.Not, frame: Frame) -> Value:
    value = truth(state, node.operand, frame)
    known = state.decisions.known(value)
    if known is not None:
        return Const(not known, value.taint)
    return Condition("not", (value,), ("not", key_of(value)), value.taint)


def compare(state: PathState, node: ir.Compare, frame: Frame) -> Value:
    left, right = state.evaluate(node.left, frame), state.evaluate(node.right, frame)
    tensors.operated(state, node.op, (left, right), node, frame)
    found = tensors.compared(state, node.op, left, right)
    found = found or releases.compared(state, node.op, left, right)
    outcome = found or comparison.compare(node.op, left, right)
    state.decisions.keep_source(outcome, (left, right))
    return outcome


def bin_op(state: PathState, node: ir.BinOp, frame: Frame) -> Value:
    """Evaluate a binary operator on sequences, texts, tensors or unknown values."""
    left, right = state.evaluate(node.left, frame), state.evaluate(node.right, frame)
    if isinstance(left, Sequence) and isinstance(right, Sequence) and node.op == "Add":
        joined = Sequence(list(left.items), list(left.rest), left.kind)
        extend(state, joined, right)
        return joined
    if node.op == "Add" and _is_text(left) and _is_text(right):
        assert isinstance(left, Const) and isinstance(right, Const)
        return _bounded_text(state, f"{left.value}{right.value}", taint_of(left, right))
    if node.op == "Modulo" and _is_pattern(node.left):
        _look_formatted(state, right, node.right, frame)
    else:
        if frame.loops and (kept := tensors.accumulated(state, node.op, right)) is not None:
            state.sums[node] = kept
        tensors.operated(state, node.op, (left, right), node, frame)
        made = tensors.binary(state, node.op, left, right)
        made = tensors.made_by(state, made, node, frame)
        if made is not None:
            _note_product(state, node, left, right, made, frame)
            return made
    taint = taint_of(left, right)
    result = state.unknown(taint, key=(node.op, key_of(left), key_of(right)))
    if node.op in _JOINS or (node.op == "Modulo" and _is_pattern(node.left)):
        result.differs = differing(left, *parts(right))
    if node.op == "Divide":
        tensors.divided(state, left, right, result, node, frame)
    _note_product(state, node, left, right, result, frame)
    return result


def _note_product(
    state: PathState, node: ir.BinOp, left: Value, right: Value, result: Value, frame: Frame
) -> None:
    if node.op == "MatrixMultiply":
        given = Arguments([left, right], {})
        state.note(Call, node, frame, MATMUL, None, given, result)


def _is_pattern(node: ir.Expr) -> bool:
    return isinstance(node, (ir.Constant, ir.FormattedString))


# Operators that join texts or paths.
_JOINS = ("Add", "Divide")


def _bounded_text(state: PathState, text: str, taint: Taint) -> Value:
    return Const(text, taint) if len(text) <= MAX_TEXT else state.unknown(taint)


def _look_formatted(state: PathState, value: Value, node: ir.Expr, frame: Frame) -> None:
    """Read the number of each tensor in ``"%.2f" % value``."""
    nodes, values = [node], [value]
    if isinstance(node, ir.Collection) and isinstance(value, Sequence):
        nodes, values = list(node.elements), value.items
    for each, place in zip(values, nodes, strict=False):
        tensors.look(state, each, place, frame)


def named(state: PathState, node: ir.NamedExpr, frame: Frame) -> Value:
    value = state.evaluate(node.value, frame)
    bind_target(state, node.target, value, frame)
    return value


def formatted(state: PathState, node: ir.FormattedString, frame: Frame) -> Value:
    """Evaluate an f-string, and read the number of each tensor in it."""
    values = [state.evaluate(value, frame) for value in node.values]
    for value, place in zip(values, node.values, strict=True):
        # A tensor with a format specification raises an error instead.
        bare = frame.unit.text[place.end : place.end + 1] in ("}", ")", ",")
        if not bare or tensors.look(state, value, place, frame) is value:
            tensors.operated(state, "format", (value,), place, frame)
    known = [value.value for value in values if isinstance(value, Const)]
    if len(known) == len(values) and len(node.literals) == len(values) + 1:
        pieces = [text + str(value) for text, value in zip(node.literals, known, strict=False)]
        return _bounded_text(state, "".join(pieces) + node.literals[-1], taint_of(*values))
    made = state.unknown(taint_of(*values), key=("text", *map(key_of, values)))
    made.site, made.differs = state.site(node, frame), _differing_text(node, values, frame)
    made.args = tuple(v for v in values if isinstance(v, Object) and _is_plain(v))
    return made


def _differing_text(node: ir.FormattedString, values: list[Value], frame: Frame) -> Object | None:
    """Return by what an f-string differs between ranks; a time may be formatted to its date."""
    text = frame.unit.text
    for value, place in zip(values, node.values, strict=True):
        end = text.find("}", place.end)
        specification = text[place.end : end] if text[place.end] == ":" else ""
        if "%" not in specification or is_fine(Const(specification)):
            source = differing(value)
            if source is not None:
                return source
    return None


def yield_(state: PathState, node: ir.Yield, frame: Frame) -> Value:
    """Evaluate ``yield``, ``yield from`` or ``await``.

    The first ``yield`` of a context manager runs the body of the ``with`` statement that entered
    it, see `Frame.on_yield`. A value that is yielded under a guard of the function's own may not be
    every element, so a loop over the generator cannot be taken to reach it in each iteration.
    """
    value = NONE if node.value is None else state.evaluate(node.value, frame)
    if node.kind == "await":
        return value
    if frame.on_yield is not None:
        run_body, frame.on_yield = frame.on_yield, None
        run_body(value)
    given = value
    if node.kind == "yield from":
        batches.note_iteration(state, node, followed(value), frame)
        given = element_of(state, followed(value))
    frame.yielded.append(given)
    if isinstance(given, Object) and len(state.guards) > frame.mark:
        state.trace.picked.add(given)
    return state.unknown()


def starred(state: PathState, node: ir.Starred, frame: Frame) -> Value:
    return state.evaluate(node.value, frame)


def opaque(state: PathState, node: ir.Opaque, frame: Frame) -> Value:
    values = [state.evaluate(child, frame) for child in node.children]
    return state.unknown(taint_of(*values), key=("opaque", *map(key_of, values)))


def _is_text(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, str)


def _is_plain(value: Object) -> bool:
    """True if a value in a text is a rank, or an attribute of which nothing else is known."""
    leaf = value.origin is Origin.PART and not (value.attrs or value.elements or value.cls)
    return value.role is not None or leaf


_CONSTANTS_AT_STEP = 16


def collection(state: PathState, node: ir.Collection, frame: Frame) -> Value:
    """Evaluate a list, tuple or set display."""
    made = Sequence([], kind=node.kind)
    for element in node.elements:
        if isinstance(element, ir.Starred):
            inner = followed(state.evaluate(element.value, frame))
            if not isinstance(inner, Sequence) or inner.rest:
                inner = Sequence([], [element_of(state, inner)])
            extend(state, made, inner)
        else:
            made.items.append(_plain(state, element) or state.evaluate(element, frame))
    made.taint, made.repeated = taint_of(*made.items, *made.rest), bool(made.rest)
    return made


def dict_display(state: PathState, node: ir.DictDisplay, frame: Frame) -> Value:
    made = Mapping({})
    for key_node, value_node in node.items:
        value = _plain(state, value_node) or state.evaluate(value_node, frame)
        if key_node is None:
            merge(made, followed(value))
            continue
        store_key(made, _plain(state, key_node) or state.evaluate(key_node, frame), value)
    made.taint = taint_of(*made.items.values(), *made.rest)
    return made


def _plain(state: PathState, node: ir.Expr) -> Const | None:
    """Return a constant in a display at a fraction of a step: tables have thousands of them."""
    if type(node) is not ir.Constant:
        return None
    state.constants += 1
    if not state.constants % _CONSTANTS_AT_STEP:
        state.count_step()
    return Const(node.value)


def comprehension(state: PathState, node: ir.Comprehension, frame: Frame) -> Value:
    """Evaluate a comprehension: element by element if it is short, else one for all."""
    inner = Frame(Scope({}, frame.scope, frame.unit), frame.unit, frame.function, frame.receiver)
    inner.loops = frame.loops + 1
    first, *others = node.clauses
    began = state.tick()
    source = followed(state.evaluate(first.iterable, frame))
    known = unrolled(source) if not others and not first.conditions else None
    if known is not None and node.kind != "dict":
        items = []
        for item in known:
            bind_target(state, first.target, item, inner)
            items.append(state.evaluate(node.element, inner))
        return Sequence(items, kind=node.kind)
    selective = _bind_clauses(state, node.clauses, source, inner)
    if node.key is not None:
        state.evaluate(node.key, inner)
    with state.under(_rank_tests(state, node.clauses, inner)):
        element = state.evaluate(node.element, inner)
    if isinstance(element, Parameters):
        taken = element.time < began and not element.lazy  # they are in a list from before
        lazy = node.kind == "generator" and not taken
        time = element.time if lazy or taken else state.tick()
        filtered = selective or element.filtered
        element = replace(element, time=time, lazy=lazy, filtered=filtered)
    if node.kind == "dict":
        return Mapping({}, [element], element.taint.without(Taint.ELEMENT))
    held = [element] if not others and not first.conditions and surely_any(source) else []
    taint = element.taint.without(Taint.ELEMENT)
    return Sequence(held, [element], node.kind, taint, repeated=True)


def _bind_clauses(
    state: PathState, clauses: tuple[ir.Clause, ...], source: Value, inner: Frame
) -> bool:
    """Bind the loop variables; True if a condition selects by more than ``requires_grad``."""
    selective = False
    for index, clause in enumerate(clauses):
        iterable = source if index == 0 else followed(state.evaluate(clause.iterable, inner))
        bind_target(state, clause.target, element_of(state, iterable), inner)
        for condition in clause.conditions:
            state.evaluate(condition, inner)
            attr = condition.attr if isinstance(condition, ir.Attribute) else ""
            selective |= attr != "requires_grad"
    return selective


def _rank_tests(state: PathState, clauses: tuple[ir.Clause, ...], inner: Frame) -> list[Guard]:
    """Return the guards of the conditions that distinguish ranks."""
    conditions = [condition for clause in clauses for condition in clause.conditions]
    tests = [(state.evaluate(condition, inner), condition) for condition in conditions]
    return [state.guard(t, at, True, inner) for t, at in tests if t.taint & Taint.RANK]
