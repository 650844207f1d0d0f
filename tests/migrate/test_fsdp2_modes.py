"""Programs that choose between FSDP1 and DDP, and what mixed precision of FSDP1 does besides."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from plans import only_change, plan_of
from ranks import Ranks, report

from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.plan import Plan
from fsdplint.migrate.step import Change, Kept, Question

_HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""
planned = partial(plan_of, FSDP2)


def _body(plan: Plan) -> str:
    """Return what the program has below its imports."""
    text = only_change(plan)
    return text[text.index("\n\n\n") + 3 :]


_STEP = """

def step(model, optimizer, batches):
    *first, last = batches
{}
    loss(model, last).backward()
    optimizer.step()
    optimizer.zero_grad()


def accumulated(context, model, batch):
    with context():
        loss(model, batch).backward()


def loss(model, batch):
    return model(batch).square().mean()


model = FSDP(nn.Linear(4, 4))
step(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(4, 2, 4))
"""
_DEFINED = '''@{}
def without_gradient_sync(model):
    """Accumulate gradients without reducing them."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            """\
    with contextlib.ExitStack() as stack:
        stack.enter_context(model.no_sync())
        for batch in first:
            loss(model, batch).backward()""",
            """\
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_gradient_sync(model))
        for batch in first:
            loss(model, batch).backward()""",
        ),
        (
            """\
    for batch in first:
        accumulated(model.no_sync, model, batch)""",
            """\
    for batch in first:
        accumulated(functools.partial(without_gradient_sync, model), model, batch)""",
        ),
    ],
)
def test_a_context_that_goes_elsewhere_becomes_one_of_the_file(
    before: str, after: str, tmp_path: Path
) -> None:
    head = f"import contextlib\nimport functools\n\n{_HEAD}"
    text = head + _STEP.format(before)
    asked = [entry.key for entry in planned(tmp_path, text).of(Question)]
    found = _body(planned(tmp_path, text, dict.fromkeys(asked, "yes")))
    start = _DEFINED.format("contextlib.contextmanager")
    wanted = start + _STEP.format(after).lstrip().replace(
        "model = FSDP(nn.Linear(4, 4))", "model = nn.Linear(4, 4)\nfully_shard(model)"
    )
    assert found == wanted


_MODES = """\
import argparse
import contextlib
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel as DDP


def main(args):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    policy, cpu = ModuleWrapPolicy({nn.Linear}), torch.device("cpu")
    model = DDP(net) if args.ddp else FSDP(net, auto_wrap_policy=policy, device_id=cpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    losses = [float(model.module[0].in_features)]
    for step in range(4):
        with model.no_sync() if step in (0, 2) else contextlib.nullcontext():
            loss = model(torch.randn(2, 4)).square().mean()
            loss.backward()
        losses.append(loss.item())
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    torch.save(losses, f"{args.folder}/{dist.get_rank()}.pt")


parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--ddp", action="store_true")
main(parser.parse_args())
"""
_COMPARE = """
import sys
import torch

for rank in range(2):
    before, after = (torch.load(f"{folder}/{rank}.pt") for folder in sys.argv[1:])
    assert before == after, (before, after)
"""


def test_both_modes_of_a_program_train_the_same(tmp_path: Path, ranks: Ranks) -> None:
    after = only_change(planned(tmp_path, _MODES))
    assert "    if args.ddp:\n        model = DDP(net)\n    else:\n        model = net\n" in after
    assert "with without_gradient_sync(model) if step in (0, 2) else" in after
    assert 'getattr(model, "module", model)[0].in_features' in after
    for mode in ((), ("--ddp",)):
        _run_both(_MODES, after, tmp_path / "".join(("mode", *mode)), ranks, *mode)


def _run_both(before: str, after: str, folder: Path, ranks: Ranks, *options: str) -> None:
    """Run a program and the migrated one, and compare what their ranks wrote."""
    folders = [folder / "before", folder / "after"]
    for text, each in zip((before, after), folders, strict=True):
        each.mkdir(parents=True)
        arguments = [str(each), *options]
        assert not report(ranks.run(text, arguments=arguments))
    assert not report(ranks.run(_COMPARE, arguments=list(map(str, folders)), world_size=1))


_PRECISION = """\
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.norm = nn.Sequential(nn.BatchNorm1d(8))
        self.register_buffer("offset", torch.linspace(0, 1, 8))

    def forward(self, x):
        return self.norm(self.layer(x + self.offset))


torch.manual_seed(0)
half = MixedPrecision(
    param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16
)
model = nn.Sequential(Block(), Block(), nn.Linear(8, 2))
model = FSDP(
    model,
    mixed_precision=half,
    auto_wrap_policy=POLICY,
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
found = []
for _ in range(3):
    loss = model(torch.randn(4, 8)).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    found.append(loss.item())
found += [(str(each.dtype), each.tolist()) for each in model.buffers()]
found += [n.replace("_fsdp_wrapped_module.", "").replace("_fsdp_wrapped_module", "")
          for n, m in model.named_modules() if isinstance(m, FSDP)]
torch.save(found, f"{sys.argv[1]}/{dist.get_rank()}.pt")
"""


@pytest.mark.parametrize(
    "policy",
    [
        "ModuleWrapPolicy({Block})",
        "functools.partial(size_based_auto_wrap_policy, min_num_params=80)",
    ],
)
def test_buffers_are_cast_and_batch_norms_are_not(
    policy: str, tmp_path: Path, ranks: Ranks
) -> None:
    before = f"import functools\n{_PRECISION.replace('POLICY', policy)}"
    after = only_change(planned(tmp_path, before))
    assert (
        """\
for module in model.modules():
    if isinstance(module, _BatchNorm):
        fully_shard(
            module,
            mp_policy=MixedPrecisionPolicy(
                param_dtype=torch.float32, output_dtype=half.param_dtype
            ),
            **fsdp_settings,
        )
"""
        in after
    )
    assert after.count("buffer.data = buffer.to(half.param_dtype)") == 1
    _run_both(before, after, tmp_path / "runs", ranks)


def test_batch_norms_that_another_policy_may_select_are_kept(tmp_path: Path) -> None:
    before = """\
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import always_wrap_policy

half = MixedPrecision(param_dtype=torch.half)
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
model = FSDP(model, mixed_precision=half, auto_wrap_policy=always_wrap_policy)
"""
    assert _reasons(planned(tmp_path, _HEAD + before)) == [
        "FSDP1 keeps batch norms in float32; shard them with a policy of their own by hand"
    ]


def _reasons(plan: Plan) -> list[str]:
    assert not plan.is_complete
    return [each.found.reason for each in plan.entries if isinstance(each.found, Kept)]


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (
            "model = (DDP if replicated else FSDP)(net)",
            "if replicated:\n    model = DDP(net)\nelse:\n    model = net\n    fully_shard(model)",
        ),
        (
            "wrapper = FSDP if sharded else DDP\nmodel = wrapper(net)",
            "if sharded:\n    model = net\n    fully_shard(model)\nelse:\n    model = DDP(net)",
        ),
        (
            "net = net if plain() else FSDP(net, mixed_precision=half())",
            "if not plain():\n    mp_policy = half() or MixedPrecisionPolicy()\n"
            "    fully_shard(net, mp_policy=mp_policy)",
        ),
    ],
)
def test_a_choice_in_an_expression_becomes_a_statement(
    line: str, after: str, tmp_path: Path
) -> None:
    head = f"{_HEAD}from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
    found = only_change(planned(tmp_path, f"{head}\n{line}\n"))
    assert found.endswith(f"\n{after}\n")


def test_a_choice_in_a_larger_expression_is_kept(tmp_path: Path) -> None:
    line = "model = nn.Sequential(FSDP(net, device_id=rank) if sharded else net)"
    assert _reasons(planned(tmp_path, f"{_HEAD}\n{line}\n")) == [
        "the call is in an expression that may skip or repeat it; move it out"
    ]


_NAME = "`fully_shard` adds nothing to the names of modules and parameters; change this by hand"


@pytest.mark.parametrize(
    ("line", "reasons"),
    [
        ('name = name.replace("_fsdp_wrapped_module.", "")', []),
        ('if "_flat_param" in name:\n    name = name.replace("_flat_param", "")', []),
        ('print("init_flat_param_attributes", "a _flat_param of FSDP1")', []),
        ('units = [n for n, _ in modules if "_fsdp_wrapped_module" in n]', [_NAME]),
        ('head = model.get_submodule("_fsdp_wrapped_module.head")', [_NAME]),
    ],
)
def test_names_that_only_fsdp1_gives(line: str, reasons: list[str], tmp_path: Path) -> None:
    plan = planned(tmp_path, f"{_HEAD}\nmodel = FSDP(net)\n{line}\n")
    assert [each.found.reason for each in plan.entries if isinstance(each.found, Kept)] == reasons


def test_wrapped_modules_that_no_path_reaches_are_read_from_the_model(tmp_path: Path) -> None:
    text = f"""{_HEAD}
model = FSDP(net)


def inner(models, name):
    return models[name]._fsdp_wrapped_module
"""
    assert only_change(planned(tmp_path, text)).endswith("    return models[name]\n")


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["ACCELERATE_USE_FSDP"] = "true"',
        'os.environ.setdefault("ACCELERATE_USE_FSDP", "true")',
        'os.environ.update({"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": "1"})',
    ],
)
def test_variables_that_python_sets_are_kept(line: str, tmp_path: Path) -> None:
    text = f"import os\n\nfrom accelerate import Accelerator\n\n{line}\nprint(Accelerator())\n"
    assert _reasons(planned(tmp_path, text)) == [
        "accelerate shards with FSDP1 by this variable; set `FSDP_VERSION` to 2 and the variables "
        "that FSDP2 reads by hand"
    ]
    asked = text.replace("USE_FSDP", "USE_FSDP_").replace(line, f"print({line!r})")
    assert not planned(tmp_path, asked).entries


_COMBINED = (
    "it combines what ranks compute from FSDP1's shards; of FSDP2's DTensors, PyTorch computes it "
    "of all ranks already: compute it without this call by hand"
)


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        ("total = sum(p.grad.norm() ** 2 for p in model.parameters())\n    {}", [_COMBINED]),
        (
            "total = torch.zeros((), device=next(model.parameters()).device)\n"
            "    for p in model.parameters():\n"
            "        total += p.grad.detach().norm(2) ** 2\n    {}",
            [_COMBINED],
        ),
        ("total = torch.zeros(1, device=next(model.parameters()).device)\n    {}", []),
        ("total = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()\n    {}", []),
        (
            "optimizer = torch.optim.SGD(model.parameters())\n"
            "    total = trained(model, optimizer)\n    {}",
            [],
        ),
        ("total = sum(p.numel() for p in head.weights.parameters())\n    {}", []),
    ],
)
def test_reductions_by_hand_are_kept(lines: str, reasons: list[str], tmp_path: Path) -> None:
    text = f"""import torch.distributed as dist
{_HEAD}
model = FSDP(net, use_orig_params=True)


def log(model, head):
    {lines.format("dist.all_reduce(total)")}
    return total
"""
    plan = planned(tmp_path, text)
    assert [each.found.reason for each in plan.entries if isinstance(each.found, Kept)] == reasons


@pytest.mark.parametrize(
    ("test", "place", "kept"),
    [
        ("module.__class__.__name__ == name", "below", True),
        ("type(module).__name__ == name", "below", True),
        ("module.__class__.__name__ == name", "above", False),
        ("module.name == name", "below", False),
    ],
)
def test_a_class_is_found_by_its_name(test: str, place: str, kept: bool, tmp_path: Path) -> None:
    find = 'print(found(net, "Block"))'
    text = f"""{_HEAD}

def found(net, name):
    return [module for module in net.modules() if {test}]


{find if place == "above" else ""}
net = FSDP(net)
{find if place == "below" else ""}
"""
    plan = planned(tmp_path, text)
    reasons = [each.found.reason for each in plan.entries if isinstance(each.found, Kept)]
    wanted = "FSDP2 gives a sharded module a class of another name, such as `FSDPBlock`; find the"
    assert [reason.startswith(wanted) for reason in reasons] == [True] * kept


@pytest.mark.parametrize("gathers", [True, False])
def test_collectives_on_what_a_function_gathers_stay(gathers: bool, tmp_path: Path) -> None:
    block = "with FSDP.summon_full_params(model, writeback=False):" if gathers else "if True:"
    text = f"""import torch.distributed as dist
{_HEAD}

def sums(model):
    {block}
        whole = [p.detach().clone() for p in model.parameters()]
    return torch.cat([each.float().sum().reshape(1) for each in whole])


model = FSDP(torch.nn.Linear(4, 4), use_orig_params=True)
found = sums(model)
every = [torch.zeros_like(found) for _ in range(2)]
dist.all_gather(every, found)
"""
    assert planned(tmp_path, text).is_complete is gathers


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("print(number(model) * world_size)", True),
        ("print(dist.get_world_size() * sum(p.numel() for p in model.parameters()))", True),
        ("print(sum(p.numel() * p.element_size() for p in model.parameters()))", False),
        ("print(len(batch) * world_size)", False),
    ],
)
def test_counts_of_all_ranks_are_said_to_differ(line: str, said: bool, tmp_path: Path) -> None:
    text = f"""import torch.distributed as dist
{_HEAD}

def number(model):
    return sum(p.numel() for p in model.parameters())


model = FSDP(net)
{line}
"""
    plan = planned(tmp_path, text)
    found = [e.found.differs for e in plan.entries if isinstance(e.found, Change)]
    wanted = "FSDP2 counts whole parameters, so the product is too large"
    assert (plan.is_complete, wanted in found) == (True, said)


def test_numbers_by_which_an_optimizer_steps_are_said_to_differ(tmp_path: Path) -> None:
    text = f"""{_HEAD}

class Scaled(torch.optim.Optimizer):
    def step(self):
        for p in self.param_groups[0]["params"]:
            p.data.sub_(p.grad, alpha=0.1 * p.norm())


class Report:
    def norm(self, p):
        return p.norm()


model = FSDP(net, use_orig_params=True)
"""
    plan = planned(tmp_path, text)
    assert plan.is_complete
    assert [(e.line, e.found.differs) for e in plan.entries if isinstance(e.found, Change)] == [
        (9, "it is of the whole tensor, no longer of each rank's own shard, so training changes"),
        (17, ""),
    ]
