from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsdplint.files.decoding import Skipped, SourceError
from fsdplint.files.file import from_text, load


@pytest.mark.parametrize(
    ("text", "offset", "position"),
    [
        ("ab\ncd", 0, (1, 1)),
        ("ab\ncd", 2, (1, 3)),
        ("ab\ncd", 3, (2, 1)),
        ("ab\ncd", 5, (2, 3)),
        ("ab\r\ncd", 4, (2, 1)),
        ("ab\rcd", 3, (2, 1)),
        ("a\x0cb\x85c\u2028d", 6, (1, 7)),
        ("\u4e16\u754c = 1", 3, (1, 4)),
    ],
)
def test_positions_count_python_lines_and_characters(
    text: str, offset: int, position: tuple[int, int]
) -> None:
    source = from_text(text, "a.py")
    assert source.position(offset) == position
    assert source.offset(*position) == offset


def test_lines_come_without_their_ends() -> None:
    source = from_text("a\r\nb\rc\nd", "a.py")
    assert [source.line(n) for n in range(1, 5)] == ["a", "b", "c", "d"]


def test_positions_outside_the_text_are_held_inside() -> None:
    source = from_text("ab\ncd\n", "a.py")
    assert source.offset(1, 99) == 2
    assert source.offset(99, 1) == 6
    assert source.offset(0, 0) == 0


def test_paths_are_absolute_and_folded() -> None:
    assert from_text("", "/a/../b/c.py").path == "/b/c.py"


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.py")
    with pytest.raises(SourceError, match="a named pipe, not a regular file"):
        load(tmp_path / "a.py")
    with pytest.raises(SourceError, match="a device, not a regular file"):
        load(Path(os.devnull))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.py").open("wb") as file:
        file.truncate(2_000_000_000)
    with pytest.raises(Skipped, match="larger than 50 MB"):
        load(tmp_path / "a.py")
