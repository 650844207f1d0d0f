"""Flight recorder dumps: where ranks diverge, and files that are none."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks, report
from test_cli import Ran, run

from fsdplint.pages.flight_recorder import (
    Divergence,
    Issued,
    NoDumpError,
    divergences,
    read_dumps,
)

HANG = """
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
dist.init_process_group("gloo", timeout=timedelta(seconds=3))


def reduce(number):
    dist.all_reduce(number)


def guarded():
    if dist.get_rank() == 0:
        dist.barrier()


reduce(torch.ones(4))
reduce(torch.ones(4))
try:
    guarded()
except RuntimeError as error:
    print(error)
data = torch._C._distributed_c10d._dump_fr_trace()
Path(f"trace_rank_{dist.get_rank()}").write_bytes(data)
os._exit(0)
"""


def test_what_ranks_wrote_that_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: Ranks
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(HANG)
    code = HANG.replace('f"trace', f'f"{tmp_path}/trace')
    outcomes = ranks.run(code, path=str(script), process_group=False)
    assert report(outcomes) == ""
    (found,) = divergences(read_dumps(tmp_path / "trace_rank_1"))
    assert found == Divergence(
        group="default_pg",
        number=3,
        calls=(((0,), Issued("barrier", 3, "[]", str(script), 19, "guarded")),),
        behind=(((1,), Issued("all_reduce", 2, "[[4]]", str(script), 14, "reduce")),),
        unknown=(),
    )
    ran = run("explain", "--error", "trace_rank_0", "train.py")
    assert ran.code == 0
    assert ran.out.splitlines()[:3] == [
        "The ranks diverge at collective 3 of the process group `default_pg`:",
        f"  rank 0 waits in barrier at {script}:19 in guarded",
        f"  rank 1 has not called it; last call: all_reduce at {script}:14 in reduce, collective 2",
    ]
    assert "FSD601 collective-under-rank-guard" in ran.out
    assert ran.out.endswith(
        "The error names these lines:\n  train.py:19: dist.barrier()\n"
        "  train.py:14: dist.all_reduce(number)\n"
    )


Call = tuple[str, Sequence[Sequence[int]]]
SUM, GATHER = ("nccl:all_reduce", [[4]]), ("nccl:_all_gather_base", [[8]])


ENTRY = {"process_group": ("a", ""), "collective_seq_id": 1, "profiling_name": "nccl:barrier"}


def write(
    folder: Path, rank: int, groups: Mapping[str, Sequence[Call]], first: int = 1, size: int = 4
) -> None:
    """A dump with the calls of each group, and a transfer that only this rank makes."""
    entries: list[dict[str, Any]] = [
        {
            "process_group": (name, f"group of {name}"),
            "collective_seq_id": number,
            "profiling_name": call,
            "input_sizes": sizes,
            "is_p2p": False,
            "frames": [
                {"name": "wrapper", "filename": "/x/site-packages/torch/d.py", "line": 1},
                {"name": "train", "filename": "/home/me/train.py", "line": 10 * number},
            ],
        }
        for name, calls in groups.items()
        for number, (call, sizes) in enumerate(calls, first)
    ]
    sends = {**entries[0], "is_p2p": True, "collective_seq_id": 100 + rank}
    config = {name: {"name": name, "desc": "", "ranks": str(list(range(size)))} for name in groups}
    dump = {"version": "2.10", "pg_config": config, "entries": [*entries, sends]}
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))


def told(folder: Path) -> list[str]:
    return run("explain", "--error", folder).out.split("\n\n")[0].splitlines()


def test_ranks_that_call_something_else(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, {"a": [SUM, GATHER if rank == 2 else SUM], "b": [SUM, SUM]})
    (found,) = divergences(read_dumps(tmp_path))
    assert [ranks for ranks, _ in found.calls] == [(0, 1, 3), (2,)]
    assert told(tmp_path) == [
        "The ranks diverge at collective 2 of the process group `group of a`:",
        "  ranks 0-1 and 3 are in all_reduce at /home/me/train.py:20 in train",
        "  rank 2 is in all_gather_base at /home/me/train.py:20 in train",
    ]


def test_sizes_count_where_they_have_to_be_equal(tmp_path: Path) -> None:
    for rank in range(2):
        uneven = ("nccl:all_to_all", [[rank]])
        write(tmp_path, rank, {"a": [uneven, ("nccl:all_reduce", [[4 + rank]])]}, size=2)
    (found,) = divergences(read_dumps(tmp_path))
    assert (found.number, [issued.sizes for _, issued in found.calls]) == (2, ["[[4]]", "[[5]]"])


def test_ranks_behind_and_ranks_without_a_dump(tmp_path: Path) -> None:
    for rank, calls in enumerate(([SUM, GATHER, SUM], [SUM], [SUM, GATHER, SUM])):
        write(tmp_path, rank, {"a": calls})
    (tmp_path / "nccl_trace_rank_x").write_text("no dump")
    (tmp_path / "train_2.py").write_text("no dump")
    assert told(tmp_path) == [
        "The ranks diverge at collective 2 of the process group `group of a`:",
        "  ranks 0 and 2 wait in all_gather_base at /home/me/train.py:20 in train",
        "  rank 1 has not called it; last call: all_reduce at /home/me/train.py:10 in train, "
        "collective 1",
        "  no dump from rank 3",
    ]


def test_numbers_may_be_far_apart(tmp_path: Path) -> None:
    write(tmp_path, 0, {"a": [SUM]}, size=2)
    write(tmp_path, 1, {"a": [SUM]}, first=10**15, size=2)
    (found,) = divergences(read_dumps(tmp_path))
    assert (found.number, found.behind[0][0]) == (10**15, (0,))


def test_the_oldest_calls_may_be_forgotten(tmp_path: Path) -> None:
    write(tmp_path, 0, {"a": [SUM, SUM, GATHER]}, first=2, size=2)
    write(tmp_path, 1, {"a": [GATHER, SUM, SUM]}, size=2)
    (found,) = divergences(read_dumps(tmp_path))
    assert (found.number, found.behind[0][0]) == (4, (1,))


def test_ranks_that_do_the_same(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, {"a": [SUM, GATHER]})
    text = (
        "All ranks called the same collectives; none is behind. Check the network, the GPUs, "
        "and\ncode that is slow on one rank between two collectives.\n"
    )
    ran = run("explain", "--error", tmp_path)
    assert (ran.code, " ".join(ran.out.split())) == (1, " ".join(text.split()))


class Harm:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harm",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Harm(), protocol=2),
        pickle.dumps([1], protocol=2),
        pickle.dumps({"entries": 1}, protocol=2),
        pickle.dumps({"entries": [{**ENTRY, "input_sizes": [[[4]]]}]}, protocol=2),
        b"\x80\x02",
    ],
    ids=["harm", "list", "number", "sizes", "cut"],
)
def test_a_pickle_of_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace_0").write_bytes(data)
    with pytest.raises(NoDumpError, match=r"^trace_0: not a flight recorder dump$"):
        read_dumps(Path("trace_0"))
    ran = run("explain", "--error", "trace_0")
    assert ran == Ran(2, "", "fsdplint: trace_0: not a flight recorder dump\n")
    assert not Path("harm").exists()


def test_names_without_a_rank_and_folders_without_dumps(tmp_path: Path) -> None:
    write(tmp_path, 0, {"a": [SUM]})
    dump = (tmp_path / "nccl_trace_rank_0").rename(tmp_path / "trace")
    reasons = {
        dump: "the file name does not end with a rank number",
        tmp_path: "no flight recorder dump found",
    }
    for given, reason in reasons.items():
        assert run("explain", "--error", given) == Ran(2, "", f"fsdplint: {given}: {reason}\n")
