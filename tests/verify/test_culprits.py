"""An optimizer of replaced parameters: the report names what replaced them, and its line."""

from __future__ import annotations

import pytest
from verifier import Verifier

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import distribute_tensor

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

def train(optimizer):
    for _ in range(2):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

def optimize():
    return torch.optim.SGD(model.parameters(), lr=0.1)

def shards():
    whole = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).state_dict()
    return {
        name: nn.Parameter(distribute_tensor(whole[name], p.device_mesh, p.placements))
        for name, p in model.named_parameters()
    }
"""
BY = {
    "sharding": ("optimizer = optimize()\nfully_shard(model)  # here", "sharding", 4),
    "assigned while it loads": (
        "fully_shard(model)\noptimizer = optimize()\n"
        "model.load_state_dict(shards(), assign=True)  # here",
        "`load_state_dict(assign=True)`",
        4,
    ),
    "storage": (
        "model.to('meta')\noptimizer = optimize()\nmodel.to_empty(device='cpu')  # here\n"
        "[layer.reset_parameters() for layer in model]\nfully_shard(model)",
        "`to_empty`",
        4,
    ),
    "conversion": (
        "optimizer = optimize()\ntorch.__future__.set_overwrite_module_params_on_conversion(True)\n"
        "model.double()  # here\n"
        "model = model.float()\nfully_shard(model)",
        "`double`",
        4,
    ),
    "one parameter": (
        "fully_shard(model)\noptimizer = optimize()\n"
        "model[1].bias = nn.Parameter(model[1].bias.detach().clone())  # here",
        "an assignment",
        1,
    ),
    "one module": (
        "optimizer = optimize()\nmodel[1] = nn.Linear(8, 8)  # here\n"
        "model = FullyShardedDataParallel(model, device_id=torch.device('cpu'), "
        "use_orig_params=True)",
        "an assignment",
        2,
    ),
}


@pytest.mark.parametrize("how", BY)
def test_what_replaced_the_parameters_is_named(verifier: Verifier, how: str) -> None:
    lines, by, number = BY[how]
    script = f"{HEAD}{lines}\ntrain(optimizer)\n"

    result = verifier(script, steps=None)

    assert [verdict.clause for verdict in result.violated] == ["optimizer"], result.failure
    (found,) = result.violated
    own = 0 if number == 4 else 4 - number
    assert found.figures == (
        f"`SGD` holds {number} parameter{'s'[: number != 1]} that {by} replaced "
        f"and {own} current ones: it does not train the replacement{'s'[: number != 1]}"
    )
    here = next(at for at, line in enumerate(script.splitlines(), 1) if line.endswith("# here"))
    assert here in {place.line for place in found.places}


def test_what_is_put_into_a_modules_dictionary_is_another(verifier: Verifier) -> None:
    put = "model[1]._parameters['bias'] = nn.Parameter(model[1].bias.detach().clone())"
    result = verifier(
        f"{HEAD}fully_shard(model)\noptimizer = optimize()\n{put}\ntrain(optimizer)\n", steps=None
    )

    (found,) = result.violated
    assert found.figures == (
        "`SGD` holds 1 parameter that an assignment replaced and 3 current ones: it does not train "
        "the replacement"
    )
    assert found.details == ("replaced: `1.bias`",)


@pytest.mark.parametrize(
    "lines",
    [
        "model[1] = nn.Linear(8, 8)\noptimizer.add_param_group({'params': model[1].parameters()})",
        "model[1] = nn.Identity()",
        "model[1] = nn.Linear(8, 8).requires_grad_(False)",
        "model[1] = nn.Sequential(model[1])",
    ],
    ids=["held again", "gone", "frozen", "wrapped"],
)
def test_what_the_optimizer_does_not_miss_is_no_matter(verifier: Verifier, lines: str) -> None:
    shard = (
        "model = FullyShardedDataParallel(model, device_id=torch.device('cpu'), "
        "use_orig_params=True)"
    )
    result = verifier(
        f"{HEAD}optimizer = optimize()\n{lines}\n{shard}\ntrain(optimizer)\n", steps=None
    )

    assert (result.violated, result.failure) == ((), "")
