"""The clause `async-saves`: what meets a save in the background, and what its thread raises."""

from __future__ import annotations

import pytest
import torch_release
from verifier import Verifier

from fsdplint.verify.verdict import Status

SCRIPT = """
import time
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

class Slow(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        time.sleep(1)
        return super().write_data(plan, planner)

class Failing(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        raise OSError("No space left on device")

dist.init_process_group("cpu:gloo,cuda:nccl")
torch.cuda.set_device(dist.get_rank())
model = fully_shard(nn.Linear(4, 4).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train():
    model(torch.randn(4, 4).cuda()).square().sum().backward()
    optimizer.step()

def save(name, writer=Slow):
    return dcp.async_save({{"model": model.state_dict()}}, storage_writer=writer(name))

train()
{saves}
"""
END = "dist.destroy_process_group()"
ALONE = (
    "state, own = {'m': model.weight.to_local()}, Slow(f'own{dist.get_rank()}')\n"
    f"dcp.async_save(state, storage_writer=own, no_dist=True)\n{END}",
    Status.NOT_EXERCISED,
    "`async_save` was never called",
    (),
)


@pytest.mark.parametrize(
    ("saves", "status", "figures", "lines"),
    [
        (
            f"one = save('one')\ntrain()\none.result()\nsave('two').result()\n{END}",
            Status.CONFIRMED,
            "2 saves finished in time: `one`, `two`",
            (),
        ),
        (
            f"save('one')\ntrain()\n{END}",
            Status.VIOLATED,
            "`one` was still being saved when the process group was destroyed",
            (26, 31),
        ),
        (
            f"save('one')\nlast = save('two')\nlast.exception()\n{END}",
            Status.VIOLATED,
            "`one` was still being saved when the next save started",
            (26,),
        ),
        (
            f"save('one', Failing)\ntime.sleep(1)\n{END}",
            Status.VIOLATED,
            "the asynchronous save of `one` failed: CheckpointException: CheckpointException "
            "ranks:dict_keys([0, 1]) … OSError: No space left on device",
            (26,),
        ),
        *[ALONE] * torch_release.SAVES_ALONE,
        ("save('one')", Status.CONFIRMED, "1 save finished in time: `one`", ()),
        (END, Status.NOT_EXERCISED, "`async_save` was never called", ()),
    ],
)
def test_what_becomes_of_saves(
    verifier: Verifier, saves: str, status: Status, figures: str, lines: tuple[int, ...]
) -> None:
    found = verifier(SCRIPT.format(saves=saves), steps=None)
    assert found.exit_code == (status is Status.VIOLATED)  # two saves at once may hang
    (verdict,) = (verdict for verdict in found.verdicts if verdict.clause == "async-saves")
    assert (verdict.status, verdict.figures) == (status, figures)
    assert tuple(place.line for place in verdict.places) == lines


def test_training_goes_on_beside_a_save_on_the_default_group(verifier: Verifier) -> None:
    train = "last = save('one')\nfor _ in range(20):\n    train()\nlast.result()\n"
    found = verifier(SCRIPT.format(saves=train + END), steps=None)
    assert (found.failure, found.exit_code) == ("", 0)
