"""Containers: loop variables, unpacking, copies, and stores of elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fsdplint.engine.interpreter.state import PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    ClassValue,
    Const,
    Mapping,
    Object,
    Origin,
    Parameters,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Value,
    choice,
    class_names,
    contained,
    followed,
    key_of,
)
from fsdplint.knowledge.data import DATA_LOADERS
from fsdplint.knowledge.modules import hugging_face_blocks

_MAX_UNROLLED = 8
MAX_NAMES = 40  # of attributes that a loop sets
MAX_ELEMENTS = 2_000
_MAX_SUBMODULES = 40

# The key of the element that represents all elements of an object.
EVERY = "*"
# The key of the element that represents a slice that the rank decides.
BY_RANK = ("rank",)
# The kind of the sequence that ``enumerate(…)`` is.
COUNTED = "enumerate"
_PLAIN_VIEWS = (".modules()", ".children()")
_VIEWS = (*_PLAIN_VIEWS, ".named_modules()", ".named_children()")


def element_of(state: PathState, value: Value) -> Value:
    """Return the value that represents every element of an iterable."""
    value = followed(value)
    if isinstance(value, Sequence):
        options = [*value.items, *value.rest]
        return choice(options) if options else state.unknown(Taint.ELEMENT)
    if isinstance(value, Mapping):
        return state.unknown(Taint.ELEMENT)
    if isinstance(value, Parameters):
        tensor = replace(value, time=state.tick() if value.lazy else value.time, lazy=False)
        tensor.named = False
        pair = Sequence([state.unknown(Taint.ELEMENT), tensor], kind="tuple")
        return pair if value.named else tensor
    if isinstance(value, Object):
        return _element_of_object(state, value)
    return state.unknown(Taint.ELEMENT, key=("element", key_of(value)))


def _element_of_object(state: PathState, value: Object) -> Value:
    if EVERY not in value.elements:
        constituents = container_items(value)
        if len(constituents) == 1:
            constituents[0].taint |= Taint.ELEMENT
            value.elements[EVERY] = constituents[0]
        else:
            cls = constituents[0].cls if constituents else None
            made = state.part(value, "[]", cls, Taint.ELEMENT)
            value.elements[EVERY] = _named(state, value, made)
    return value.elements[EVERY]


def _named(state: PathState, whole: Object, element: Object) -> Value:
    if whole.step in (".named_modules()", ".named_children()", ".items()"):
        return Sequence([state.unknown(Taint.ELEMENT), element], kind="tuple")
    return element


def container_items(value: Object) -> list[Object]:
    """Return the modules that a container was filled with, as far as they were seen."""
    found: list[Object] = []
    if class_names(value.cls) & DATA_LOADERS:
        return found  # its dataset is no batch
    for arg in (*value.args, value.attrs.get("*appended*")):
        arg = None if arg is None else followed(arg)
        items: list[Value] = []
        if isinstance(arg, Sequence):
            items = [*arg.items, *arg.rest]
        elif isinstance(arg, Mapping):
            items = [*arg.items.values(), *arg.rest]
        elif isinstance(arg, Object):
            items = [arg]
        found.extend(item for item in map(followed, items) if isinstance(item, Object))
    return found


def named_items(value: Object) -> dict[str, Object]:
    """Return the parts of a module dict by name."""
    known = followed(value.args[0]) if value.args else None
    if not isinstance(known, Mapping):
        return {}
    pairs = [(key, followed(item)) for key, item in known.items.items()]
    return {k: item for k, item in pairs if isinstance(k, str) and isinstance(item, Object)}


def is_repeated(value: Object) -> bool:
    """True if a container holds more than one block, by a loop or by number."""
    args = [followed(arg) for arg in value.args]
    if value.repeated or any(isinstance(arg, Sequence) and arg.repeated for arg in args):
        return True
    if any(isinstance(arg, Mapping) and arg.rest for arg in args):
        return True
    items = container_items(value)
    classes = {id(item.cls) for item in items if isinstance(item.cls, (ClassValue, Symbol))}
    return (
        len(items) > 1
        and len(classes) == 1
        and len(items) == sum(i.cls is items[0].cls for i in items)
    )


def unpacked(state: PathState, value: Value, count: int) -> list[Value]:
    """Return the values that ``count`` targets get from one value."""
    if isinstance(value, Sequence) and not value.rest and len(value.items) == count:
        return value.items
    if isinstance(value, (Sequence, Parameters, StateDict)):
        return [element_of(state, value)] * count
    if isinstance(value, Object):
        return [_position(state, value, index) for index in range(count)]
    return [state.unknown(value.taint) for _ in range(count)]


def _position(state: PathState, value: Object, index: int) -> Value:
    if index not in value.elements:
        if any(class_names(whole.cls) & DATA_LOADERS for whole in value.ancestors()):
            made = state.part(value, f"[{index}]")  # of a batch
        else:
            made = state.unknown(value.taint, key=("position", key_of(value), index))
        made.made_by = value.made_by
        value.elements[index] = made
    return value.elements[index]


def unrolled(value: Value, most: int = _MAX_UNROLLED) -> list[Value] | None:
    """Return the elements of a short sequence, or the keys of a mapping, that are all known."""
    if not isinstance(value, (Sequence, Mapping)) or value.rest or len(value.items) > most:
        return None
    return value.items if isinstance(value, Sequence) else [Const(key) for key in value.items]


def kinds(state: PathState, value: Value) -> list[Value]:
    """Return one element per kind that an iterable holds, e.g. for ``[*m.layers, *m.extra]``."""
    if isinstance(value, Sequence) and value.rest and len(value.rest) <= _MAX_UNROLLED:
        return [*value.items[:_MAX_UNROLLED], *value.rest]
    return [element_of(state, value)]


def submodules(state: PathState, view: Value) -> list[Value]:
    """Return the elements of ``model.modules()`` if the model's construction was followed.

    Or of ``model.children()``. Empty if it was not, or if there are too many; ``named_modules()``
    gives pairs, and so does ``enumerate(…)`` of either.
    """
    if isinstance(view, Sequence) and view.kind == COUNTED:
        return [
            Sequence([state.unknown(Taint.ELEMENT), item], kind="tuple")
            for item in submodules(state, view_of(view))
        ]
    whole = view.parent if isinstance(view, Object) else None
    if whole is None or not isinstance(view, Object) or view.step not in _VIEWS:
        return []
    own = "children" in view.step
    found = list(dict.fromkeys(children(whole) if own else composed(whole)))
    if not 1 < len(found) <= _MAX_SUBMODULES:
        return []
    others = [element_of(state, view)] if own and _may_hold_more(whole) else []
    if view.step in _PLAIN_VIEWS:
        return [*found, *others]
    pairs = [Sequence([state.unknown(Taint.ELEMENT), item], kind="tuple") for item in found]
    return [*pairs, *others]


def is_submodule(element: Object) -> bool:
    """True if an object is an element of ``model.children()`` or a similar view."""
    view = element.parent
    return view is not None and view.step in _VIEWS and surely_any(view)


def surely_any(view: Value) -> bool:
    """True if ``model.children()``, all parameters or a similar view surely has an element."""
    if isinstance(view, Parameters):
        return not view.filtered
    whole = view.parent if isinstance(view, Object) else None
    if whole is None or not isinstance(view, Object) or view.step not in _VIEWS:
        return False
    has_blocks = any(hugging_face_blocks(name) is not None for name in class_names(whole.cls))
    return "modules" in view.step or has_blocks or next(children(whole), None) is not None


def view_of(iterable: Value) -> Value:
    """Return the view in ``enumerate(model.modules())``, and any other iterable as it is."""
    if not isinstance(iterable, Sequence) or iterable.kind != COUNTED:
        return iterable
    items = [item for item in contained(iterable) if isinstance(item, Object)]
    views = [item.parent for item in items if item.parent and item.parent.step in _VIEWS]
    return views[0] if views and views[0] is not None else NONE


def composed(module: Object, depth: int = 0) -> Iterator[Object]:
    """Yield a module and the modules that it is known to consist of, some perhaps repeatedly."""
    yield module
    for part in children(module) if depth < 8 else ():
        yield from composed(part, depth + 1)


def children(module: Object) -> Iterator[Object]:
    """Yield the modules that a module is known to hold itself."""
    held = [followed(value) for value in module.attrs.values()]
    parts = [part for part in held if isinstance(part, Object) and part.parent is module]
    for part in dict.fromkeys([*parts, *container_items(module)]):
        if part.origin is Origin.ALLOCATED or part.cls is not None:
            yield part


def _may_hold_more(module: Object) -> bool:
    """Whether an attribute holds what may be a module, and is not known to be one."""
    if isinstance(module.cls, ClassValue) and module.cls.opaque():
        return True
    held = [followed(value) for name, value in module.attrs.items() if name.isidentifier()]
    parts = [value for value in held if isinstance(value, Object)]
    return any(part.cls is None and part.origin is not Origin.ALLOCATED for part in parts)


def copied(value: Value) -> Value:
    """Return ``value``, or a copy of a container that is filled independently."""
    value = followed(value)
    if isinstance(value, Sequence):
        return Sequence(
            list(value.items), list(value.rest), value.kind, value.taint, value.repeated
        )
    if isinstance(value, Mapping):
        return replace(value, items=dict(value.items), rest=list(value.rest))
    return value


def materialized(state: PathState, value: Value, depth: int = 0) -> Value:
    """Return ``list(value)``: generators of parameters take the tensors now."""
    value = followed(value)
    if isinstance(value, Parameters) and value.lazy:
        return replace(value, time=state.tick(), lazy=False)
    if isinstance(value, Sequence) and not _holds_lazy(value):
        return Sequence(list(value.items), list(value.rest), "list", value.taint, value.repeated)
    if isinstance(value, Sequence) and depth < 4:  # a list may hold itself
        items = [materialized(state, item, depth + 1) for item in value.items]
        rest = [materialized(state, item, depth + 1) for item in value.rest]
        return Sequence(items, rest, "list", value.taint, value.repeated)
    return value


def _holds_lazy(value: Value) -> bool:
    return any(isinstance(item, Parameters) and item.lazy for item in contained(value))


def extend(state: PathState, target: Sequence, more: Sequence, *, in_loop: bool = False) -> None:
    """Execute ``target += more``; a sequence of too many elements becomes unknown."""
    known, rest = (target.items, target.rest) if not in_loop else (target.rest, target.rest)
    if len(target.items) + len(target.rest) + len(more.items) + len(more.rest) > MAX_ELEMENTS:
        target.rest[:] = [state.unknown(Taint.ELEMENT)]
        return
    known.extend([*more.items])
    rest.extend([*more.rest])


def merge(target: Mapping, value: Value) -> None:
    """Execute ``target.update(value)``."""
    if isinstance(value, Mapping):
        target.items.update(value.items)
        target.rest.extend(value.rest[: MAX_ELEMENTS - len(target.rest)])
    else:
        target.rest.append(value)


def store_key(target: Mapping, key: Value, value: Value) -> None:
    if isinstance(key, Const):
        target.items[hashable(key.value)] = value
    else:
        target.rest.append(value)


def fill_missing(state: PathState, target: Mapping, key: Value) -> None:
    """Give a key of a ``defaultdict`` that may not be there its first value, which stays there."""
    there = isinstance(key, Const) and hashable(key.value) in target.items
    if target.factory is not None and not target.rest and not there:
        state.note_change()
        store_key(target, key, target.factory())


def hashable(value: object) -> object:
    return value if isinstance(value, (str, bytes, int, float, bool, type(None))) else repr(value)


# The attribute of an object that holds the keys that were taken out of it.
_POPPED = "*popped*"


def pop(owner: Object, key: Value) -> None:
    """Note that ``key`` was popped from an object of unknown class."""
    if isinstance(key, Const) and isinstance(key.value, str):
        gone = owner.attrs.setdefault(_POPPED, Mapping({}, []))
        assert isinstance(gone, Mapping)
        gone.items[key.value] = key


def is_popped(owner: Object, key: Value) -> bool:
    """True if ``key`` was popped from an object."""
    gone = owner.attrs.get(_POPPED)
    return isinstance(gone, Mapping) and isinstance(key, Const) and key.value in gone.items


def restore(owner: Object, key: Value) -> None:
    """Forget that ``key`` was popped; if the key is unknown, forget all popped keys."""
    gone = owner.attrs.get(_POPPED)
    if isinstance(gone, Mapping) and isinstance(key, Const):
        gone.items.pop(key.value, None)
    elif isinstance(gone, Mapping):
        gone.items.clear()
