"""Repeated blocks of a model, read off the objects its construction left behind."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine.interpreter.elements import container_items, is_repeated, named_items
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
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


def block_containers(module: Object) -> tuple[tuple[str, ...], str] | None:
    """The attribute paths of a model's block containers and its class name.

    None if the model is not known to repeat blocks; no paths where they cannot be read.
    """
    if isinstance(module.cls, Symbol):
        if _has_one_layer(module):
            return None
        known = hugging_face_blocks(module.cls.name)
        name = module.cls.name.rpartition(".")[2]
        if known is None and module.cls.name in REPEATED_BLOCKS:
            known = REPEATED_BLOCKS[module.cls.name]
        return None if known is None else (known, name)
    if not isinstance(module.cls, ClassValue):
        return None
    found = tuple(dict.fromkeys(_paths(module, (), set())))
    return (found, module.cls.node.name) if found else None


def _has_one_layer(module: Object) -> bool:
    """Whether a library's model is made, or configured, with a single block."""
    given = map(followed, (*module.args, *module.keywords.values()))
    made = [module, *(value for value in given if isinstance(value, Object))]
    counts = [value for each in made for k, value in each.keywords.items() if k in LAYER_COUNTS]
    return any(isinstance(count, Const) and count.value == 1 for count in map(must_be, counts))


def _paths(module: Object, above: tuple[str, ...], seen: set[Object]) -> Iterator[str]:
    """The paths of block containers below a module, each module looked into once."""
    if module in seen or len(above) > _MAX_DEPTH:
        return
    seen.add(module)
    for name, value in module.attrs.items():
        part = followed(value)
        if not isinstance(part, Object) or not name.isidentifier() or part.parent is not module:
            continue
        path = (*above, name)
        library = part.cls.name if isinstance(part.cls, Symbol) else ""
        if library in CONTAINERS:
            yield from _container_paths(part, path, seen)
        elif library in REPEATED_BLOCKS:
            yield from (".".join((*path, inner)) for inner in REPEATED_BLOCKS[library])
        elif hugging_face_blocks(library):
            yield from (".".join((*path, inner)) for inner in hugging_face_blocks(library) or ())
        elif isinstance(part.cls, ClassValue) or library == MODULE:
            yield from _paths(part, path, seen)


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
