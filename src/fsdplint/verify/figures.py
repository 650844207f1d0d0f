"""Numbers in readable form."""

from __future__ import annotations

from collections.abc import Iterable

TIMES = "\u00d7"  # the sign of multiplication, which looks like an x
_EXACT_BELOW = 10_000_000
_THOUSANDS = (("T", 10**12), ("B", 10**9), ("M", 10**6))
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: int) -> str:
    """Write a number of elements: exact while it is short, in four digits from ten million."""
    if number < _EXACT_BELOW:
        return f"{number:,}"
    letter, unit = next(each for each in _THOUSANDS if number >= each[1])
    return f"{_digits(number / unit, 4)} {letter}"


def size(number: int) -> str:
    """Write a number of bytes in three digits."""
    value = float(number)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{number} B" if unit == "B" else f"{_digits(value, 3)} {unit}"


def _digits(value: float, digits: int) -> str:
    whole = len(str(int(value)))
    return f"{value:.{max(0, digits - whole)}f}"


def percent(share: float) -> str:
    """Write a share of 1 as a percentage."""
    text = f"{100 * share:.1f}"
    return f"{text.removesuffix('.0') if text == '100.0' else text}%"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Write a number and its noun, which takes an s unless its plural is given."""
    return f"{count(number)} {noun if number == 1 else nouns or f'{noun}s'}"


def ranks_in_words(numbers: Iterable[int]) -> str:
    """Write some ranks, e.g. ``rank 0``, ``ranks 0, 1`` or ``ranks 0-2, 5``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    several = sum(map(len, runs)) > 1
    return f"rank{'s' * several} {', '.join(parts)}"
