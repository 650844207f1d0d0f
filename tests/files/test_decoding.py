from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import from_bytes, load


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"x = 1\n", "x = 1\n"),
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"# coding: latin-1\nx = '\xe9'\n", "# coding: latin-1\nx = 'é'\n"),
        (b"#!/usr/bin/python\r# -*- coding: latin-1 -*-\r'\xe9'\r", None),
        (b"\n\n# coding: latin-1\nx = '\xc3\xa9'\n", "\n\n# coding: latin-1\nx = 'é'\n"),
        (b"a\r\nb\rc\n\x0cd\r\n", "a\r\nb\rc\n\x0cd\r\n"),
        (b"", ""),
        (b"lone\r", "lone\r"),
    ],
)
def test_bytes_survive_the_round_trip(data: bytes, text: str | None) -> None:
    source = from_bytes(data, "a.py")
    if text is not None:
        assert source.text == text
    assert source.encode(source.text) == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x = 1\r\ny = '\xff'\n", "line 2 is not utf-8 (byte 0xff): invalid start byte"),
        (b"x\0y", "not Python source: it contains a NUL byte"),
        (b"# coding: nonsense\n", "unknown encoding: nonsense"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "encoding problem: utf-8"),
        (b"# coding: rot13\n", None),
    ],
)
def test_undecodable_bytes_have_a_one_line_reason(data: bytes, reason: str | None) -> None:
    with pytest.raises(SourceError) as caught:
        from_bytes(data, "a.py")
    assert "\n" not in caught.value.reason
    if reason is not None:
        assert caught.value.reason == reason


def test_a_missing_file_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        load(tmp_path / "gone.py")
    assert caught.value.reason == "No such file or directory"
    assert caught.value.path == (tmp_path / "gone.py").as_posix()


def test_text_outside_the_encoding_cannot_be_written() -> None:
    source = from_bytes(b"# coding: latin-1\n", "a.py")
    with pytest.raises(SourceError, match="cannot be written as iso-8859-1"):
        source.encode("# \u4e16\n")
