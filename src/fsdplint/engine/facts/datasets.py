"""Whether a dataset is the same in every process."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    FunctionValue,
    Mapping,
    Method,
    Object,
    Origin,
    Partial,
    Sequence,
    Symbol,
    Taint,
    Value,
    class_names,
    followed,
    may_be,
    taint_of,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.data import (
    IN_ORDER,
    ROWS,
    draws_by_seed,
    is_fixed_dataset,
    is_tokenizer,
    may_differ,
    picks,
)


def is_fixed(program: Program, dataset: Object, seeded: bool) -> bool:
    """Whether every process surely gets the same samples of a dataset, in the same places."""
    if dataset.site is None:
        return False
    if _is_rows(dataset):
        return _are_fixed_rows(program, dataset)
    given = _given(dataset)
    if taint_of(*given) & Taint.RANK or may_differ(_surroundings(program, dataset.site)):
        return False
    if isinstance(dataset.cls, Symbol):
        return is_fixed_dataset(dataset.cls.name)
    if not isinstance(dataset.cls, ClassValue) or dataset.cls.opaque():
        return False
    if is_iterable(dataset):
        return _is_fixed_stream(program, dataset, dataset.cls, given)
    return _is_fixed_class(program, dataset.cls, seeded)


def streamed_rows(dataset: Value | None) -> Object | None:
    """The rows of `datasets` that a loader goes through one by one, without a sampler."""
    if not isinstance(dataset, Object):
        return None
    if _is_rows(dataset):
        return dataset if _is_streamed(dataset) else None
    held = [followed(value) for value in dataset.attrs.values()] if is_iterable(dataset) else []
    return next((each for each in held if isinstance(each, Object) and _is_rows(each)), None)


def is_iterable(dataset: Object) -> bool:
    """True if a dataset yields its samples in an order of its own, without a sampler."""
    return any(name.endswith("IterableDataset") for name in class_names(dataset.cls))


def _is_streamed(rows: Object) -> bool:
    """Whether rows have no places that a sampler may choose from."""
    above = rows.parent or next((each for each in rows.args[:1] if _is_rows(each)), None)
    if isinstance(above, Object):
        return _is_streamed(above)
    streaming = rows.keywords.get("streaming", Const(False))
    return not (isinstance(streaming, Const) and streaming.value is False)


def words(program: Program, path: str, node: ir.Node) -> str:
    """The text of a node without comments, and without the blanks that layout may put in."""
    code = re.sub(r"#[^\r\n]*", "", program.tree(path).slice(node))
    return re.sub(r"\s*([.(\[])\s*", r"\1", code)


def _surroundings(program: Program, site: Site) -> str:
    """The statement that makes a dataset."""
    tree = program.tree(site.path)
    return words(program, site.path, tree.statement(site.node))


def _given(dataset: Object) -> list[Value]:
    return [*dataset.args, *dataset.keywords.values(), *dataset.attrs.values()]


# Classes of the program


def _is_fixed_class(program: Program, cls: ClassValue, seeded: bool) -> bool:
    if not isinstance(cls.lookup("__getitem__"), FunctionValue):
        return False
    texts = [words(program, each.scope.unit.path, each.node) for each in _own(cls)]
    init = cls.attrs.get("__init__")
    if seeded and isinstance(init, FunctionValue):
        drawing = words(program, cls.scope.unit.path, init.function)
        if draws_by_seed(drawing):
            texts = [text.replace(drawing, "") for text in texts]
    return not any(map(may_differ, texts))


def _own(cls: ClassValue) -> list[ClassValue]:
    return [each for each in cls.lineage() if isinstance(each, ClassValue)]


def _is_fixed_stream(program: Program, stream: Object, cls: ClassValue, given: list[Value]) -> bool:
    """Whether an iterable surely gives what it makes of the same rows, one after the other."""
    if stream.open or not isinstance(cls.lookup("__iter__"), FunctionValue):
        return False
    texts = [words(program, each.scope.unit.path, each.node) for each in _own(cls)]
    if any(may_differ(text) or picks(text) for text in texts):
        return False
    held = {name for name, value in stream.attrs.items() if _is_rows(followed(value))}
    walked = all(_only_walks(program, each, held) for each in _own(cls))
    return bool(held) and walked and all(_is_alike(program, value) for value in given)


def _only_walks(program: Program, cls: ClassValue, held: set[str]) -> bool:
    """Whether a class does no more with attributes than to set them and to go through them."""
    tree = program.tree(cls.scope.unit.path)
    reads = [n for n in ir.walk(cls.node) if isinstance(n, ir.Attribute) and n.attr in held]
    return all(_walks(tree, node) for node in reads)


def _walks(tree: Tree, node: ir.Attribute) -> bool:
    around = tree.parent(node)
    if isinstance(around, ir.Argument):
        around = tree.parent(around)
    if isinstance(around, ir.Call):
        return ir.last_name(around.func) in IN_ORDER
    if isinstance(around, ir.Assign):
        return node in around.targets
    return isinstance(around, (ir.For, ir.Yield))


# Rows of Hugging Face's `datasets`


def _is_rows(value: Value) -> bool:
    return isinstance(value, Object) and ROWS in class_names(value.cls)


def _are_fixed_rows(program: Program, rows: Object) -> bool:
    """Whether every process loads the same rows, and makes the same of them."""
    if rows.parent is not None:
        return rows.origin is Origin.PART and _is_alike(program, rows.parent)
    divergent = rows.site is None or any(guard.divergent for guard in rows.site.guards)
    given = (*rows.args, *rows.keywords.values())
    return not (divergent or rows.open) and all(_is_alike(program, value) for value in given)


def _is_alike(program: Program, value: Value) -> bool:
    """Whether a value is known to be equal in every process."""
    return all(_is_one_alike(program, option) for option in may_be(value))


def _is_one_alike(program: Program, value: Value) -> bool:
    if value.taint & (Taint.RANK | Taint.OWN):
        return False
    if isinstance(value, Object):
        if _is_rows(value):
            return _are_fixed_rows(program, value)
        return _is_option(value) or any(map(is_tokenizer, class_names(value.cls)))
    if isinstance(value, Method) and value.function is not None:
        value = value.function
    if isinstance(value, FunctionValue):
        return not may_differ(words(program, value.scope.unit.path, value.function))
    if isinstance(value, (Sequence, Mapping, Partial)):
        return all(_is_alike(program, part) for part in _parts(value))
    return isinstance(value, Const)


def _is_option(value: Object) -> bool:
    """Whether a value is read from what the program was given, rather than made by a call."""
    return value.cls is None and value.made_by is None


def _parts(value: Sequence | Mapping | Partial) -> Iterator[Value]:
    if isinstance(value, Partial):
        yield from (value.function, *value.args, *value.keywords.values())
    elif isinstance(value, Sequence):
        yield from (*value.items, *value.rest)
    else:
        yield from (*value.items.values(), *value.rest)
