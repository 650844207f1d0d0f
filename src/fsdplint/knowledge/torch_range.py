"""The range of PyTorch releases that code is meant to run on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Release = tuple[int, int, int]

EARLIEST: Release = (0, 0, 0)
UNBOUNDED: Release = (1_000_000, 0, 0)
TODAY: Release = (2, 13, 0)
"""The release that code is taken to be for where nothing is said."""
_CLAUSE = re.compile(r"(>=|<=|==|~=|>|<)\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?(\.\*)?")


@dataclass(frozen=True, slots=True)
class TorchRange:
    """Releases from ``lower`` up to, but not including, ``upper``.

    Attributes:
        source: the file of the project's requirements that says so, "" if the settings do.
    """

    lower: Release = EARLIEST
    upper: Release = UNBOUNDED
    source: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> TorchRange:
        """Read version specifiers of PEP 440 such as ">=2.6,<2.14".

        Raises:
            ValueError: a clause is invalid, or no release satisfies all of them.
        """
        lower, upper = EARLIEST, UNBOUNDED
        for clause in text.split(","):
            low, high = _bounds(clause.strip())
            lower, upper = max(lower, low), min(upper, high)
        if lower >= upper:
            raise ValueError(f"{text!r} matches no release")
        return cls(lower, upper)

    def overlaps(self, lower: Release = EARLIEST, upper: Release = UNBOUNDED) -> bool:
        """Return whether a release of this range is at least ``lower`` and before ``upper``."""
        return max(self.lower, lower) < min(self.upper, upper)

    def is_from(self, release: Release) -> bool:
        """Return whether the code runs on no release before ``release``.

        Where every release is, only today's counts.
        """
        return release <= (TODAY if self == EVERY_RELEASE else self.lower)

    def concerns(self, lower: Release = EARLIEST, upper: Release = UNBOUNDED) -> bool:
        """Return whether what breaks releases from ``lower`` to before ``upper`` breaks the code.

        It does if one of them is in this range; where every release is, only today's counts.
        """
        if self == EVERY_RELEASE:
            return lower <= TODAY < upper
        return self.overlaps(lower, upper)

    def compares(self, op: str, release: Release) -> bool | None:
        """Return the outcome of ``installed <op> release``, None if releases of this range differ.

        Where every release is meant, those before today's are not.

        Args:
            op: the name of LibCST's operator class.
        """
        lower = TODAY if self == EVERY_RELEASE else self.lower
        if op in ("Equal", "NotEqual"):
            equal = (lower, self.upper) == (release, _after(release))
            inside = lower <= release < self.upper
            return None if inside and not equal else equal is (op == "Equal")
        edge = _after(release) if op in ("GreaterThan", "LessThanEqual") else release
        if lower < edge < self.upper:
            return None
        return (lower >= edge) is op.startswith("Greater")


def _bounds(clause: str) -> tuple[Release, Release]:
    match = _CLAUSE.fullmatch(clause)
    if match is None or (match[5] and (match[1] != "==" or match[4])):
        raise ValueError(f'{clause!r} is not a version specifier such as ">=2.6"')
    release = (int(match[2]), int(match[3] or 0), int(match[4] or 0))
    return _INTERVALS[match[1]](release, match)


def _after(release: Release) -> Release:
    return (release[0], release[1], release[2] + 1)


def _series_end(release: Release, parts: int) -> Release:
    return (release[0] + 1, 0, 0) if parts == 1 else (release[0], release[1] + 1, 0)


def _equal(release: Release, match: re.Match[str]) -> tuple[Release, Release]:
    if match[5]:
        return release, _series_end(release, 2 if match[3] else 1)
    return release, _after(release)


def _compatible(release: Release, match: re.Match[str]) -> tuple[Release, Release]:
    if match[3] is None:
        raise ValueError(f"{match[0]!r} requires a minor version")
    return release, _series_end(release, 2 if match[4] else 1)


_INTERVALS = {
    ">=": lambda release, _: (release, UNBOUNDED),
    ">": lambda release, _: (_after(release), UNBOUNDED),
    "<": lambda release, _: (EARLIEST, release),
    "<=": lambda release, _: (EARLIEST, _after(release)),
    "==": _equal,
    "~=": _compatible,
}
EVERY_RELEASE = TorchRange()
