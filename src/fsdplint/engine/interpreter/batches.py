"""Batches: where a program starts to go through a loader, and takes one by hand."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    Arguments,
    Const,
    Object,
    Value,
    class_names,
    contained,
    followed,
)
from fsdplint.knowledge.data import DATA_LOADERS


def note_iteration(
    state: PathState, node: ir.For | ir.Yield | ir.Call, iterable: Value, frame: Frame
) -> None:
    """Note a loop over a loader's batches, also if they are counted or in a progress bar.

    Or a ``yield from loader``, or an ``iter(loader)`` whose batches are taken by hand.
    """
    for source in _loaders(iterable):
        names: list[Value] = [Const(name) for name in _names_of(source, frame)]
        given = Arguments(names, {})
        state.note(Call, node, frame, "iterate", source, given, iterable)


def note_next(state: PathState, node: ir.Call, iterator: Value, frame: Frame) -> None:
    """Note that one more of a loader's batches is taken by hand."""
    for source in _loaders(iterator):
        state.note(Call, node, frame, "next batch", source, Arguments([], {}), iterator)


def _loaders(iterable: Value) -> Iterator[Object]:
    """Yield the loaders whose batches are the elements of an iterable."""
    held = [item for item in contained(iterable) if isinstance(item, Object)]
    elements = 0 if isinstance(iterable, Object) else 1
    around = dict.fromkeys(whole for item in held for whole in _around(item, elements))
    return (source for source in around if class_names(source.cls) & DATA_LOADERS)


def _around(item: Object, elements: int) -> Iterator[Object]:
    """Yield what an object is a part of, up to what it is an element of that many times.

    A loop over a batch is none over its loader.
    """
    for whole in (item, *item.ancestors()):
        yield whole
        elements -= whole.step.startswith("[")
        if elements < 0:
            return


def _names_of(value: Object, frame: Frame) -> list[str]:
    """Return the variables and attributes of ``self`` by which a function refers to an object."""
    owner = frame.receiver.attrs if isinstance(frame.receiver, Object) else {}
    own = [name for name, held in frame.scope.names.items() if followed(held) is value]
    return own + [f"self.{name}" for name, held in owner.items() if followed(held) is value]
