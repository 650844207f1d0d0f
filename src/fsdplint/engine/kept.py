"""What texts were lowered to, by earlier runs and in this one."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from fsdplint.engine import ir
from fsdplint.engine.ir_json import Later, decoded, encoded


class Kept:
    """IR as JSON by a digest of the text that it was lowered from.

    Attributes:
        before: of earlier runs.
        used: of these what this run asked for, and what it lowered itself.
    """

    def __init__(self, before: Mapping[str, str]) -> None:
        self.before = before
        self.used: dict[str, str] = {}

    @property
    def has_news(self) -> bool:
        return not self.used.keys() <= self.before.keys()

    def module(self, text: str, later: Later) -> ir.LoweredSuite | None:
        """The top level of the file that ``text`` is, its suites lowered ``later``."""
        return self._get(_key("module", text), 0, later)

    def suite(self, text: str, start: int) -> ir.LoweredSuite | None:
        """The suite that ``text`` is, which stands at ``start`` in its file."""
        return self._get(_key("suite", text), start, _nothing)

    def keep_module(self, text: str, lowered: ir.LoweredSuite) -> None:
        self._put(_key("module", text), lowered, 0)

    def keep_suite(self, text: str, start: int, lowered: ir.LoweredSuite) -> None:
        self._put(_key("suite", text), lowered, start)

    def _get(self, key: str, start: int, later: Later) -> ir.LoweredSuite | None:
        row = self.used.get(key) or self.before.get(key)
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
