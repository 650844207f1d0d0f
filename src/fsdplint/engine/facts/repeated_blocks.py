"""Repeated blocks of a model, read off the objects its construction left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.interpreter.elements import container_items, is_repeated, named_items
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Origin,
    Symbol,
    class_names,
    followed,
    must_be,
)
from fsdplint.knowledge.modules import (
    BLOCK_LAYERS,
    CONTAINERS,
    LAYER_COUNTS,
    MODULE_DICT,
    REPEATED_BLOCKS,
    hugging_face_blocks,
)
from fsdplint.knowledge.names import MODULE

_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Blocks:
    """Repeated blocks of a model.

    Attributes:
        path: of attributes from the model to what holds them, e.g. "layers" or "stages.values()".
        named: the path leads to a model of transformers, "" if that is the model itself, whose
            class a checkpoint decides: it names the classes of its blocks.
    """

    path: str
    named: bool = False


def repeated_blocks(module: Object) -> tuple[tuple[Blocks, ...], str] | None:
    """The repeated blocks of a model and its class name, None if it is not known to have any."""
    if isinstance(module.cls, Symbol):
        if _has_one_layer(module):
            return None
        found = tuple(_in_library(module.cls.name, ()))
        return (found, module.cls.name.rpartition(".")[2]) if found else None
    if not isinstance(module.cls, ClassValue):
        return None
    found = tuple(dict.fromkeys(_blocks(module, (), set())))
    return (found, module.cls.node.name) if found else None


def _inherited(module: Object) -> Iterator[Blocks]:
    """The blocks that a class of a library gives its subclass, but for attributes set anew."""
    if isinstance(module.cls, ClassValue):
        bases = (base.name for base in module.cls.lineage() if isinstance(base, Symbol))
        found = (blocks for name in bases for blocks in _in_library(name, ()))
        yield from (each for each in found if not _sets(module, each.path.partition(".")[0]))


def _sets(module: Object, name: str) -> bool:
    """Whether a module has an attribute that is more than a part of it which was read."""
    value = followed(module.attrs[name]) if name in module.attrs else None
    return value is not None and not (isinstance(value, Object) and value.origin is Origin.PART)


def _in_library(name: str, above: tuple[str, ...]) -> Iterator[Blocks]:
    """The blocks of a library's model by its canonical name."""
    paths = hugging_face_blocks(name)
    if paths == ():
        yield Blocks(".".join(above), named=True)
    for path in paths or REPEATED_BLOCKS.get(name, ()):
        yield Blocks(".".join((*above, path)))


def _has_one_layer(module: Object) -> bool:
    """Whether a library's model is made, or configured, with a single block."""
    given = map(followed, (*module.args, *module.keywords.values()))
    made = [module, *(value for value in given if isinstance(value, Object))]
    counts = [value for each in made for k, value in each.keywords.items() if k in LAYER_COUNTS]
    return any(isinstance(count, Const) and count.value == 1 for count in map(must_be, counts))


def _blocks(module: Object, above: tuple[str, ...], seen: set[Object]) -> Iterator[Blocks]:
    """The blocks below a module, each module looked into once."""
    if module in seen or len(above) > _MAX_DEPTH:
        return
    seen.add(module)
    yield from (Blocks(".".join((*above, each.path))) for each in _inherited(module))
    for name, value in module.attrs.items():
        part = followed(value)
        if not isinstance(part, Object) or not name.isidentifier() or part.parent is not module:
            continue
        path = (*above, name)
        library = part.cls.name if isinstance(part.cls, Symbol) else ""
        if library in CONTAINERS:
            yield from map(Blocks, _container_paths(part, path, seen))
        elif isinstance(part.cls, ClassValue) or library == MODULE:
            yield from _blocks(part, path, seen)
        else:
            yield from _in_library(library, path)


def _container_paths(part: Object, path: tuple[str, ...], seen: set[Object]) -> Iterator[str]:
    named = named_items(part)
    if is_repeated(part) and any(map(_is_block, container_items(part))):
        values = isinstance(part.cls, Symbol) and part.cls.name == MODULE_DICT
        yield ".".join(path) + (".values()" if values else "")
    elif named:
        for name, item in named.items():
            if isinstance(item.cls, Symbol) and item.cls.name in CONTAINERS:
                yield from _container_paths(item, (*path, name), seen)


def _is_block(item: Object) -> bool:
    if isinstance(item.cls, Symbol):
        return item.cls.name in BLOCK_LAYERS
    return MODULE in class_names(item.cls)
