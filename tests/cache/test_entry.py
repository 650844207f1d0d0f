"""Entries as bytes: what is not exactly what was written is no entry."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from fsdplint.cache.report_entry import Entry, decoded, encoded
from fsdplint.urls import DOCUMENTATION, rule_url

LINK = f"\x1b]8;;{rule_url('direct-forward')}\x1b\\FSD302\x1b]8;;\x1b\\"
ENTRY = Entry(
    ("1.0", "", "check", "./ä\udcff.py"),
    1,
    ((True, "fsdplint: said aside\n"), (False, f"\x1b[31mred\x1b[0m\tfound {LINK}\n")),
    (("kind", "a", "", "32768"), ("content", "b\n", "1 2", "ff"), ("real", "/c", "", "/d")),
)
DATA = encoded(ENTRY)


def parts(entry: Entry) -> tuple[object, ...]:
    return entry.key, entry.code, entry.said, entry.notes


def sealed(body: bytes) -> bytes:
    """``body`` as if it had been written, with a checksum that is right."""
    return DATA[:15] + b"%08x" % crc32(body) + body


def body(*fields: str) -> bytes:
    return "\0".join(fields).encode()


def test_an_entry_is_read_as_it_was_written() -> None:
    assert parts(decoded(DATA)) == parts(ENTRY)
    assert sealed(DATA[23:]) == DATA
    nothing = Entry((), 0, (), ())
    assert parts(decoded(encoded(nothing))) == parts(nothing)


@pytest.mark.parametrize("length", range(0, len(DATA), 7))
def test_a_cut_entry_is_none(length: int) -> None:
    with pytest.raises(ValueError, match="is no entry"):
        decoded(DATA[:length])


def test_a_flipped_bit_anywhere_makes_it_none() -> None:
    for offset in range(len(DATA)):
        for bit in range(8):
            flipped = bytearray(DATA)
            flipped[offset] ^= 1 << bit
            with pytest.raises(ValueError, match="is no entry"):
                decoded(bytes(flipped))


def test_bytes_at_random_are_none() -> None:
    random_ = random.Random(11)
    for _ in range(500):
        with pytest.raises(ValueError, match="is no entry"):
            decoded(random_.randbytes(random_.randrange(200)))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (("",), "invalid literal"),
        (("1",), "fields are missing"),
        (("2", "key"), "fields are missing"),
        (("1", "key"), "fields are missing"),
        (("1", "key", "0"), "fields are missing"),
        (("-1", "key", "0", "0"), "no such number"),
        (("9" * 5000, "key", "0", "0"), "no such number"),
        (("01", "key", "0", "0"), "no such number"),
        (("²", "key", "0", "0"), "invalid literal"),
        (("1", "key", "3", "0"), "no such number"),
        (("1", "key", "0.0", "0"), "invalid literal"),
        (("1", "key", "None", "0"), "invalid literal"),
        (("1", "key", "0", "3", "0", "text"), "fields are missing"),
        (("1", "key", "0", "2", "0", "text"), "fields are missing"),
        (("1", "key", "0", "1", "2", "text"), "no such number"),
        (("1", "key", "0", "0", "content", "path", "1 2"), "notes are not told apart"),
        (("1", "key", "0", "0", "pickle", "path", "1 2", "ff"), "notes are not told apart"),
        (("1", "key", "0", "1", "0", "\x1b]0;title\x07"), "not to be printed"),
        (("1", "key", "0", "1", "0", "\x1b[2J"), "controls a terminal"),
        (("1", "key", "0", "1", "0", "\x1b]8;;https://evil.com\x1b\\"), "somewhere else"),
        (("1", "key", "0", "1", "0", f"\x1b]8;;{DOCUMENTATION}\x1b[2J\x1b\\"), "somewhere else"),
        (("1", "key", "0", "1", "0", "\x1b[31"), "controls a terminal"),
        (("1", "key", "0", "1", "0", "a\rb"), "not to be printed"),
        (("1", "key", "0", "1", "0", "\u202e"), "not to be printed"),
    ],
)
def test_a_right_checksum_is_not_enough(fields: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decoded(sealed(body(*fields)))


def test_bytes_that_are_no_text_are_none() -> None:
    entry = decoded(sealed(b"1\0\xff\x000\x000"))
    assert entry.key == ("\udcff",)  # as Python has names that are no text
    with pytest.raises(ValueError, match="is no entry"):
        decoded(DATA.replace(b"run 1", b"run 2"))


@pytest.mark.parametrize(
    "entry",
    [
        Entry(("a\0b",), 0, (), ()),
        Entry(("\ud800",), 0, (), ()),
        Entry((), 0, ((False, "\x07"),), ()),
        Entry((), 0, (), (("kind", "a\0", "", ""),)),
    ],
)
def test_what_has_no_place_is_not_written(entry: Entry) -> None:
    with pytest.raises(ValueError):
        encoded(entry)
