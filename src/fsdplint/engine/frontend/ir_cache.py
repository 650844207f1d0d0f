"""What texts were lowered to, by earlier runs and in this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b

from fsdplint.engine import ir
from fsdplint.engine.frontend.ir_json import Later, decoded, encoded


class IRCache:
    """IR as JSON by a digest of the text that it was lowered from.

    Attributes:
        before: of earlier runs.
        ahead: of this run, by other processes.
        awaited: returns when the top level of a text is among ``ahead``, if it will be.
        used: what this run asked for of these, and what it lowered itself.
    """

    def __init__(self, before: Mapping[str, str]) -> None:
        self.before = before
        self.ahead: dict[str, str] = {}
        self.awaited: Callable[[str], None] | None = None
        self.used: dict[str, str] = {}

    def knows(self, text: str) -> bool:
        """Whether an earlier run lowered the file that ``text`` is."""
        return _key("module", text) in self.before

    @property
    def has_news(self) -> bool:
        return not self.used.keys() <= self.before.keys()

    def module(self, text: str, later: Later) -> ir.LoweredSuite | None:
        """The top level of the file that ``text`` is, its suites lowered ``later``."""
        key = _key("module", text)
        if self.awaited and key not in self.before:
            self.awaited(text)
        return self._get(key, 0, later)

    def suite(self, text: str, start: int) -> ir.LoweredSuite | None:
        """The suite that ``text`` is, which stands at ``start`` in its file."""
        return self._get(_key("suite", text), start, _nothing)

    def keep_module(self, text: str, lowered: ir.LoweredSuite) -> None:
        self._put(_key("module", text), lowered, 0)

    def keep_suite(self, text: str, start: int, lowered: ir.LoweredSuite) -> None:
        self._put(_key("suite", text), lowered, start)

    def _get(self, key: str, start: int, later: Later) -> ir.LoweredSuite | None:
        row = self.used.get(key) or self.before.get(key) or self.ahead.get(key)
        if row is None:
            return None
        try:
            lowered = decoded(row, start, later)
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
    raise ValueError(f"no suite waits in another, as from {start} to {end}")
