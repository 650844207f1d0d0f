"""Parse YAML and JSON into nodes that know their place in the text.

The nodes are what PyYAML composes, which is the parser that accelerate and transformers read their
settings with. Nothing is constructed but plain values: a tag of another kind is an unknown value.
An alias is the node that it refers to, so that no text can grow by its aliases.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from fsdplint.configs.nodes import UNKNOWN, Entry, Mapping, Node, Scalar, Sequence
from fsdplint.files.invalid import InvalidSyntax

MOST = 1_000_000
"""Characters of the longest text that is parsed; settings have a hundredth of that."""
_MOST_BITS = 64
"""Longer integers are no settings; Python cannot even print those of thousands of digits."""
_OPEN = re.compile(r"\$\{|\{\{|\{%|<%|%\(")
"""What marks a text that another tool fills in: Hydra's and a shell's `${…}`, Jinja, ERB, `%`."""
_TAB_OR_STRING = re.compile(r'"(?:\\.|[^"\\])*"|\t')


def parse(text: str, path: str) -> Node | None:
    """Return the root of ``text``, JSON if the path ends so; None if there is not one document.

    Raises:
        InvalidSyntax: it is not YAML, or not JSON.
    """
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


def _expect_json(text: str) -> None:
    try:
        json.loads(text, parse_int=str)  # int() refuses thousands of digits
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
        self._text = text
        self._values: Any = yaml.constructor.SafeConstructor()
        self._known: dict[int, Node] = {}
        self._open: set[int] = set()

    def node(self, node: yaml.Node) -> Node:
        """Return our node; what contains itself is an unknown scalar there."""
        if id(node) in self._open:
            return Scalar(node.start_mark.index, node.start_mark.index, UNKNOWN, "")
        if id(node) not in self._known:
            self._open.add(id(node))
            self._known[id(node)] = self._made(node)
            self._open.remove(id(node))
        return self._known[id(node)]

    def _made(self, node: yaml.Node) -> Node:
        start, end = node.start_mark.index, node.end_mark.index
        if isinstance(node, yaml.SequenceNode):
            items = tuple(map(self.node, node.value))
            last = end if node.flow_style else _last(end, items)
            return Sequence(start, last, items, bool(node.flow_style))
        if isinstance(node, yaml.MappingNode):
            pairs = [(self.node(key), self.node(value)) for key, value in node.value]
            entries = tuple(Entry(k, v) for k, v in pairs if isinstance(k, Scalar))
            merged = len(entries) < len(pairs) or any(
                key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value
            )
            last = end if node.flow_style else _last(end, [value for _, value in pairs])
            return Mapping(start, last, entries, bool(node.flow_style), merged)
        assert isinstance(node, yaml.ScalarNode)
        quote = node.style if node.style in ("'", '"') else ""
        if node.style in ("|", ">"):  # PyYAML has the line ends behind a block in it.
            end = start + len(self._text[start:end].rstrip())
        return Scalar(start, end, self._value(node), quote)

    def _value(self, node: yaml.Node) -> object:
        if isinstance(node.value, str) and _OPEN.search(node.value):
            return UNKNOWN
        try:
            value = self._values.construct_object(node)
        except (yaml.constructor.ConstructorError, ValueError, OverflowError):
            return UNKNOWN
        huge = isinstance(value, int) and value.bit_length() > _MOST_BITS
        return UNKNOWN if huge else value
