"""YAML and JSON as nodes that know their place in the text.

The nodes are what PyYAML composes, which is the parser that accelerate and transformers read their
settings with. Nothing is constructed but plain values: a tag of another kind is an unknown value.
An alias is the node that it refers to, so that no text can grow by its aliases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fsdplint.files.invalid import InvalidSyntax

if TYPE_CHECKING:
    from yaml.nodes import Node as YamlNode

MOST = 1_000_000
"""Characters of the longest text that is parsed; settings have a hundredth of that."""


class _Unknown(Enum):
    UNKNOWN = auto()


UNKNOWN: Final = _Unknown.UNKNOWN
"""The value of a scalar that a template or a tag of another tool leaves open."""

_OPEN = re.compile(r"\$\{|\{\{|\{%|<%|%\(")
"""What marks a text that another tool fills in: Hydra's and a shell's `${…}`, Jinja, ERB, `%`."""
_TAB_OR_STRING = re.compile(r'"(?:\\.|[^"\\])*"|\t')


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


def parse(text: str, path: str) -> Node | None:
    """Return the root of ``text``, JSON if the path ends so; None if there is not one document.

    Raises:
        InvalidSyntax: it is not YAML, or not JSON.
    """
    import yaml

    if len(text) > MOST:
        raise InvalidSyntax(f"it has more than {MOST:,} characters", 0)
    if path.endswith(".json"):
        _expect_json(text)
        # YAML has JSON's grammar but for tabs between tokens.
        text = _TAB_OR_STRING.sub(lambda found: found[0].replace("\t", " "), text)
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        return _Reader(text).node(roots[0]) if len(roots) == 1 else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(f"{error.problem or error.context}".split())
        raise InvalidSyntax(reason, mark.index if mark else 0) from error
    except yaml.reader.ReaderError as error:
        raise InvalidSyntax(error.reason, max(error.position, 0)) from error
    except RecursionError as error:
        raise InvalidSyntax("it is nested too deeply", 0) from error


def is_template(text: str) -> bool:
    """Return whether another tool fills in parts of ``text`` before it is read."""
    return _OPEN.search(text) is not None


def values(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Scalar]]:
    """Yield the scalars of a node, each with the keys and indices that lead to it."""
    if isinstance(node, Scalar):
        yield path, node
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from values(item, (*path, str(index)))
    else:
        for entry in node.entries:
            yield from values(entry.value, (*path, str(entry.key.value)))


def _expect_json(text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidSyntax(error.msg, error.pos) from error
    except RecursionError as error:
        raise InvalidSyntax("it is nested too deeply", 0) from error


def _last(end: int, inside: list[Node] | tuple[Node, ...]) -> int:
    """Return where a block ends, which PyYAML says to be where the next token begins."""
    return inside[-1].end if inside else end


class _Reader:
    """Turns nodes of PyYAML into ours, each once."""

    def __init__(self, text: str) -> None:
        from yaml.constructor import SafeConstructor

        self._text = text
        self._values: Any = SafeConstructor()
        self._known: dict[int, Node] = {}
        self._open: set[int] = set()

    def node(self, node: YamlNode) -> Node:
        """Return our node; what contains itself is an unknown scalar there."""
        if id(node) in self._open:
            return Scalar(node.start_mark.index, node.start_mark.index, UNKNOWN, "")
        if id(node) not in self._known:
            self._open.add(id(node))
            self._known[id(node)] = self._made(node)
            self._open.remove(id(node))
        return self._known[id(node)]

    def _made(self, node: YamlNode) -> Node:
        from yaml.nodes import MappingNode, ScalarNode, SequenceNode

        start, end = node.start_mark.index, node.end_mark.index
        if isinstance(node, SequenceNode):
            items = tuple(map(self.node, node.value))
            last = end if node.flow_style else _last(end, items)
            return Sequence(start, last, items, bool(node.flow_style))
        if isinstance(node, MappingNode):
            pairs = [(self.node(key), self.node(value)) for key, value in node.value]
            entries = tuple(Entry(k, v) for k, v in pairs if isinstance(k, Scalar))
            merged = len(entries) < len(pairs) or any(
                key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value
            )
            last = end if node.flow_style else _last(end, [value for _, value in pairs])
            return Mapping(start, last, entries, bool(node.flow_style), merged)
        assert isinstance(node, ScalarNode)
        quote = node.style if node.style in ("'", '"') else ""
        return Scalar(start, end, self._value(node), quote)

    def _value(self, node: YamlNode) -> object:
        import yaml

        if isinstance(node.value, str) and _OPEN.search(node.value):
            return UNKNOWN
        try:
            return self._values.construct_object(node)
        except (yaml.constructor.ConstructorError, ValueError, OverflowError):
            return UNKNOWN
