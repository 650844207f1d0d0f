"""Where there is CUDA, nothing stands for it: the observer leaves PyTorch's own in place."""

from __future__ import annotations

from ranks import Ranks, report

CODE = """
from pathlib import Path
from types import ModuleType
import torch
import torch._dynamo
import torch.distributed.fsdp

OWNERS = [torch, torch.cuda, torch.cuda.memory, torch.cuda.streams, torch.accelerator, torch.Tensor,
          torch.autocast, torch._C, torch.nn.parallel.DistributedDataParallel]

def members():
    return [{name: id(value) for name, value in vars(owner).items()
             if not isinstance(value, ModuleType)} for owner in OWNERS]

def changed(before):
    return {name for old, new in zip(before, members()) for name in new
            if old.get(name) != new[name] and not name.startswith("__")}

before = members()
from fsdplint.verify.events import Started
from fsdplint.verify.journal import read
from fsdplint.verify.rank import observer
from fsdplint.verify.rank.recorder import Recorder
from fsdplint.verify.request import Request

print("by imports:", *sorted(changed(before)))
torch.cuda.is_available = lambda: CUDA
torch.cuda.device_count = lambda: 1
before = members()
folder = Path.cwd()
observer.Observer(Recorder(folder, folder, 0, Request("train.py")), 0.0).start()
(started,) = [event for event in read(folder / "0.jsonl") if isinstance(event, Started)]
print("by start:", *sorted(changed(before)))
print(started.device, started.shimmed)
"""


WATCHED = "empty_like save"
"""What probes follow, with CUDA or without."""


def said(ranks: Ranks, cuda: bool) -> list[str]:
    code = f"CUDA = {cuda}\n{CODE}"
    outcomes = ranks.run(code, world_size=1, process_group=False)
    assert not report(outcomes), report(outcomes)
    return outcomes[0].output.splitlines()


def test_nothing_is_replaced_where_there_is_cuda(ranks: Ranks) -> None:
    assert said(ranks, cuda=True) == ["by imports:", f"by start: {WATCHED}", "cuda False"]


def test_without_it_all_is(ranks: Ranks) -> None:
    imports, start, device = said(ranks, cuda=False)
    assert (imports, device) == ("by imports:", "cpu True")
    assert {"cuda", "current_device", "is_available"} <= {*start.split()}
