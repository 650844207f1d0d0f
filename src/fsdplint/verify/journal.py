"""A rank's events on the disk: one JSON line each, readable after a crash and while it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fsdplint.verify import events
from fsdplint.verify.events import Event

_NEWLINE = b"\n"
_MOST = 1 << 16
"""Bytes of an end; a script may print without one."""


def last(path: Path) -> str:
    """Return the end of a text, whatever bytes are in it."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST))
        return file.read(_MOST).decode("utf-8", errors="replace")


def cut(path: Path) -> None:
    """Remove a text that others append to, but for its end, which `whole_end` returns."""
    _before(path).write_text(last(path), "utf-8")
    os.truncate(path, 0)


def whole_end(path: Path) -> str:
    """Return the end of a text that may have been cut."""
    before = _before(path)
    return ((last(before) if before.exists() else "") + last(path))[-_MOST:]


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


class Tail:
    """The lines of a file that others append to, each one given out once."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""

    def lines(self) -> list[str]:
        """Return the lines completed since the last call; one cut short waits for its end."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(new)
        complete, newline, rest = new.rpartition(_NEWLINE)
        if not newline:
            self._rest += new
            return []
        text, self._rest = self._rest + complete, rest
        return text.decode("utf-8", errors="replace").split("\n")


def encode(event: Event) -> str:
    """Return the event as one line of JSON."""
    return json.dumps({"event": type(event).__name__, **_members(event)}, default=_members)


def _members(value: Any) -> dict[str, Any]:
    # `asdict` also copies every value, which takes four times as long.
    return {each.name: getattr(value, each.name) for each in fields(value)}


def read(path: Path) -> Iterator[Event]:
    """Yield a rank's events; a last line cut short by a crash is left out."""
    for line in Tail(path).lines():
        record = json.loads(line)
        yield _build(getattr(events, record.pop("event")), record)


def _build(kind: Any, value: Any) -> Any:
    """Turn JSON back into the dataclass, tuple or plain value that `kind` names."""
    if value is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        return _build(next(arm for arm in get_args(kind) if arm is not type(None)), value)
    if get_origin(kind) is tuple:
        return tuple(_build(get_args(kind)[0], item) for item in value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{f.name: _build(hints[f.name], value[f.name]) for f in fields(kind)})
    return value


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)
