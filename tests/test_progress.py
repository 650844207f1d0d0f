from __future__ import annotations

import io
import sys
import time

import pytest
from waiting import comes

from fsdplint.process import terminal as process


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    # Not a fixture: pytest puts its own streams back between setup and call.
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_short_work_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    with process.progress("working"):
        pass
    assert stream.getvalue() == ""


def test_long_work_shows_a_line_and_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    monkeypatch.setattr(process, "_PATIENCE", 0.01)
    with process.progress("working"):
        assert comes(stream.getvalue)
    assert stream.getvalue() == "working\r\x1b[K"


def test_what_is_no_terminal_sees_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "_PATIENCE", 0.01)
    with process.progress("working"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
