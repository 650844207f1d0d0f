"""Whether ranks train on different data: what loaders give out before each backward."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.clauses.data import data
from fsdplint.verify.collective_log import Collective, State
from fsdplint.verify.events import Backward, Drawn, Event, Place, Started
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.verdict import Status, Verdict

LINE = Place("train.py", 7, "main")
SHARED = "all 2 ranks train on the same 3 batches"

SCRIPT = """
import sys
from collections import UserDict
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
words = sys.argv[1:]

def collate(rows):
    return UserDict(x=torch.stack(rows)) if "mapping" in words else torch.stack(rows)

def loader(rows):
    sampler = DistributedSampler(rows, shuffle=False) if "sampler" in words else None
    return DataLoader(rows, batch_size=2, sampler=sampler, collate_fn=collate)

model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(0)
rows = torch.ones(12, 4) if "constant" in words else torch.randn(12, 4)
evaluation = loader(torch.randn(12, 4))
for batch in loader(list(rows)):
    x = batch["x"] if "mapping" in words else batch
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    for _ in evaluation:
        pass
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("words", "status", "figures"),
    [
        ("", Status.VIOLATED, SHARED),
        ("mapping", Status.VIOLATED, SHARED),
        ("sampler", Status.CONFIRMED, "3 of 3 batches differ between ranks"),
        (
            "constant",
            Status.NOT_EXERCISED,
            "all ranks trained on the same batch, but one is too few to judge",
        ),
    ],
)
def test_batches_of_loaders_are_compared(
    verifier: Verifier, tmp_path: Path, words: str, status: Status, figures: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    result = verifier(tmp_path / "train.py", arguments=tuple(words.split()))
    (found,) = (verdict for verdict in result.verdicts if verdict.clause == "data")
    assert (found.status, found.figures) == (status, figures)


def run(*ranks: list[Event], groups: tuple[str, ...] = ("",)) -> Run:
    began = Started(0, 0, len(ranks), len(ranks), 1, "2.13.0", "cpu", True, 1.0)
    return Run(
        tuple(
            RankRun(number, (began, *events), tuple(map(collective, groups)), "")
            for number, events in enumerate(ranks)
        )
    )


def collective(group: str, operation: str = "all_reduce") -> Collective:
    return Collective(group, 0, operation, (), 4, 0, None, State.DONE, 0.0)


def trained(*digests: str, loss: str = "1.0") -> list[Event]:
    backward = Backward(0, loss, True, True, LINE)
    return [event for digest in digests for event in (Drawn(digest, LINE), backward)]


def judged(*ranks: list[Event], groups: tuple[str, ...] = ("",)) -> Verdict:
    return data.decide(run(*ranks, groups=groups))


def test_the_line_is_that_of_the_loop() -> None:
    found = judged(trained("a", "b"), trained("a", "b"))
    assert (found.status, found.places) == (Status.VIOLATED, (LINE,))


def test_a_batch_that_differs_once_is_enough() -> None:
    found = judged(trained("a", "b"), trained("a", "c"))
    assert found.figures == "1 of 2 batches differ between ranks"


def test_batches_without_a_backward_do_not_count() -> None:
    evaluated: list[Event] = [Drawn("x", LINE), Drawn("y", LINE)]
    assert judged(evaluated, evaluated).status is Status.NOT_EXERCISED


def test_ranks_in_groups_may_share_batches() -> None:
    same = [trained("a", "b")] * 4
    assert judged(*same, groups=("", "0,1,2,3")).status is Status.VIOLATED
    assert judged(*same, groups=("", "0,1/tp")).figures == (
        "all ranks get the same batches, and some ranks form process groups, which may split a "
        "batch"
    )


def test_a_rank_without_a_loader_shows_nothing() -> None:
    assert judged(trained("a", "b"), []).figures == (
        "not every rank ran a backward pass on a batch of a `DataLoader`"
    )


def test_a_batch_of_several_backwards_counts_once() -> None:
    twice: list[Event] = [e for event in trained("a", "b") for e in (event, event)]
    assert judged(twice, twice).figures == "all 2 ranks train on the same 2 batches"


def test_ranks_that_take_parts_of_a_batch_have_other_losses() -> None:
    assert judged(trained("a", "b"), trained("a", "b", loss="2.0")).figures == (
        "all ranks get the same batches, and their losses differ, so each may use a part of the "
        "batch"
    )


def test_ranks_that_divide_a_sequence_exchange_activations() -> None:
    given = run(trained("a", "b"), trained("a", "b"))
    exchanging = (collective("", "all_to_all_single"),)
    ranks = tuple(replace(rank, collectives=exchanging) for rank in given.ranks)
    assert data.decide(replace(given, ranks=ranks)).figures == (
        "all ranks get the same batches, and they exchange activations, as in sequence parallelism"
    )


def test_all_loaders_count_that_gave_something_to_a_backward() -> None:
    def both(own: str) -> list[Event]:
        backward = Backward(0, "1.0", True, True, LINE)
        batches = ((f"{own}1", "x"), (f"{own}2", "y"))
        return [e for o, s in batches for e in (Drawn(o, LINE), Drawn(s, LINE), backward)]

    assert judged(both("a"), both("b")).figures == "2 of 2 batches differ between ranks"
    assert judged(both("a"), both("a")).status is Status.VIOLATED


def test_batches_of_an_evaluation_in_the_loop_do_not_count() -> None:
    def rank(evaluated: str) -> list[Event]:
        backward = Backward(0, "1.0", True, True, LINE)
        elsewhere = Place("train.py", 20, "evaluate")
        return [
            e
            for number in "ab"
            for e in (Drawn(evaluated + number, elsewhere), Drawn(number, LINE), backward)
        ]

    assert judged(rank("x"), rank("y")).status is Status.VIOLATED
