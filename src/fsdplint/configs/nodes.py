"""Nodes of YAML and JSON that know their place in the text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias


class _Unknown(Enum):
    UNKNOWN = auto()


UNKNOWN: Final = _Unknown.UNKNOWN
"""The value of a scalar that a template or a tag of another tool leaves open."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar from ``start`` up to ``end``.

    Attributes:
        value: None, a bool, a number or a string as YAML 1.1 reads it, or `UNKNOWN`.
        quote: the quote that it is in, "" if it is plain or a block.
    """

    start: int
    end: int
    value: object
    quote: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of nodes, ``flow`` if it is in brackets."""

    start: int
    end: int
    items: tuple[Node, ...]
    flow: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value."""

    key: Scalar
    value: Node

    @property
    def name(self) -> str:
        """The key, "" if it is no string."""
        return self.key.value if isinstance(self.key.value, str) else ""

    @property
    def start(self) -> int:
        """Where the key begins."""
        return self.key.start

    @property
    def end(self) -> int:
        """Where the value ends."""
        return max(self.key.end, self.value.end)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Entries in the order of the text, ``flow`` if they are in braces.

    Attributes:
        merged: whether it merges other mappings (`<<`), so that it may have more entries.
    """

    start: int
    end: int
    entries: tuple[Entry, ...]
    flow: bool
    merged: bool

    def get(self, name: str) -> Entry | None:
        """Return the entry of a key; of several the last, which is the one that counts."""
        return next((each for each in reversed(self.entries) if each.name == name), None)


Node: TypeAlias = Scalar | Sequence | Mapping


def values(node: Node, without: Collection[int] = ()) -> Iterator[tuple[tuple[str, ...], Scalar]]:
    """Yield the scalars of a node, each with the keys and indices that lead to it.

    What aliases refer to is looked at once.

    Args:
        without: the identities of nodes to leave out.
    """
    seen = set(without)
    left: list[tuple[tuple[str, ...], Node]] = [((), node)]
    while left:
        path, each = left.pop()
        if isinstance(each, Scalar):
            if id(each) not in without:
                yield path, each
        elif id(each) not in seen:
            seen.add(id(each))
            left += [((*path, name), child) for name, child in children(each)]


def children(node: Sequence | Mapping) -> Iterator[tuple[str, Node]]:
    """Yield the nodes in a node, each with its key or index."""
    if isinstance(node, Sequence):
        yield from ((str(index), item) for index, item in enumerate(node.items))
    else:
        yield from ((str(entry.key.value), entry.value) for entry in node.entries)
