"""Verifications made by hand, as runs would give them."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.verify.events import Memory, Parameter, Place, Snapshot, Unit
from fsdplint.verify.verdict import RankSummary, Status, Traffic, Verdict, Verification

SCRIPT = """\
import torch
from torch.distributed.fsdp import fully_shard

model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for block in model.blocks:
    fully_shard(block)
fully_shard(model)

model.forward(x).sum().backward()
optimizer.step()
"""

TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 10, in <module>
    model.forward(x).sum().backward()
    ~~~~~~~~~~~~~^^^
  File "/usr/lib/python3/site-packages/torch/nn/functional.py", line 2, in linear
    return torch._C._nn.linear(input, weight, bias)
RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor
  with a second line
"""

MIB = 2**20


def place(line: int, path: str = "train.py") -> Place:
    return Place(path, line, "<module>")


def confirmed(clause: str, figures: str) -> Verdict:
    return Verdict(clause, f"The contract of {clause}.", Status.CONFIRMED, figures)


def skipped(clause: str, figures: str) -> Verdict:
    return Verdict(clause, f"The contract of {clause}.", Status.NOT_EXERCISED, figures)


def violated(clause: str, figures: str, details: Sequence[str], *lines: int) -> Verdict:
    contract = f"The contract of {clause}, in one sentence."
    places = tuple(place(line) for line in lines)
    return Verdict(clause, contract, Status.VIOLATED, figures, tuple(details), places)


def parameter(
    name: str,
    shape: tuple[int, ...],
    rank: int,
    world: int,
    *,
    sharded: bool = True,
    held: tuple[int, ...] = (0,),
    ignored: bool = False,
) -> Parameter:
    """A parameter as `fully_shard` cuts it, or as it is without."""
    chunk = -(-shape[0] // world)
    rows = max(0, min(chunk, shape[0] - rank * chunk))
    return Parameter(
        name,
        shape,
        (rows, *shape[1:]) if sharded else shape,
        "float32",
        4,
        ("S(0)",) if sharded else (),
        (world,) if sharded else (),
        (),
        (rank,) if sharded else (),
        True,
        ignored,
        held,
    )


def block(name: str, number: int, rank: int, world: int, width: int = 16) -> Unit:
    parameters = (
        parameter(f"{name}.up.weight", (width, width), rank, world),
        parameter(f"{name}.up.bias", (width,), rank, world),
    )
    return Unit(name, "Block", "fsdp2", number, parameters)


def snapshot(rank: int, world: int, blocks: int, width: int = 16) -> Snapshot:
    """A root with an embedding of 7 rows, equal blocks, and a norm in no unit."""
    embedding = parameter("embedding.weight", (7, width), rank, world)
    units = [block(f"blocks.{n}", n, rank, world, width) for n in range(blocks)]
    return Snapshot(
        0,
        "Net",
        (Unit("", "Net", "fsdp2", blocks, (embedding,)), *units),
        (parameter("norm.weight", (width,), rank, world, sharded=False, ignored=True),),
        (),
        (),
        ("cpu",),
        0,
    )


TRAFFIC = (Traffic("all_gather", 24, 6144), Traffic("reduce_scatter", 12, 12288))


def summary(rank: int, ended: str = "steps", error: str = "", steps: int = 3) -> RankSummary:
    memory = Memory((314 + rank) * MIB, 300 * MIB, 0)
    traffic = TRAFFIC if steps else ()
    return RankSummary(rank, ended, error, steps, f"cpu (cuda:{rank})", memory, traffic)


def verification(
    verdicts: Sequence[Verdict],
    ranks: Sequence[RankSummary],
    *,
    blocks: int = 3,
    width: int = 16,
    failure: str = "",
    notes: tuple[str, ...] = (),
) -> Verification:
    """A run of `SCRIPT`; without blocks no model was sharded."""
    world = len(ranks)
    seen = {r.rank: (snapshot(r.rank, world, blocks, width),) if blocks else () for r in ranks}
    return Verification(
        "train.py",
        ("--lr", "0.1"),
        "2.13.0+cpu",
        "cpu (CUDA mapped to CPU)",
        world,
        9.84,
        tuple(verdicts),
        tuple(ranks),
        seen,
        notes,
        failure,
    )


OPTIMIZER = violated(
    "optimizer",
    "`AdamW` holds 8 parameters that sharding replaced and 0 current ones: it does not train them",
    ["replaced: `embedding.weight`, `blocks.0.up.weight`, `blocks.0.up.bias` and 5 more"],
    *(5, 7),
)
CONFIRMED = verification(
    [
        confirmed("device-per-rank", "2 ranks in one gloo group, each on its own device"),
        confirmed("units", "4 FSDP2 units"),
        confirmed(
            "parameters-change",
            "8 of 8 trainable parameters changed in each of 3 steps, on every rank that holds some",
        ),
        skipped("saves", "nothing was saved"),
    ],
    [summary(0), summary(1)],
)
VIOLATED = verification(
    [
        confirmed("device-per-rank", "2 ranks in one gloo group"),
        OPTIMIZER,
        violated("forward", "`Net.forward` bypasses the FSDP hooks (3 times)", [], 10),
        skipped("parameters-change", "see `optimizer`"),
    ],
    [summary(0), summary(1)],
)
EXPLAINED = verification(
    [violated("forward", "`Net.forward` bypasses the unit's FSDP hooks", [], 10)],
    [summary(rank, "crash", TRACEBACK, 0) for rank in range(2)],
    failure=f"rank 0 failed with RuntimeError: …\n{TRACEBACK}",
)
UNEXPLAINED = verification(
    [confirmed("units", "4 FSDP2 units"), skipped("optimizer", "no optimizer stepped")],
    [summary(0, "crash", TRACEBACK, 1), summary(1, "stuck", "", 1)],
    failure=f"rank 0 failed with RuntimeError: …\n{TRACEBACK}",
)
HANG = verification(
    [
        confirmed("units", "4 FSDP2 units"),
        violated(
            "collectives",
            "the ranks wait for each other: rank 0 in all_reduce, rank 1 in broadcast",
            [
                "rank 0 waits in all_reduce at train.py:10",
                "  train.py:10 in main",
                "  train.py:20 in <module>",
                "rank 1 waits in broadcast at train.py:11",
                "  train.py:11 in main",
            ],
            *(10, 11),
        ),
    ],
    [summary(rank, "stuck", "", 1) for rank in range(2)],
    failure="stopped after 4 s without an end",
)
LARGE = verification(
    [confirmed("units", "33 FSDP2 units")],
    [summary(rank) for rank in range(8)],
    blocks=32,
    width=4096,
)
BARE = verification([skipped("units", "no module was sharded")], [summary(0), summary(1)], blocks=0)

ALL = {
    "confirmed": CONFIRMED,
    "violated": VIOLATED,
    "explained": EXPLAINED,
    "unexplained": UNEXPLAINED,
    "hang": HANG,
    "large": LARGE,
    "bare": BARE,
}
