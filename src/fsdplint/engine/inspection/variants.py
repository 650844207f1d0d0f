"""The differences between the paths of an entry and its first one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from fsdplint.engine import ir
from fsdplint.engine.inspection.outline import Step, written
from fsdplint.engine.interpreter.events import Trace
from fsdplint.engine.program import Program
from fsdplint.finding import Span

_MAX_WORDS = 3

# The text of a condition by its key, and whether the text is true when the condition is.
_Words = dict[object, tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A path, by how it differs from the first one of its entry.

    Attributes:
        conditions: the conditions for it, e.g. "`args.compile` is false"; may be empty.
        added: events that the first path does not have.
        removed: events that only the first path has.
    """

    conditions: tuple[str, ...]
    added: tuple[Step, ...]
    removed: tuple[Step, ...]


def variants(
    program: Program, traces: Sequence[Trace], steps: Sequence[tuple[Step, ...]]
) -> Iterator[Variant]:
    """Yield the paths that differ from the first one in their events."""
    words = _condition_texts(program, traces)
    first = {_identity(step): step for step in steps[0] if step.is_event}
    seen: set[frozenset[object]] = {frozenset(first)}
    for trace, own in zip(traces[1:], steps[1:], strict=True):
        events = {_identity(step): step for step in own if step.is_event}
        if frozenset(events) in seen:
            continue
        seen.add(frozenset(events))
        added = tuple(step for key, step in events.items() if key not in first)
        removed = tuple(step for key, step in first.items() if key not in events)
        parts = (
            _outermost_differences(steps[0], own)
            or list(_decisions_changed(words, traces[0], trace))[:_MAX_WORDS]
        )
        yield Variant(tuple(dict.fromkeys(parts)), added, removed)


def _outermost_differences(first: Sequence[Step], own: Sequence[Step]) -> list[str]:
    """Return the outermost branches that only one of two paths takes."""
    return [*_branches_added(own, first, True), *_branches_added(first, own, False)]


def _branches_added(steps: Sequence[Step], others: Sequence[Step], holds: bool) -> Iterator[str]:
    """Yield the outermost branches of one path that another does not take, as conditions."""
    known = {_identity(step) for step in others if step.kind == "branch"}
    inside: int | None = None
    for step in steps:
        if inside is not None and step.depth > inside:
            continue
        inside = None
        word, _, text = step.text.partition(" ")
        if step.kind != "branch" or _identity(step) in known:
            continue
        if word in ("if", "unless"):
            inside = step.depth
            yield f"`{text}` is {'true' if holds is (word == 'if') else 'false'}"
        elif word == "case" and holds:  # no other case is taken then
            inside = step.depth
            yield f"`{step.text}` is taken"


def _identity(step: Step) -> tuple[str, Span, str]:
    return step.kind, step.span, step.note


def _condition_texts(program: Program, traces: Iterable[Trace]) -> _Words:
    """Return the texts of the conditions that can be decided, by key."""
    words: _Words = {}
    for trace in traces:
        for event in (*trace.events, *trace.escapes):
            for guard in event.site.guards:
                if isinstance(guard.test, get_args(ir.Expr)):
                    _name_conditions(program, guard.path, guard.test, guard.key, words)
    return words


def _name_conditions(
    program: Program, path: str, node: ir.Node, key: object, words: _Words
) -> None:
    """Add the text of a condition, without negation, and of its operands."""
    same = True
    if isinstance(node, ir.Not):
        node, same = node.operand, False
    while isinstance(key, tuple) and len(key) == 2 and key[0] == "not":
        key, same = key[1], not same
    if isinstance(node, ir.BoolOp) and isinstance(key, tuple) and key[0] == node.op:
        _name_conditions(program, path, node.left, key[1], words)
        _name_conditions(program, path, node.right, key[2], words)
    words.setdefault(key, (written(program, path, node), same))


def _decisions_changed(words: _Words, first: Trace, other: Trace) -> Iterator[str]:
    """Yield the decisions of a path that differ from those of the first one."""
    before = dict(first.decisions)
    for key, outcome in other.decisions:
        if before.get(key) is not outcome and key in words:
            text, same = words[key]
            yield f"`{text}` is {'true' if outcome is same else 'false'}"
