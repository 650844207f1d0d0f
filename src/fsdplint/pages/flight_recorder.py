"""Find where the ranks of a hanging job diverge, by comparing its flight recorder dumps.

A rank's dump is a pickle that `torch._C._distributed_c10d._dump_fr_trace` makes, and that NCCL's
watchdog writes to a file whose name ends with the rank. Source: torch 2.13 and 2.14, version 2.10
of its format.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

MOST = 100_000_000
"""Bytes of all dumps together."""

# Sizes that are compared: what a file repeats is not to be written out.
_MOST_SIZES = 100
_DEFAULT = "0"  # the name of the default process group, which some backends leave out
_RANK = re.compile(r"(.*?)(\d+)")
_LIBRARIES = re.compile(r"[/\\](site|dist)-packages[/\\]")
# These take and give the same on every rank, so that other sizes are a mistake.
_OF_ONE_SIZE = frozenset(
    {"all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast", "allgather"}
)


class NoDumpError(Exception):
    """The file is not a dump, or the folder has none; the message is one line."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A collective that a rank has called.

    Attributes:
        number: of the collective in its process group, from 1.
        path: of the line of the program that led to it, "" where that is not recorded.
    """

    name: str
    number: int
    sizes: str
    path: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True, slots=True)
class Dump:
    """The recording of one rank.

    Attributes:
        members: the ranks of each process group, by its name.
        issued: the collectives of each process group by number; the oldest are forgotten.
        titles: what the process groups are called in the program.
    """

    rank: int
    members: Mapping[str, Sequence[int]]
    issued: Mapping[str, Mapping[int, Issued]]
    titles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first collective of a process group that its ranks do not call together.

    Attributes:
        group: what the process group is called.
        calls: what the ranks called, the most of them first.
        behind: the ranks that have not come so far, with the last that each called.
        unknown: members without a dump.
    """

    group: str
    number: int
    calls: tuple[tuple[tuple[int, ...], Issued], ...]
    behind: tuple[tuple[tuple[int, ...], Issued | None], ...]
    unknown: tuple[int, ...]


def read_dumps(given: Path) -> list[Dump]:
    """Return the dumps in a folder, or a dump with those of the other ranks beside it.

    Raises:
        NoDumpError: there is none.
        OSError: a file cannot be read.
    """
    if given.is_dir():
        files = [path for path in given.iterdir() if _RANK.fullmatch(path.name) and path.is_file()]
        prefix = None
    else:
        named = _RANK.fullmatch(given.name)
        if named is None:
            raise NoDumpError(f"{given}: the file name does not end with a rank number")
        prefix = named[1]
        files = list(given.parent.iterdir())
    found, read = {}, 0
    for path in sorted(files):
        named = _RANK.fullmatch(path.name)
        if named is None or prefix not in (None, named[1]) or not path.is_file():
            continue
        read += path.stat().st_size
        if read > MOST:
            raise NoDumpError(f"{given}: the dumps together are larger than {MOST // 1_000_000} MB")
        data = path.read_bytes()
        if is_dump(data):
            found[int(named[2])] = _dump(int(named[2]), data, path)
    if not found:
        raise NoDumpError(f"{given}: no flight recorder dump found")
    return [found[rank] for rank in sorted(found)]


def is_dump(data: bytes) -> bool:
    """Return whether a file begins like a pickle of a recent protocol."""
    return data[:1] == b"\x80" and data[1:2] <= b"\x05"


def divergences(dumps: Sequence[Dump]) -> list[Divergence]:
    """Return where the ranks of each process group diverge, if they do."""
    groups = dict.fromkeys(name for dump in dumps for name in dump.issued)
    found = (_divergence(name, dumps) for name in groups)
    return [each for each in found if each is not None]


def _divergence(group: str, dumps: Sequence[Dump]) -> Divergence | None:
    listed = next((d.members[group] for d in dumps if d.members.get(group)), None)
    within = [d for d in dumps if group in d.issued or d.rank in (listed or ())]
    last = {d.rank: max(d.issued.get(group, {}), default=0) for d in within}
    for number in sorted({number for d in within for number in d.issued.get(group, {})}):
        calls: dict[tuple[str, str], list[int]] = {}
        for dump in within:
            issued = dump.issued.get(group, {}).get(number)
            if issued is not None:
                calls.setdefault(_kind(issued), []).append(dump.rank)
        behind = [dump for dump in within if last[dump.rank] < number]
        if len(calls) > 1 or (calls and behind):
            by_rank = {dump.rank: dump.issued.get(group, {}) for dump in within}
            shown = sorted(calls.values(), key=lambda ranks: (-len(ranks), ranks))
            unknown = {*(listed or ())} - {dump.rank for dump in dumps}
            return Divergence(
                next(d.titles[group] for d in within if group in d.titles),
                number,
                tuple((tuple(ranks), by_rank[ranks[0]][number]) for ranks in shown),
                _behind(behind, group, last),
                tuple(sorted(unknown)),
            )
    return None


def _behind(
    dumps: Sequence[Dump], group: str, last: Mapping[int, int]
) -> tuple[tuple[tuple[int, ...], Issued | None], ...]:
    """Return the ranks that stopped at the same collective, together."""
    together: dict[int, list[Dump]] = {}
    for dump in dumps:
        together.setdefault(last[dump.rank], []).append(dump)
    return tuple(
        (tuple(dump.rank for dump in alike), alike[0].issued.get(group, {}).get(number))
        for number, alike in sorted(together.items())
    )


def _kind(issued: Issued) -> tuple[str, str]:
    return issued.name, issued.sizes if issued.name in _OF_ONE_SIZE else ""


# Reading


# What reading a file raises that is no pickle, or one of something else.
_NO_PICKLE = (
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    LookupError,
    OverflowError,
    TypeError,
    ValueError,
)


class _Plain(pickle.Unpickler):
    """Read only numbers, texts, lists, tuples and dictionaries: no class and no function."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _dump(rank: int, data: bytes, path: Path) -> Dump:
    try:
        return _described(rank, _Plain(BytesIO(data)).load())
    except _NO_PICKLE as error:
        raise NoDumpError(f"{path}: not a flight recorder dump") from error


def _described(rank: int, told: dict[str, Any]) -> Dump:
    members: dict[str, list[int]] = {}
    for config in told.get("pg_config", {}).values():
        ranks = config["ranks"]
        listed = ranks if isinstance(ranks, (list, tuple)) else re.findall(r"\d+", ranks)
        members[config["name"] or _DEFAULT] = [int(each) for each in listed]
    issued: dict[str, dict[int, Issued]] = {}
    titles = {}
    for entry in told["entries"]:
        name, title = map(_text, entry["process_group"])
        if not entry.get("is_p2p"):
            called = _issued(entry)
            titles[name] = title or name
            issued.setdefault(name, {}).setdefault(called.number, called)
    return Dump(rank, members, issued, titles)


def _issued(entry: Mapping[str, Any]) -> Issued:
    frames = list(_frames(entry.get("frames", ())))
    own = next((each for each in frames if not _LIBRARIES.search(each[0])), None)
    path, line, function = own or next(iter(frames), ("", 0, ""))
    name = _text(entry["profiling_name"]).rpartition(":")[2]
    sizes = [list(map(int, size[:_MOST_SIZES])) for size in entry["input_sizes"][:_MOST_SIZES]]
    return Issued(name, int(entry["collective_seq_id"]), str(sizes), path, line, function)


def _frames(frames: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int, str]]:
    """Yield the Python frames of a call, the innermost first."""
    for frame in frames:
        yield _text(frame["filename"]), int(frame["line"]), _text(frame["name"])


def _text(value: object) -> str:
    """Return a text as it is; writing out another value could take forever."""
    if not isinstance(value, str):
        raise TypeError("no text")
    return value
