"""The hash by which GitHub knows a line of a file.

It is that of `github/codeql-action` (``src/fingerprints.ts``), whose uploader warns of any other: a
rolling hash, modulo 2**64, of a hundred UTF-16 code units from the start of a line, without blanks
and with every line end as a line feed; 65535 stands for the end of the file and zeros follow it.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate, chain, repeat

_BLOCK = 100
_FACTOR = 37
_MASK = (1 << 64) - 1
_LEAVING = pow(_FACTOR, _BLOCK, 1 << 64)
_END_OF_FILE = 65535
_LINE_FEED = 10
_BLANK = re.compile("[ \t]")
_LINE_END = re.compile("\r\n?")


def line_hashes(data: bytes) -> list[str]:
    """The hash of each line of a file, and which of the equal ones it is, as ``hash:count``.

    What is not UTF-8 is read as the uploader does, whatever the file's own encoding.
    """
    text = _BLANK.sub("", _LINE_END.sub("\n", data.decode("utf-8", "replace")))
    # Without an order in its name, the codec writes the machine's after a mark.
    units = [*memoryview(text.encode("utf-16")).cast("H")[1:], _END_OF_FILE]
    starts = [0, *(index + 1 for index, unit in enumerate(units) if unit == _LINE_FEED)]
    # The hash at a line's start is that of the window which ends a block later.
    padded = list(chain(units, repeat(0, _BLOCK)))
    leaving = chain(repeat(0, _BLOCK), padded)
    rolling = list(accumulate(zip(padded, leaving, strict=False), _roll, initial=0))
    seen: Counter[int] = Counter()
    hashes = []
    for start in starts:
        value = rolling[start + _BLOCK]
        seen[value] += 1
        hashes.append(f"{value:x}:{seen[value]}")
    return hashes


def _roll(value: int, units: tuple[int, int]) -> int:
    entering, leaving = units
    return (value * _FACTOR + entering - leaving * _LEAVING) & _MASK
