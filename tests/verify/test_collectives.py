"""What a rank writes down of its collectives, and how the clause reads several ranks' logs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch_release
from verifier import Verifier

from fsdplint.verify import collective_log, order
from fsdplint.verify.clauses.collectives import collectives
from fsdplint.verify.collective_log import Collective, Reader, Ring, State
from fsdplint.verify.events import Ended, Place
from fsdplint.verify.evidence import RankRun, Run, Stall

SCATTER = "reduce_scatter" if torch_release.GLOO_REDUCES_LISTS else "reduce_scatter_tensor"
GATHER = (
    "all_gather_into_tensor" if torch_release.OBJECTS_ARE_GATHERED_INTO_TENSORS else "all_gather"
)
EVERYTHING = """
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as copied
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.distributed._functional_collectives import all_reduce as functional

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
first = rank == 0
four = torch.ones(4)
lists = [torch.ones(4) for _ in range(world)]
dist.all_reduce(four)
copied(four)
dist.all_gather(lists, four)
dist.all_gather_into_tensor(torch.empty(4 * world), four)
dist.SCATTER(torch.empty(4), lists)
dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * world))
dist.broadcast(four, 0)
dist.reduce(four, 0)
dist.gather(four, lists if first else None, 0)
dist.scatter(torch.empty(4), lists if first else None, 0)
dist.all_to_all_single(torch.empty(4), four)
dist.barrier()
dist.monitored_barrier()
with dist._coalescing_manager():
    dist.all_reduce(four)
    dist.all_reduce(torch.ones(2, 3))
functional(four, "sum", dist.group.WORLD).add_(1)
if first:
    dist.send(four, 1)
else:
    dist.recv(four, 0)
for work in dist.batch_isend_irecv(
    [dist.P2POp(dist.isend, four, 1 - rank), dist.P2POp(dist.irecv, torch.empty(4), 1 - rank)]
):
    work.wait()
dist.all_gather_object([None] * world, {})
mesh = init_device_mesh("cpu", (world,))
tensor = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
tensor.full_tensor()
tensor.redistribute(mesh, [Shard(1)])
pair = dist.new_group([0, 1])
dist.all_reduce(four, group=pair)
left = dist.all_reduce(four, async_op=True)
""".replace(
    "SCATTER(torch.empty(4), lists)",
    f"{SCATTER}(torch.empty(4), {'lists' if SCATTER == 'reduce_scatter' else 'torch.cat(lists)'})",
)
SEEN = [
    ("/", 0, "init_process_group", ()),
    ("0,1/0", 0, "all_reduce", (4,)),
    ("0,1/0", 1, "all_reduce", (4,)),
    ("0,1/0", 2, "all_gather", (4,)),
    ("0,1/0", 3, "all_gather_into_tensor", (4,)),
    ("0,1/0", 4, SCATTER, (8,)),
    ("0,1/0", 5, "reduce_scatter_tensor", (8,)),
    ("0,1/0", 6, "broadcast", (4,)),
    ("0,1/0", 7, "reduce", (4,)),
    ("0,1/0", 8, "gather", (4,)),
    ("0,1/0", 9, "scatter", (4,)),
    ("0,1/0", 10, "all_to_all_single", (4,)),
    ("0,1/0", 11, "barrier", ()),
    ("0,1/0", 12, "monitored_barrier", ()),
    ("0,1/0", 13, "all_reduce_coalesced", (10,)),
    ("0,1/0", 14, "all_reduce", (4,)),
    ("0,1/0", 0, "send", (4,)),
    ("0,1/0", 1, "send", (4,)),
    ("0,1/0", 2, "recv", (4,)),
    ("0,1/0", 15, GATHER, (1,)),
    ("0,1/0", 16, GATHER, (5,)),
    ("/", 1, "new_group", ()),
    *([("0,1/0", 17, "broadcast", (5056,))] if torch_release.DISTRIBUTING_SEEDS else []),
    ("0,1/1", 0, "scatter", (2, 4)),
    ("0,1/1", 1, "all_gather_into_tensor", (2, 4)),
    ("0,1/1", 2, "all_gather_into_tensor", (2, 4)),
    ("/", 2, "new_group", ()),
    ("0,1/2", 0, "all_reduce", (4,)),
    ("0,1/0", 17 + torch_release.DISTRIBUTING_SEEDS, "all_reduce", (4,)),
]


def test_every_collective_is_written_down_once(verifier: Verifier) -> None:
    run = verifier.observe(EVERYTHING)
    seen = run.ranks[0].collectives
    assert [rank.ended.how for rank in run.ranks if rank.ended] == ["script", "script"]
    assert [(c.group, c.number, c.operation, c.shape) for c in seen] == SEEN
    assert [c.state for c in seen] == [State.DONE] * (len(SEEN) - 1) + [State.QUEUED]
    assert {c.operation: c.size for c in seen if c.shape == (4,)}["all_reduce"] == 16
    copied = EVERYTHING.splitlines().index("copied(four)") + 1
    assert seen[2].place == Place("train.py", copied, "<module>")
    counts = Counter(operation for _, _, operation, _ in SEEN)
    each = ", ".join(f"{count} {operation}" for operation, count in sorted(counts.items()))
    assert (
        collectives.judge(run).figures == f"2 ranks agree; {len(SEEN)} collectives in total: {each}"
    )


def test_a_log_is_read_as_far_as_it_is_written(tmp_path: Path) -> None:
    place, log = Place("train.py", 3, "main"), Ring(tmp_path / "0.ring")
    first = log.issue("0,1/0", "broadcast", (2, 3), 24, 1, place)
    log.note(first, State.WAITING)
    second = log.issue("0,1/0", "barrier", (), 0, 2, None)
    log.note(second, State.DONE)
    reader = Reader(tmp_path / "0.ring")
    assert reader.read() is True
    assert [(c.operation, c.number, c.state, c.place) for c in reader.collectives()] == [
        ("broadcast", 0, State.WAITING, place),
        ("barrier", 1, State.DONE, None),
    ]
    with (tmp_path / "0.ring").open("a") as file:
        file.write("-0")
        file.flush()
        assert reader.read() is False
        file.write("\n")
    assert reader.read() is True
    assert [c.state for c in reader.collectives()] == [State.DONE, State.DONE]


def test_threads_share_a_log(tmp_path: Path) -> None:
    log = Ring(tmp_path / "0.ring")

    def write(operation: str) -> None:
        for step in range(500):
            log.note(log.issue("0/0", operation, (), 0, step, None), State.DONE)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = collective_log.read(tmp_path / "0.ring")
    assert [c.number for c in found] == list(range(1500))
    assert all(c.done for c in found)
    assert [c.step for c in found if c.operation == "b"] == list(range(500))


def issued(
    *operations: str,
    group: str = "0,1/0",
    state: State = State.DONE,
    size: int = 16,
    line: int = 10,
    begins: float = 0.0,
) -> list[Collective]:
    """One rank's log; only its last collective is in `state`."""
    states = [State.DONE] * (len(operations) - 1) + [state]
    return [
        Collective(
            group, n, name, (size // 4,), size, 0, Place("train.py", line + n, "main"), how,
            begins + n,
        )
        for n, (name, how) in enumerate(zip(operations, states, strict=True))
    ]  # fmt: skip


def ended(how: str) -> Ended:
    return Ended(how, 0, "ValueError", "own reason")


def run_of(
    *logs: Sequence[Collective], ends: Sequence[str] = (), stall: Stall | None = None
) -> Run:
    """Ranks with these logs, which ended in these ways; an empty one did not end."""
    ends = ends or ["script"] * len(logs)
    return Run(
        tuple(
            RankRun(n, (ended(how),) if how else (), tuple(log), "")
            for n, (log, how) in enumerate(zip(logs, ends, strict=True))
        ),
        stall,
    )


def status(run: Run) -> str:
    return collectives.judge(run).status.value


def test_the_same_collective_from_other_lines_is_the_same() -> None:
    assert status(run_of(issued("barrier", line=10), issued("barrier", line=20))) == "confirmed"


def test_sends_and_receives_need_not_agree() -> None:
    assert status(run_of(issued("send", "send"), issued("recv"))) == "confirmed"


def test_groups_are_compared_each_for_itself() -> None:
    mesh = issued("all_reduce", group="0,1/1")
    world = issued("barrier", begins=1)
    assert status(run_of([*mesh, *world], [*world, *mesh])) == "confirmed"


def test_other_members_are_not_asked_for() -> None:
    inner = issued("all_reduce", group="0/1")
    assert status(run_of([*inner, *issued("barrier")], issued("barrier"))) == "confirmed"


def test_different_operations_part_the_ranks() -> None:
    run = run_of(issued("barrier", "broadcast", line=10), issued("barrier", "barrier", line=20))
    verdict = collectives.judge(run)
    assert verdict.figures == (
        "ranks diverge at collective 2 of all ranks: broadcast [4] on rank 0, barrier [4] on rank 1"
    )
    assert verdict.details == (
        "rank 0: broadcast [4] at train.py:11 in main",
        "rank 1: barrier [4] at train.py:21 in main",
    )
    assert [str(place) for place in verdict.places] == ["train.py:11", "train.py:21"]


def test_the_line_that_fewest_ranks_came_by_is_named_first() -> None:
    both = [issued("all_gather", line=20), issued("all_gather", line=20)]
    odd = issued("barrier", line=30, begins=1)
    again = issued("all_gather", line=20, begins=1)
    apart = [
        [*both[0], *(Collective(**{**fields(c), "number": 1}) for c in odd)],
        [*both[1], *(Collective(**{**fields(c), "number": 1}) for c in again)],
    ]
    places = collectives.judge(run_of(*apart)).places
    assert [str(place) for place in places] == ["train.py:30", "train.py:20"]


def fields(collective: Collective) -> dict[str, object]:
    return {name: getattr(collective, name) for name in Collective.__slots__}


@pytest.mark.parametrize(
    ("operation", "state", "verdict"),
    [
        ("all_reduce", State.DONE, "violated"),
        ("broadcast", State.DONE, "violated"),
        ("all_gather", State.DONE, "confirmed"),
        ("all_gather", State.RAISED, "violated"),
        ("all_to_all_single", State.RAISED, "confirmed"),
    ],
)
def test_sizes_agree_where_the_operation_needs_it(
    operation: str, state: State, verdict: str
) -> None:
    run = run_of(issued(operation, size=16, state=state), issued(operation, size=32))
    assert status(run) == verdict


def test_a_rank_waits_for_good_for_one_that_has_ended() -> None:
    waiting = issued("barrier", "barrier", state=State.WAITING)
    verdict = collectives.judge(run_of(waiting, issued("barrier"), ends=["", "script"]))
    assert verdict.figures == "hang: rank 0 in barrier [4]"
    assert verdict.details == (
        "rank 0: barrier [4] at train.py:11 in main",
        "rank 1: finished the script without this collective",
    )


@pytest.mark.parametrize(("line", "verdict"), [(10, "not exercised"), (20, "violated")])
def test_a_rank_ended_after_its_steps_might_have_come_by_again(line: int, verdict: str) -> None:
    waiting = issued("barrier", "barrier", state=State.WAITING, line=line)
    ahead = issued("barrier", line=11)
    run = run_of(waiting, ahead, ends=["", "steps"], stall=Stall(True, 3.0, {}))
    assert status(run) == verdict


def test_ranks_wait_for_good_for_each_other() -> None:
    here = issued("all_reduce", group="0,1/0", state=State.WAITING)
    there = issued("all_reduce", group="0,1/1", state=State.WAITING)
    assert status(run_of(here, there, ends=["", ""])) == "violated"


def test_a_rank_may_wait_for_one_that_is_busy() -> None:
    waiting = issued("barrier", "barrier", state=State.WAITING)
    assert order.stuck({0: waiting, 1: issued("barrier")}, over=()) == {}
    run = run_of(waiting, issued("barrier"), ends=["", ""], stall=Stall(False, 9.0, {}))
    assert collectives.judge(run).figures == (
        "2 ranks agree; 2 collectives in total: 2 barrier; then the run ended early"
    )
    assert status(run) == "not exercised"


def test_a_rank_may_wait_for_one_that_waits_for_a_busy_one() -> None:
    logs = {
        0: issued("barrier", group="0,1/1", state=State.WAITING),
        1: issued("barrier", group="1,2/2", state=State.WAITING),
        2: issued("barrier", group="0,2/3"),
    }
    assert order.stuck(logs, over=()) == {}
    assert set(order.stuck(logs, over=[2])) == {0, 1}


def test_queued_collectives_count_where_ranks_may_run_ahead() -> None:
    logs = {0: issued("all_reduce", state=State.QUEUED), 1: issued("barrier", group="0,1/9")}
    assert order.stuck(logs, over=()) == {}
    assert set(order.stuck(logs, over=(), queued=True)) == {0, 1}


def test_a_crash_of_its_own_is_not_the_order_of_collectives() -> None:
    waiting = issued("barrier", "barrier", state=State.WAITING)
    run = run_of(waiting, issued("barrier"), ends=["", "crash"], stall=Stall(False, 3.0, {}))
    assert status(run) == "not exercised"


def test_an_error_out_of_a_wait_that_no_rank_would_end_is() -> None:
    waiting = issued("barrier", "barrier", state=State.RAISED)
    assert status(run_of(waiting, issued("barrier"), ends=["crash", "script"])) == "violated"


def test_a_script_that_ends_has_issued_everything() -> None:
    run = run_of(issued("barrier", "broadcast"), issued("barrier"))
    verdict = collectives.judge(run)
    assert (
        verdict.figures
        == "ranks diverge at collective 2 of all ranks: broadcast [4] on rank 0, nothing on rank 1"
    )
    assert status(run_of(*(r.collectives for r in run.ranks), ends=["steps"] * 2)) == "confirmed"


def test_there_has_to_be_something_to_compare() -> None:
    assert status(run_of(issued("barrier"))) == "not exercised"
    assert status(run_of([], [])) == "not exercised"
