"""IR that was lowered before, by earlier runs or by other processes, as JSON.

A node is an array: the number of its kind, its span relative to the text that it was lowered from,
and its fields. An array that does not start with a number is a tuple. Reading it runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from operator import attrgetter
from typing import Any, get_args

from fsdplint.engine import ir

LowerSuite = Callable[[int, int], ir.LoweredSuite]

_KINDS: tuple[type[ir.Node], ...] = (
    *get_args(ir.Expr),
    *get_args(ir.Stmt),
    *(ir.Argument, ir.Clause, ir.Parameter, ir.Function, ir.WithItem, ir.Handler, ir.Pattern),
)
_SAME = -1  # instead of a kind: an earlier node, by its number


def _numbers() -> dict[type[ir.Node], tuple[int, Callable[[Any], Any]]]:
    """Return, by kind of node, its number and a getter of its span and fields."""
    return {
        kind: (number, attrgetter("start", "end", *ir.stored_names(kind)))
        for number, kind in enumerate(_KINDS)
    }


_NUMBERS = _numbers()


def encoded(lowered: ir.LoweredSuite, start: int) -> str:
    """Encode ``lowered``, from a text that starts at ``start``; deferred suites stay deferred.

    Raises:
        ValueError: something in it has no JSON form, or is nested too deeply.
    """
    encoder = _Encoder(start)
    try:
        row = [encoder.value(lowered.body), lowered.is_generator, lowered.exact]
        return json.dumps(row, separators=(",", ":"), check_circular=False)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def decoded(text: str, start: int, lower_suite: LowerSuite) -> ir.LoweredSuite:
    """Decode what `encoded` returned, for a text at ``start``.

    Raises:
        ValueError: it is not encoded IR.
    """
    decoder = _Decoder(start, lower_suite)
    try:
        body, is_generator, exact = json.loads(text)
        return ir.LoweredSuite(decoder.value(body), is_generator, exact)
    except (TypeError, LookupError, RecursionError) as error:
        raise ValueError("is no IR") from error


class _Encoder:
    """Encodes nodes, each once: operands of chained comparisons belong to two."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.numbers: dict[ir.Node, int] = {}

    def value(self, value: object) -> object:
        """Encode a node, a field of one, or a tuple; what JSON lacks becomes an object."""
        if type(value) is tuple:
            return [self.value(each) for each in value]
        if isinstance(value, ir.Node):
            return self.node(value)
        if value is None or isinstance(value, (str, int, float)):
            return value
        if isinstance(value, ir.Suite):
            return {"suite": self.suite(value)}
        if isinstance(value, bytes):
            return {"bytes": value.decode("latin-1")}
        assert isinstance(value, complex), value
        return {"complex": [value.real, value.imag]}

    def node(self, node: ir.Node) -> list[object]:
        if node in self.numbers:
            return [_SAME, self.numbers[node]]
        kind, fields = _NUMBERS[type(node)]
        start, end, *values = fields(node)
        row = [kind, start - self.start, end - self.start, *map(self.value, values)]
        self.numbers[node] = len(self.numbers)
        return row

    def suite(self, suite: ir.Suite) -> list[object]:
        span = [suite.start - self.start, suite.end - self.start]
        if not suite.is_lowered:
            return [*span]
        lowered = suite.lowered
        return [*span, self.value(lowered.body), lowered.is_generator, lowered.exact]


class _Decoder:
    """Decodes what `_Encoder` encodes, in its order."""

    def __init__(self, start: int, lower_suite: LowerSuite) -> None:
        self.start = start
        self.lower_suite = lower_suite
        self.nodes: list[ir.Node] = []

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            if value and type(value[0]) is int:
                return self.node(value)
            return tuple([self.value(each) for each in value])
        return self.other(**value) if kind is dict else value

    def node(self, row: list[Any]) -> ir.Node:
        if row[0] == _SAME:
            same: ir.Node = self.nodes[row[1]]
            return same
        kind, start, end, *values = row
        make: Callable[..., ir.Node] = _KINDS[kind]
        fields = [each if type(each) is str else self.value(each) for each in values]
        made = make(self.start + start, self.start + end, *fields)
        self.nodes.append(made)
        return made

    def other(self, **given: Any) -> object:
        ((kind, value),) = given.items()
        if kind == "suite":
            return self.suite(*value)
        return value.encode("latin-1") if kind == "bytes" else complex(*value)

    def suite(self, start: int, end: int, *lowered: Any) -> ir.Suite:
        start, end = self.start + start, self.start + end
        if not lowered:
            return ir.deferred_suite(start, end, self.lower_suite)
        body, is_generator, exact = lowered
        return ir.Suite(start, end, ir.LoweredSuite(self.value(body), is_generator, exact))


class IRCache:
    """Encoded IR by a digest of the text that it was lowered from.

    Attributes:
        earlier: rows of earlier runs.
        parallel: rows that other processes lowered in this run.
        wait_for: a function that waits while another process lowers a text.
        used: the rows that this run read, and those that it lowered itself.
    """

    def __init__(self, earlier: Mapping[str, str]) -> None:
        self.earlier = earlier
        self.parallel: dict[str, str] = {}
        self.wait_for: Callable[[str], None] | None = None
        self.used: dict[str, str] = {}

    def begin_run(self, room: int) -> None:
        """Keep the rows of earlier runs; if all take more characters, only those of the last."""
        rows = {**self.earlier, **self.used}
        if sum(map(len, rows.values())) > room:
            rows = self.used
        self.earlier, self.used, self.parallel = rows, {}, {}

    def has_module(self, text: str) -> bool:
        """True if an earlier run lowered the file with this text."""
        return _key("module", text) in self.earlier

    @property
    def has_new(self) -> bool:
        return not self.used.keys() <= self.earlier.keys()

    def module(self, text: str, lower_suite: LowerSuite) -> ir.LoweredSuite | None:
        """Return the top level of the file with this text; ``lower_suite`` lowers its suites."""
        key = _key("module", text)
        if self.wait_for and key not in self.earlier:
            self.wait_for(text)
        return self._get(key, 0, lower_suite)

    def suite(self, text: str, start: int) -> ir.LoweredSuite | None:
        """Return the suite with this text, which is at ``start`` in its file."""
        return self._get(_key("suite", text), start, _nothing)

    def add_module(self, text: str, lowered: ir.LoweredSuite) -> None:
        self._put(_key("module", text), lowered, 0)

    def add_suite(self, text: str, start: int, lowered: ir.LoweredSuite) -> None:
        self._put(_key("suite", text), lowered, start)

    def _get(self, key: str, start: int, lower_suite: LowerSuite) -> ir.LoweredSuite | None:
        row = self.used.get(key) or self.earlier.get(key) or self.parallel.get(key)
        if row is None:
            return None
        try:
            lowered = decoded(row, start, lower_suite)
        except ValueError:
            return None
        self.used[key] = row
        return lowered

    def _put(self, key: str, lowered: ir.LoweredSuite, start: int) -> None:
        try:
            self.used[key] = encoded(lowered, start)
        except ValueError:  # it is lowered again the next time
            return


def _key(kind: str, text: str) -> str:
    data = f"{kind} {text}".encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=16).hexdigest()


def _nothing(start: int, end: int) -> ir.LoweredSuite:
    """Reject a deferred suite inside a suite."""
    raise ValueError(f"no suite waits in another, as from {start} to {end}")
