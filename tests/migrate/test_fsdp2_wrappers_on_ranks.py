"""A migrated program has the units of FSDP1, and trains to the same numbers, on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import Ranks, report

from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.plan import make_plan
from fsdplint.migrate.step import Question

_MODEL = """\
import functools
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import *


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, 8)
        self.register_buffer("scale", torch.ones(8), persistent=False)

    def forward(self, x, mask):
        # The mask is float32: FSDP1 casts the inputs of the root alone.
        scale = self.scale.to(x.dtype) * mask.mean().to(x.dtype)
        return x + self.second(self.first(x).relu()) * scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for width in (4, 16, 64))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        mask = torch.ones(8, dtype=torch.float32) / 3
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)

"""
_TRAIN = """

def materialized(module):
    module.to_empty(device="cpu", recurse=False)
    for parameter in module.parameters(recurse=False):
        nn.init.constant_(parameter, 1 / parameter.numel())
    for buffer in module.buffers(recurse=False):
        nn.init.ones_(buffer)


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device(DEVICE):
    model = Net()
model = wrapped(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
losses = []
for _ in range(3):
    loss = model(torch.randn(4, 8)).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
units = [n.replace("_fsdp_wrapped_module", "").replace("..", ".").strip(".")
         for n, m in model.named_modules() if isinstance(m, FSDP)]
torch.save((losses, sorted(units)), f"{sys.argv[1]}/{dist.get_rank()}.pt")
dist.destroy_process_group()
"""
_COMPARE = """
import sys
import torch

for rank in range(2):
    before, after = (torch.load(f"{folder}/{rank}.pt") for folder in sys.argv[1:])
    assert before == after, (before, after)
"""
_CPU = 'device_id=torch.device("cpu")'
_WRAPPERS = {
    "by class": f"auto_wrap_policy=ModuleWrapPolicy({{Block}}), {_CPU}",
    "by a partial": f"auto_wrap_policy=ModuleWrapPolicy({{Block}}), {_CPU}",
    "by size": (
        "auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=300), "
        f"{_CPU}"
    ),
    "by a function": (
        "auto_wrap_policy=functools.partial(lambda_auto_wrap_policy, "
        f"lambda_fn=lambda m: isinstance(m, nn.Linear) and m.in_features == 8), {_CPU}"
    ),
    "in bfloat16": (
        "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16), "
        f"auto_wrap_policy=ModuleWrapPolicy({{Block}}), {_CPU}"
    ),
    "meta, initialized before": f"param_init_fn=materialized, {_CPU}",
    "meta, initialized after": f"param_init_fn=materialized, {_CPU}",
    "on a mesh": (
        "device_mesh=init_device_mesh('cpu', (1, 2)), "
        f"sharding_strategy=ShardingStrategy.HYBRID_SHARD, use_orig_params=True, {_CPU}"
    ),
    "not sharded": f"sharding_strategy=ShardingStrategy.NO_SHARD, use_orig_params=True, {_CPU}",
}


@pytest.mark.parametrize("name", _WRAPPERS)
def test_units_and_losses_are_equal(name: str, tmp_path: Path, ranks: Ranks) -> None:
    wrapper = f"def wrapped(model):\n    return FSDP(model, {_WRAPPERS[name]})\n"
    if name == "by a partial":
        wrapper = (
            f"def wrapped(model):\n    wrapper = functools.partial(FSDP, {_WRAPPERS[name]})\n"
            "    return wrapper(model)\n"
        )
    script, folders = tmp_path / "train.py", [tmp_path / "before", tmp_path / "after"]
    (tmp_path / "pyproject.toml").touch()
    device = "meta" if "meta" in name else "cpu"
    script.write_text(f"{_MODEL}DEVICE = {device!r}\n\n\n{wrapper}{_TRAIN}")
    plan = make_plan(FSDP2, [str(script)], {})
    answers = {entry.key: name.split()[-1] for entry in plan.of(Question)}
    assert len(answers) == name.startswith("meta")
    plan = make_plan(FSDP2, [str(script)], answers)
    assert plan.is_complete, [entry.found for entry in plan.entries]
    ((old, new),) = plan.files
    for text, folder in zip((old.text, new.text), folders, strict=True):
        folder.mkdir()
        assert not report(ranks.run(text, arguments=[str(folder)], process_group=False))
    compared = ranks.run(_COMPARE, arguments=list(map(str, folders)), world_size=1)
    assert not report(compared)


@pytest.mark.parametrize("empty", ["with torch.device('meta'):", "if True:"])
def test_what_fsdp1_resets_on_meta_is_reset(empty: str, tmp_path: Path, ranks: Ranks) -> None:
    """Without `param_init_fn`, FSDP1 calls `reset_parameters` of what is on the meta device."""
    script = tmp_path / "train.py"
    (tmp_path / "pyproject.toml").touch()
    emptied = ".to_empty(device='meta')" * empty.startswith("if")
    script.write_text(f"""{_MODEL}
dist.init_process_group("gloo")
torch.manual_seed(0)
expected = nn.Linear(4, 2)
{empty}
    model = nn.Sequential(nn.Linear(4, 2)){emptied}
torch.manual_seed(0)
model = FSDP(model, {_CPU})
print(model)
""")
    check = """
assert not any(tensor.is_meta for tensor in model.parameters())
assert torch.equal(model[0].weight.full_tensor(), expected.weight)
"""
    (question,) = make_plan(FSDP2, [str(script)], {}).of(Question)
    for answer in ("before", "after"):
        ((_, new),) = make_plan(FSDP2, [str(script)], {question.key: answer}).files
        assert not report(ranks.run(new.text + check * (answer == "before"), process_group=False))


@pytest.mark.parametrize("only_rank_0", [False, True])
def test_every_rank_begins_with_the_state_of_rank_0(
    only_rank_0: bool, tmp_path: Path, ranks: Ranks
) -> None:
    init = "lambda m: m.to_empty(device=torch.device('cpu'), recurse=False)"
    given = f", param_init_fn=({init}) if dist.get_rank() else None" if only_rank_0 else ""
    wrapper = f"def wrapped(model):\n    return FSDP(model, sync_module_states=True{given})\n"
    check = f"""

torch.manual_seed(0)
expected = Net()
nn.init.constant_(expected.blocks[0].scale, 0.5)
torch.manual_seed(dist.get_rank())
with torch.device("meta" if {only_rank_0} and dist.get_rank() else "cpu"):
    model = Net()
if not model.head.weight.is_meta:
    nn.init.constant_(model.blocks[0].scale, 0.5 + dist.get_rank())
model = wrapped(model)
for (name, tensor), (_, wanted) in zip(model.named_parameters(), expected.named_parameters()):
    assert torch.equal(tensor.full_tensor(), wanted), name
for (name, tensor), (_, wanted) in zip(model.named_buffers(), expected.named_buffers()):
    assert torch.equal(tensor, wanted), name
"""
    script = tmp_path / "train.py"
    (tmp_path / "pyproject.toml").touch()
    script.write_text(f"{_MODEL}{wrapper}{check}")
    ((_, new),) = make_plan(FSDP2, [str(script)], {}).files
    text = new.text.replace('device="cuda"', 'device="cpu"')
    assert not report(ranks.run(text))


def test_ranks_may_use_different_parameters(tmp_path: Path, ranks: Ranks) -> None:
    (tmp_path / "pyproject.toml").touch()
    script = tmp_path / "train.py"
    chosen = "if (x > 0.9).any():\n            x = x + self.head(x).sum()\n        return x"
    model = _MODEL.replace("return self.head(x)\n\n", f"{chosen}\n\n")
    wrapper = f"def wrapped(model):\n    return FSDP(model, {_CPU})\n"
    train = _TRAIN.replace("torch.randn(4, 8)", "torch.full((4, 8), 1.0 * (_ == dist.get_rank()))")
    script.write_text(f"{model}DEVICE = 'cpu'\n\n\n{wrapper}{train}")
    ((old, new),) = make_plan(FSDP2, [str(script)], {}).files
    folders = [tmp_path / "before", tmp_path / "after"]
    for text, folder in zip((old.text, new.text), folders, strict=True):
        folder.mkdir()
        assert not report(ranks.run(text, arguments=[str(folder)], process_group=False))
    compared = ranks.run(_COMPARE, arguments=list(map(str, folders)), world_size=1)
    assert not report(compared)


def test_averages_are_evaluated_and_updated(tmp_path: Path, ranks: Ranks) -> None:
    (tmp_path / "pyproject.toml").touch()
    script = tmp_path / "train.py"
    script.write_text(f"""{_MODEL}
def update(ema, model):
    with torch.no_grad():
        for e, p in zip(ema.parameters(), model.parameters()):
            e.lerp_(p, 0.5)


dist.init_process_group("gloo")
torch.manual_seed(0)
model, ema = (FSDP(Net(), {_CPU}) for _ in range(2))
for _ in range(2):
    update(ema, model)
    with torch.no_grad():
        found = ema(torch.ones(2, 8))
dist.destroy_process_group()
""")
    check = """
torch.manual_seed(0)
model, ema = Net(), Net()
update(ema, model)
update(ema, model)
assert torch.equal(found, ema(torch.ones(2, 8)))
"""
    ((old, new),) = make_plan(FSDP2, [str(script)], {}).files
    assert not report(ranks.run(old.text, process_group=False))
    assert not report(ranks.run(f"{new.text}{check}", process_group=False))
