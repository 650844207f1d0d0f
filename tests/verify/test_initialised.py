"""Uninitialized parameters and buffers are named, and so is the origin of a NaN."""

from __future__ import annotations

import pytest
from verifier import Verifier

from fsdplint.verify.verdict import Verdict, Verification

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 4)
        self.register_buffer("frequencies", torch.ones(8))
        self.register_buffer("counts", torch.zeros(8, dtype=torch.long))
        self.register_buffer("cache", torch.zeros(3, 4))

    def reset_parameters(self):
        self.embed.reset_parameters()

    def forward(self, x):
        x = self.embed(x) * self.frequencies
        for block in self.blocks:
            x = block(x)
        y = self.head(x)
        self.cache[:2] = y.detach()[:2]
        return y

def shard(model, mesh=None):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)

def train(model, steps=2, loss=lambda y: y.square().mean()):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss(model(torch.arange(4))).backward()
        optimizer.step()
        optimizer.zero_grad()

with torch.device("meta"):
    model = Net()
"""
RESET = "\nfor m in model.modules():\n    hasattr(m, 'reset_parameters') and m.reset_parameters()\n"
LINEAR = (
    "for m in model.modules():\n    if isinstance(m, nn.Linear):\n"
    "        nn.init.ones_(m.weight)\n        m is model.head or nn.init.zeros_(m.bias)\n"
)
BUFFERS = "model.frequencies.fill_(1)\n"


def clause(result: Verification, name: str = "initialised") -> Verdict:
    return next(verdict for verdict in result.verdicts if verdict.clause == name)


def line(script: str) -> int:
    return next(at for at, text in enumerate(script.splitlines(), 1) if text.endswith("# here"))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_reset_of_the_root_alone(verifier: Verifier, device: str) -> None:
    """The shape of PyTorch's example: only the root's own method is called after `to_empty`."""
    script = (
        f"{HEAD}model.to_empty(device='meta')\nshard(model)\n"
        f"model.to_empty(device='{device}')  # here\n"
        f"model.reset_parameters()\n{BUFFERS}train(model)\n"
    )
    result = verifier(script)

    assert [verdict.clause for verdict in result.violated] == ["initialised"], result.failure
    found = clause(result)
    assert found.figures == (
        "10 of 14 parameters and buffers never initialized, so training starts from arbitrary "
        "memory: "
        "`blocks.0.up.weight`, `blocks.0.up.bias`, `blocks.0.down.weight`, `blocks.0.down.bias`, "
        "`blocks.1.up.weight`, `blocks.1.up.bias` and 4 more"
    )
    assert [place.line for place in found.places] == [line(script)]
    loss = clause(result, "loss")
    assert (loss.status.value, loss.figures) == (
        "not exercised",
        "loss is nan; values are uninitialized (see `initialised`)",
    )


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (f"shard(model)\nmodel.to_empty(device='cpu'){RESET}", "`frequencies`"),
        (
            f"shard(model)\nmodel.to_empty(device='cpu')\n{BUFFERS}{LINEAR}"
            "model.embed.reset_parameters()\n"
            "with torch.no_grad():\n    model.head.bias.to_local()[:1] = 0\n",
            "`head.bias`",
        ),
        (
            "for m in model.modules():\n    for key, p in list(m._parameters.items()):\n"
            "        setattr(m, key, nn.Parameter(torch.empty_like(p, device='cpu')))\n"
            "    for key, b in list(m._buffers.items()):\n"
            "        m.register_buffer(key, torch.ones_like(b, device='cpu'))\n"
            f"shard(model)\n{LINEAR}nn.init.zeros_(model.head.bias)\n",
            "`embed.weight`",
        ),
    ],
    ids=["a buffer", "a part", "by hand"],
)
def test_what_nobody_wrote_is_named(verifier: Verifier, lines: str, name: str) -> None:
    result = verifier(f"{HEAD}{lines}train(model)\n")

    assert [verdict.clause for verdict in result.violated] == ["initialised"], result.failure
    found = clause(result)
    assert found.figures.startswith("1 of 14 parameters and buffers never initialized")
    assert found.figures.endswith(name)
    partly = (
        ("`head.bias`: 1 of 2 elements uninitialized on ranks 0, 1",)
        if name == "`head.bias`"
        else ()
    )
    assert found.details == partly


@pytest.mark.parametrize(
    "lines",
    [
        f"shard(model)\nmodel.to_empty(device='cpu'){RESET}{BUFFERS}",
        f"model.to_empty(device='cpu')\nshard(model){RESET}{BUFFERS}",
        "shard(model)\nmodel.to_empty(device='cpu')\nset_model_state_dict(model, "
        "Net().state_dict(), options=StateDictOptions(full_state_dict=True))\n",
        "model.to_empty(device='cpu')\nif dist.get_rank() == 0:\n"
        "    model.load_state_dict(Net().state_dict())\n"
        "for tensor in model.state_dict().values():\n    dist.broadcast(tensor, 0)\nshard(model)\n",
        f"model.to_empty(device='cpu'){RESET}{BUFFERS}"
        "model = FullyShardedDataParallel(model, device_id=torch.device('cpu'), "
        "auto_wrap_policy=torch.distributed.fsdp.wrap.ModuleWrapPolicy({Block}))\n",
        "model = FullyShardedDataParallel(Net() if dist.get_rank() == 0 else model, "
        "device_id=torch.device('cpu'), sync_module_states=True, param_init_fn=None if "
        "dist.get_rank() == 0 else lambda m: m.to_empty(device='cpu', recurse=False), "
        "auto_wrap_policy=torch.distributed.fsdp.wrap.ModuleWrapPolicy({Block}))\n",
    ],
    ids=["reset", "reset shards", "loaded", "broadcast", "FSDP1", "FSDP1 from rank 0"],
)
def test_what_somebody_wrote_is_confirmed(verifier: Verifier, lines: str) -> None:
    result = verifier(f"{HEAD}{lines}train(model)\n")

    assert (result.violated, result.failure) == ((), "")
    found = clause(result)
    assert found.status.value == "confirmed"
    assert found.figures.endswith(" parameters and buffers initialized after allocation")


def test_what_is_still_on_the_meta_device_is_violated(verifier: Verifier) -> None:
    result = verifier(f"{HEAD}shard(model)\ntrain(model)  # here\n")

    assert [verdict.clause for verdict in result.violated] == ["initialised"], result.failure
    assert clause(result).figures == (
        "parameters are still on the meta device at the first forward"
    )


@pytest.mark.parametrize("same", [True, False])
def test_replicas_begin_equal(verifier: Verifier, same: bool) -> None:
    seed = 0 if same else "dist.get_rank()"
    result = verifier(
        f"{HEAD}torch.manual_seed({seed})\n"
        "mesh = init_device_mesh('cpu', (2, 1), mesh_dim_names=('replicate', 'shard'))\n"
        "model = shard(Net(), mesh)\ntrain(model)\n"
    )

    assert [v.clause for v in result.violated] == ([] if same else ["initialised"])
    found = clause(result)
    if same:
        assert found.figures == "11 replicated parameters equal at the start"
    else:
        assert found.figures.startswith("replicas of 11 parameters differ between ranks before the")


@pytest.mark.parametrize(
    ("lines", "details"),
    [
        (
            "model = shard(Net())\nwith torch.no_grad():\n"
            "    model.blocks[1].down.bias.fill_(float('nan'))\ntrain(model)\n",
            "first NaN: output of `blocks.1.down` (`Linear`) on rank 0 at step 1; "
            "its input has none, its parameters have one",
        ),
        (
            "model = shard(Net())\ntrain(model, 1, lambda y: (y.sum() - 2e38) * 3e38 * 0)\n",
            "no module returned a NaN",
        ),
    ],
    ids=["a module", "the loss"],
)
def test_a_nan_is_followed_to_its_module(verifier: Verifier, lines: str, details: str) -> None:
    result = verifier(f"{HEAD}{lines}")

    assert [verdict.clause for verdict in result.violated] == ["loss"], result.failure
    assert details in clause(result, "loss").details
