"""DDP's wrapper becomes `fully_shard`, and the code around it takes and gives whole states."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent, indent

import pytest
import torch
from limits import limit
from plans import only_change, plan_of
from ranks import Ranks, report

from fsdplint.migrate.ddp import DDP
from fsdplint.migrate.plan import Plan, make_plan
from fsdplint.migrate.step import Kept, Question
from fsdplint.migrate.text import plan_as_text

_HEAD = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
"""
_COPY = '''\
def copy_buffers(model, *_):
    """Give every rank the buffers of rank 0 if they may differ, as DistributedDataParallel does."""
    if getattr(model, "buffers_may_differ", True):
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
    model.buffers_may_differ = torch.is_grad_enabled()


'''
_HEAD_AFTER = _HEAD.replace(
    "from torch.nn.parallel import DistributedDataParallel as DDP\n\n",
    f"from torch.distributed.fsdp import fully_shard\n\n\n{_COPY}",
)
_SHARDED_ALONE = """\
for tensor in (*model.parameters(), *model.buffers()):
    dist.broadcast(tensor.detach(), src=0)
fully_shard(model)
"""
_HOOK = "model.register_forward_pre_hook(copy_buffers)\n"
_SHARDED = _HOOK + _SHARDED_ALONE
_FULL = "options=StateDictOptions(full_state_dict=True, cpu_offload=True)"


planned = partial(plan_of, DDP)


def migrated(folder: Path, plan: Plan) -> str:
    """Return the only changed file, of a plan that is complete."""
    after = only_change(plan)
    assert planned(folder, after).entries == (), "a second migration finds something"
    return after


_PROGRAMS = {
    "same name": ("model = DDP(model)  # all\n", _SHARDED.rstrip() + "  # all\n"),
    "its own device": (
        "model = DDP(model, device_ids=[int(os.environ['LOCAL_RANK'])])\n",
        f"torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n{_SHARDED}",
    ),
    "the device of its model": (
        "model.to('cuda' if torch.cuda.is_available() else 'cpu')\nmodel = DDP(model)\n",
        "model.to('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "if next(model.parameters()).is_cuda:\n"
        f"    torch.cuda.set_device(next(model.parameters()).device)\n{_SHARDED}",
    ),
    "devices that a variable holds": (
        "ids = [int(os.environ['LOCAL_RANK'])]\nmodel = DDP(model, ids)\n",
        "ids = [int(os.environ['LOCAL_RANK'])]\n"
        "if next(model.parameters()).is_cuda:\n"
        f"    torch.cuda.set_device(next(model.parameters()).device)\n{_SHARDED}",
    ),
    "the current device": (
        "torch.cuda.set_device(os.environ['LOCAL_RANK'])\nmodel = DDP(model, device_ids=[0])\n",
        f"torch.cuda.set_device(os.environ['LOCAL_RANK'])\n{_SHARDED}",
    ),
    "another name": ("ddp = DDP(module=model)\n", f"{_SHARDED}ddp = model\n"),
    "built in the call": (
        "net = DDP(\n    nn.Linear(4, 4),\n    static_graph=True,\n)\n",
        "net = nn.Linear(4, 4)\n" + _SHARDED.replace("model", "net"),
    ),
    "comments between its arguments": (
        "model = DDP(\n    model,  # whole\n    static_graph=True,  # it never changes\n)\n",
        f"# whole\n# it never changes\n{_SHARDED}",
    ),
    "part of an expression": (
        "net = torch.compile(DDP(nn.Linear(4, 4)))\n",
        "model_ = nn.Linear(4, 4)\n"
        + _SHARDED.replace("model", "model_")
        + "net = torch.compile(model_)\n",
    ),
    "weights that are not broadcast": (
        "model = DDP(model, None, None, 0, True, False)\n",
        f"{_HOOK}fully_shard(model)\n",
    ),
    "an optimizer that is built before": (
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel = DDP(model)\n",
        f"{_SHARDED}optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
    ),
    "a process group of all ranks": (
        """\
        every = dist.new_group(None, backend="gloo")
        model = DDP(model, process_group=every)
        net = DDP(nn.Linear(4, 4), process_group=dist.group.WORLD)
        """,
        'every = dist.new_group(None, backend="gloo")\n'
        + _SHARDED
        + "net = nn.Linear(4, 4)\n"
        + _SHARDED.replace("model", "net"),
    ),
    "the wrapped module, gradient sync and a test of the class": (
        """\
        model = DDP(model)
        model._set_static_graph()
        raw = model.module if isinstance(model, DDP) else model
        inner = model.module
        for last in (False, True):
            model.require_backward_grad_sync = last
            model(torch.ones(2, 4)).sum().backward()
        """,
        _SHARDED
        + """\
raw = model
inner = model
for last in (False, True):
    model.set_requires_gradient_sync(last)
    model(torch.ones(2, 4)).sum().backward()
""",
    ),
    "a test for the wrapper": (
        """\
        model = DDP(model)
        state = (model.module if hasattr(model, "module") else model).training
        """,
        f"{_SHARDED}state = model.training\n",
    ),
    "an optimizer that divides its state": (
        """\
        model = DDP(model)
        kind = torch.optim.SGD
        optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), kind, lr=0.1)
        optimizer.consolidate_state_dict(to=0)
        """,
        f"""\
{_SHARDED}kind = torch.optim.SGD
optimizer = kind(model.parameters(), lr=0.1)
""",
    ),
    "a test that statements between it and the optimizer keep from moving below": (
        """\
        ddp = "RANK" in os.environ
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if os.path.exists("old.pt"):
            state = torch.load("old.pt")
            optimizer.param_groups[0]["lr"] = state["lr"]
        state = None
        # wrap
        if ddp:
            model = DDP(model)
        """,
        f"""\
ddp = "RANK" in os.environ
if ddp:
{indent(_SHARDED_ALONE, "    ")}optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if os.path.exists("old.pt"):
    state = torch.load("old.pt")
    optimizer.param_groups[0]["lr"] = state["lr"]
state = None
# wrap
if ddp:
    {_HOOK}\
""",
    ),
}


@pytest.mark.parametrize(("before", "after"), _PROGRAMS.values(), ids=_PROGRAMS)
def test_wrappers(tmp_path: Path, before: str, after: str) -> None:
    assert migrated(tmp_path, planned(tmp_path, _HEAD + dedent(before))) == _HEAD_AFTER + after


_REFUSED = {
    "model = DDP(model, process_group=group)": "FSDP2 takes a mesh instead of a process group; "
    "shard over a mesh of these ranks by hand",
    "ranks = dist.new_group([0]); model = DDP(model, process_group=ranks)": "FSDP2 takes a mesh "
    "instead of a process group; shard over a mesh of these ranks by hand",
    "model = DDP(model, **options)": "`DDP(model, **options)` does not write out its arguments; do "
    "so by hand",
    "model = DDP(model) if many else model": "`model = DDP(model) if many else model` may not make "
    "the call, or repeat it",
    "DDP(model).register_comm_hook(None, hook)": "FSDP2 has no such communication hook; remove it, "
    "or write one with `set_custom_reduce_scatter` by hand",
}


@pytest.mark.parametrize("line", _REFUSED)
def test_what_has_no_counterpart_is_kept(tmp_path: Path, line: str) -> None:
    plan = planned(tmp_path, f"{_HEAD}{line}\n")
    assert not plan.is_complete
    kept = [entry.found for entry in plan.of(Kept) if isinstance(entry.found, Kept)]
    assert kept[0].reason == _REFUSED[line]


_WRAP = """
def wrap(model, device_ids=None, *args, **options):
    return DDP(model, device_ids, *args, **options)


"""


@pytest.mark.parametrize(
    ("call", "complete"),
    [
        ("wrap(model)", True),
        ("wrap(model, device_ids=[0])", True),
        ("wrap(model, [0], [0])", False),
        ("wrap(model, static_graph=True)", False),
        ("wrap(model, **options)", False),
    ],
)
def test_arguments_that_no_caller_gives_are_dropped(
    tmp_path: Path, call: str, complete: bool
) -> None:
    plan = planned(tmp_path, f"{_HEAD}{_WRAP}net = {call}\n")
    assert plan.is_complete is complete


def test_unused_parameters_are_asked_about(tmp_path: Path) -> None:
    text = f"{_HEAD}model = DDP(model, find_unused_parameters=True)\n"
    (entry,) = planned(tmp_path, text).entries
    assert isinstance(entry.found, Question)
    assert (entry.key, entry.found.choices) == (
        "train.py:10:unused-parameters",
        ("same", "differ"),
    )
    assert (
        migrated(tmp_path, planned(tmp_path, text, {entry.key: "same"})) == _HEAD_AFTER + _SHARDED
    )
    assert not planned(tmp_path, text, {entry.key: "differ"}).is_complete


def test_loads_that_no_path_reaches_are_migrated_too(tmp_path: Path) -> None:
    text = f"""{_HEAD}\
optimizer = torch.optim.AdamW(model.parameters())
model = DDP(model)
if "scratch" == "resume":
    state = torch.load("old.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
"""
    assert migrated(tmp_path, planned(tmp_path, text)).endswith(
        """\
    set_model_state_dict(
        model,
        {name.removeprefix("module."): value for name, value in state["model"].items()},
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
    set_optimizer_state_dict(
        model,
        optimizer,
        by_parameter_name(state["optimizer"], model, optimizer),
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
"""
    )


def test_a_notebook_keeps_its_cells(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    notebook = tmp_path / "train.ipynb"
    cell: dict[str, object] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
    }
    cells = [
        {**cell, "source": _HEAD.splitlines(keepends=True)},
        {**cell, "source": ["model = DDP(model)  # all"]},
    ]
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    notebook.write_text(json.dumps(document))
    plan = make_plan(DDP, [str(notebook)], {})
    ((_, after),) = plan.files
    sources = ["".join(each["source"]) for each in json.loads(after.encode())["cells"]]
    assert sources == [_HEAD_AFTER, f"{_SHARDED.rstrip()}  # all"]


_TRAINER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model.to("cpu")
        self.optimizer = optimizer
        self.model = DDP(self.model)

    def save(self):
        snapshot = {"model": self.model.module.state_dict()}
        torch.save(snapshot, "snapshot.pt")
        print("saved")

    def train(self):
        for epoch in range(2):
            self.model(torch.ones(2, 4)).sum().backward()
            self.optimizer.step()
            if dist.get_rank() == 0 and epoch % 2 == 0:
                self.save()


def build():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model, optimizer = build()
    Trainer(model, optimizer).train()
    dist.destroy_process_group()
"""


def test_a_trainer_is_sharded_before_its_optimizer_and_saves_on_every_rank(tmp_path: Path) -> None:
    after = migrated(tmp_path, planned(tmp_path, _TRAINER))
    assert f"        self.optimizer = optimizer\n        self.{_HOOK}\n    def save" in after
    assert (
        f"""\
        state_dict = get_model_state_dict(
            self.model, {_FULL}
        )
        if dist.get_rank() != 0:
            return
        snapshot = {{"model": state_dict}}
        torch.save(snapshot, "snapshot.pt")
        print("saved")
"""
        in after
    )
    assert "            if epoch % 2 == 0:\n                self.save()\n" in after
    assert (
        """\
    model = nn.Linear(4, 4)
    if torch.cuda.is_available():
        model.cuda()
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
        in after
    )


_PROGRAM = """\
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.layer(x).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 2)
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x * self.scale)
        return self.head(x)


def main(old, new):
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model = DDP(model)
    if os.path.exists(old):
        checkpoint = torch.load(old)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    losses = []
    for step in range(3):
        with model.no_sync():
            model(torch.randn(2, 4)).square().mean().backward()
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "losses": losses}, new)
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    # DDP that is freed now may wait for a thread of gloo's that waits for the GIL (torch 2.13).
    model = main(*sys.argv[1:])
"""
_COMPARED = """\
import sys

import torch

ours, theirs = (torch.load(path) for path in sys.argv[1:])
assert ours["losses"] == theirs["losses"]
model = {name.removeprefix("module."): value for name, value in theirs["model"].items()}
assert ours["model"].keys() == model.keys()
assert all(torch.equal(ours["model"][name], value) for name, value in model.items())
moments = theirs["optimizer"]["state"]
for number, name in enumerate(n for n in model if n != "scale"):
    assert torch.equal(ours["optimizer"]["state"][name]["exp_avg"], moments[number]["exp_avg"])
"""


def test_losses_weights_and_moments_stay_equal(tmp_path: Path, ranks: Ranks) -> None:
    """Train from weights that differ between ranks, then resume from DDP's file."""
    after = migrated(tmp_path, planned(tmp_path, _PROGRAM))
    assert "for block in model.blocks:\n        fully_shard(block)\n" in after
    first, second, again = (str(tmp_path / name) for name in ("first.pt", "second.pt", "again.pt"))
    ours, resumed = str(tmp_path / "ours.pt"), str(tmp_path / "resumed.pt")
    runs = [
        (_PROGRAM, "none", first),
        (after, "none", ours),
        (_PROGRAM, first, second),
        (after, first, resumed),
        (after, ours, again),
    ]
    for text, old, new in runs:
        assert not report(ranks.run(text, arguments=[old, new], process_group=False))
    for pair in ((ours, first), (resumed, second), (again, second)):
        assert not report(ranks.run(_COMPARED, arguments=pair, world_size=1))


_EVALUATED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)


def loss():
    return model(torch.randn(2, 4)).square().mean()


@torch.no_grad()
def evaluate():
    return sum(loss() for _ in range(2))


for step in range(5):
    if step % 2 == 0 and dist.get_rank() == 0:
        model.eval()
        evaluated = evaluate()
        print("evaluated", round(evaluated.item(), 5))
        model.train()
        if step > 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, "state.pt")
    optimizer.zero_grad()
    train = loss()
    train.backward()
    optimizer.step()
    print(step, round(train.item(), 5))
"""


def test_evaluating_and_saving_change_no_later_step(tmp_path: Path, ranks: Ranks) -> None:
    after = migrated(tmp_path, planned(tmp_path, _EVALUATED))
    assert (
        "    if step % 2 == 0:\n"
        "        with torch.random.fork_rng(range(torch.cuda.device_count()), "
        "enabled=dist.get_rank() != 0):\n"
        "            model.eval()\n"
        "            evaluated = evaluate()\n"
        "            model.train()\n"
    ) in after
    assert "    if step % 2 == 0 and step > 0:\n        state_dict = get_model_state" in after
    found = [ranks.run(text, process_group=False) for text in (_EVALUATED, after)]
    assert not any(map(report, found))
    one, other = ([outcome.output for outcome in outcomes] for outcomes in found)
    assert all("4 " in output for output in one)
    assert one == other


# Batches differ between ranks, and so do batch norm's statistics and the validation losses.
_BEST = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model):
    model.eval()
    with torch.no_grad():
        return model(torch.randn(8, 4)).square().mean().item()


def save_best(model, loss, best):
    if loss >= best:
        return best
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "best.pt")
        print("saved")
    return loss


dist.init_process_group("gloo")
model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4))
torch.manual_seed(dist.get_rank())
model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
best = float("inf")
for epoch in range(8):
    model.train()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    loss = evaluate(model)
    if epoch > 0:
        best = save_best(model.module, loss, best)
    if dist.get_rank() == 0:
        print(epoch, round(loss, 5))
dist.destroy_process_group()
"""


def test_rank_0_decides_on_a_save_by_its_own_loss(tmp_path: Path, ranks: Ranks) -> None:
    after = migrated(tmp_path, planned(tmp_path, _BEST))
    assert "    if decided_together(loss >= best):\n        return best\n" in after
    assert after.count("decided_together(") == 2, "a test that is alike on all ranks"
    found = [ranks.run(text, process_group=False) for text in (_BEST, after)]
    assert not any(map(report, found))
    one, other = ([outcome.output for outcome in outcomes] for outcomes in found)
    assert "saved" in one[0]
    assert one == other


def test_a_model_is_sharded_above_the_branches_that_build_its_optimizer(tmp_path: Path) -> None:
    program = f"""\
{_HEAD}
import sys


class Trainer:
    def __init__(self, model):
        self.model = model
        self.build()
        self.schedule()
        self.wrap()

    def schedule(self):
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)

    def wrap(self):
        self.wrapped = DDP(self.model)

    def build(self):
        if "sgd" in sys.argv:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        else:
            self.optimizer = torch.optim.Adam(self.model.parameters())

    def train(self):
        self.wrapped(torch.ones(2, 4)).sum().backward()
        self.optimizer.step()


Trainer(model).train()
"""
    assert """\
    def build(self):
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            dist.broadcast(tensor.detach(), src=0)
        fully_shard(self.model)
        if "sgd" in sys.argv:
""" in migrated(tmp_path, planned(tmp_path, program))


def test_other_ranks_are_those_that_the_code_tests(tmp_path: Path) -> None:
    text = _EVALUATED.replace("for step in", "rank = dist.get_rank()\nfor step in")
    text = text.replace("if step % 2 == 0 and dist.get_rank() == 0:", "if rank == 0:")
    start, end = text.index("        if step > 0"), text.index("    optimizer.zero_grad()")
    text = text[:start] + text[end:]
    after = migrated(tmp_path, planned(tmp_path, text))
    assert "torch.cuda.device_count()), enabled=rank != 0):\n" in after


_SAVES_EVERYWHERE = """
def save(module):
    torch.save(module.state_dict(), f"{dist.get_rank()}.pt")


model = DDP(model)
if dist.get_rank() == 0:
    if os.path.exists("stop"):
        raise SystemExit("stopped")
if os.path.exists("out"):
    save(model.module)
"""


def test_a_rank_that_ends_the_job_keeps_no_other_from_a_state(tmp_path: Path) -> None:
    after = migrated(tmp_path, planned(tmp_path, _HEAD + _SAVES_EVERYWHERE))
    assert (
        """\
    torch.save(
        get_model_state_dict(module, options=StateDictOptions(full_state_dict=True)),
        f"{dist.get_rank()}.pt",
    )
"""
        in after
    )


def test_the_plan_tells_that_only_the_root_is_sharded(tmp_path: Path) -> None:
    roots = [planned(tmp_path, text) for text in (f"{_HEAD}model = DDP(model)\n", _PROGRAM)]
    said = ["Only the root of the model is sharded" in plan_as_text(plan) for plan in roots]
    assert said == [True, False]


_NORMALIZED = """\
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
losses = []
for epoch in range(2):
    model.train()
    for step in range(3):
        loss = model(torch.randn(4, 4)).pow(2).mean() + model(torch.rand(4, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for batch in range(1 + rank):
            losses.append(model(torch.ones(2, 4)).mean())
torch.save(losses, f"{sys.argv[1]}{rank}.pt")
"""


def test_all_ranks_evaluate_with_the_buffers_of_rank_0(tmp_path: Path, ranks: Ranks) -> None:
    after = migrated(tmp_path, planned(tmp_path, _NORMALIZED))
    for text, name in ((_NORMALIZED, "before"), (after, "after")):
        run = ranks.run(text, arguments=[str(tmp_path / name)], process_group=False)
        assert not report(run)
    for rank in (0, 1):
        before, new = (torch.load(tmp_path / f"{name}{rank}.pt") for name in ("before", "after"))
        assert len(before) == 2 * (1 + rank)
        torch.testing.assert_close(new, before, rtol=1e-5, atol=1e-6)


def test_a_helper_is_defined_below_the_imports_and_what_they_need(tmp_path: Path) -> None:
    settings = 'os.environ["OMP_NUM_THREADS"] = "1"\ntorch.set_num_threads(1)\nimport sys\n'
    text = _HEAD.replace("as DDP\n", f"as DDP\n{settings}") + "model = DDP(model)\n"
    after = migrated(tmp_path, planned(tmp_path, text))
    assert f"import fully_shard\n{settings}\n\n{_COPY}dist.init_process_group" in after


def test_buffers_that_ddp_does_not_copy_are_not_copied(tmp_path: Path) -> None:
    plan = planned(tmp_path, f"{_HEAD}model = DDP(model, broadcast_buffers=False)\n")
    head = _HEAD_AFTER.replace(f"\n{_COPY}", "")
    assert migrated(tmp_path, plan) == head + _SHARDED_ALONE


_NET = """\
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(x)


"""
_GROUPS = f"""{_NET}\
from library import groups


def save(net, optimizer):
    state = {{"net": net.state_dict(), "optimizer": optimizer.state_dict()}}
    if dist.get_rank() == 0:
        torch.save(state, "all.pt")


dist.init_process_group("gloo")
net = DDP(Net())
optimizer = torch.optim.AdamW(groups(net, 0.1))
save(net, optimizer)
old = torch.load("all.pt")
optimizer.load_state_dict(old["optimizer"])
"""


def test_an_optimizer_of_unknown_groups_has_the_parameters_of_the_only_model(
    tmp_path: Path,
) -> None:
    after = migrated(tmp_path, planned(tmp_path, _GROUPS))
    assert (
        """\
        "optimizer": get_optimizer_state_dict(
            net, optimizer, options=StateDictOptions(full_state_dict=True)
        ),
"""
        in after
    )
    named = 'by_parameter_name(old["optimizer"], net, optimizer)'
    assert f"set_optimizer_state_dict(\n    net,\n    optimizer,\n    {named},\n" in after


_LOST = {
    """\
net = DDP(Net())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for item in (net, optimizer):
    item.load_state_dict(torch.load("all.pt"))
""": "it is called on a sharded model and on other objects; write one call for each by hand",
    """\
from library import Hub

net = DDP(Hub())
net.module.save_pretrained("net")
""": "it takes the state of a sharded model by itself, of which each rank has its shards; gather "
    "the state on every rank and save that by hand",
    """\
from library import schedule

net = DDP(Net())
parts = {"schedule": schedule(), "net": net}
for name in parts:
    parts[name].load_state_dict(torch.load(f"{name}.pt"))
""": "it is called on a sharded model and on other objects; write one call for each by hand",
    """\
net = DDP(Net())
torch.save({"net": net}, "net.pt")
""": "it writes the model itself, of which each rank has its shards; save its state dict and "
    "build the model before loading by hand",
    """\
net, x = DDP(Net()), torch.ones(2, 4, requires_grad=True)
torch.autograd.grad(net(x).sum(), x, create_graph=True)[0].square().sum().backward()
""": "FSDP2 frees the gathered parameters in the first backward, so that a second one through its "
    "graph fails; train this model without sharding, or without a gradient of a gradient",
    """\
net = DDP(Net())
torch.jit.script(net.module)
""": "no exporter takes a sharded model; build the model anew on one rank, load the gathered state "
    "into it, and export that by hand",
    """\
net = DDP(Net())
torch.multiprocessing.spawn(print, args=(net.module,), nprocs=1)
""": "another process cannot get a sharded model, of which this rank has its shards; call the "
    "function on every rank, or pass the gathered state, by hand",
    """\
from library import initialize

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer = initialize(net, optimizer)
net = DDP(net)
""": "this code is not known, and may replace the model or the optimizer before the model is "
    "sharded; build the optimizer below the sharding, without this call, by hand",
    """\
class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones([]) * 2.0)


net = DDP(Scaled())
""": "`fully_shard` takes no parameters without a dimension; give it one, as `torch.ones(1)` has, "
    "by hand (checkpoints then hold it with that dimension)",
    """\
net = nn.Sequential(Net(), Net())
net[1].head.weight = net[0].head.weight
net = DDP(net)
""": "`fully_shard` takes no weights that several blocks share; shard the blocks together, or give "
    "each its own, by hand",
    """\
from library import watch

net = DDP(Net())
net = watch(net)
torch.save(net.state_dict(), "net.pt")
""": "this code is not known, and may do with the model what only a whole one allows; replace the "
    "call by hand, or call it before the model is sharded",
    """\
class Saver:
    def __init__(self, net):
        self.net, self.best = net, None

    def __call__(self, loss):
        if dist.get_rank() != 0:
            return
        if self.best is None or loss < self.best:
            torch.save(self.net.state_dict(), "net.pt")


net = DDP(Net())
save = Saver(net)
for _ in range(4):
    save(net(torch.ones(2, 4)).sum().item())
""": "`self.best is None or loss < self.best` also decides whether the file is written, so a "
    "gather above the rank test would run every time; test it first, on every rank",
    """\
class Trainer:
    def __init__(self, net):
        self.net = net

    def train(self):
        self.net(torch.ones(2, 4))
        if "quick" == "slow":
            torch.save(self.net.state_dict(), "net.pt")


Trainer(DDP(Net())).train()
""": "no analyzed path takes this state; gather it by hand on every rank",
    """\
def average(old, new):
    for mean, weight in zip(old.parameters(), new.parameters()):
        mean.data.mul_(0.9).add_(weight.data, alpha=0.1)


net, teacher = DDP(Net()), Net()
average(teacher, net)
""": "an operation takes DTensors or plain tensors, but not both; shard the other model like this "
    "one by hand",
    """\
class Average:
    def __init__(self, net):
        self.net = copy.deepcopy(net)


net = Net()
average = Average(net)
net = DDP(net)
""": "its weights are whole, and do not mix with the shards of the model; shard this copy like "
    "the model by hand",
}


def test_states_of_a_model_that_is_wrapped_under_a_test_are_gathered(tmp_path: Path) -> None:
    text = f"""{_HEAD}\
many = dist.get_world_size() > 1
if many:
    model = DDP(model)
state = model.module.state_dict() if many else model.state_dict()
if dist.get_rank() == 0:
    torch.save(state, "model.pt")
"""
    after = migrated(tmp_path, planned(tmp_path, text))
    assert "state = get_model_state_dict(" in after and " else " not in after


@pytest.mark.parametrize("lines", _LOST)
def test_what_would_lose_or_mix_shards_is_kept(tmp_path: Path, lines: str) -> None:
    plan = planned(tmp_path, f'{_NET}dist.init_process_group("gloo")\n{lines}')
    assert [e.found.reason for e in plan.of(Kept) if isinstance(e.found, Kept)] == [_LOST[lines]]


_LIBRARY = f"""{_NET}\
from library import build

dist.init_process_group("gloo")
net = Net()
OPTIMIZER
net = DDP(net)
for batch in torch.randn(2, 4, 8):
    net(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("built", "step", "kept"),
    [
        ("optimizer = build(net)", "optimizer.step()", 1),
        ("optimizer = build(net)", "torch.amp.GradScaler().step(optimizer)", 1),
        ("optimizer = build(net.parameters())", "optimizer.step()", 0),
        ("optimizer = build()", "optimizer.step()", 0),
        ("optimizer = torch.optim.SGD(net.parameters())", "optimizer.step()", 0),
    ],
)
def test_an_optimizer_that_a_library_builds_of_a_model_is_kept(
    tmp_path: Path, built: str, step: str, kept: int
) -> None:
    text = _LIBRARY.replace("OPTIMIZER", built).replace("optimizer.step()", step)
    plan = planned(tmp_path, text)
    found = [e.found for e in plan.of(Kept) if isinstance(e.found, Kept)]
    assert [(each.what, each.reason[:42]) for each in found] == kept * [
        ("`build(net)`", "its result is stepped like an optimizer, w")
    ]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("print(sum(p.norm() for p in net.parameters()))", ["`p.norm()`"]),
        ("print([(n, p.mean()) for n, p in net.named_parameters()])", ["`p.mean()`"]),
        ("print(list(net.parameters())[0])", ["`list(net.parameters())[0]`"]),
        ("print(sum(p.numel() for p in net.parameters() if p.requires_grad))", []),
        ("print([(n, p.shape) for n, p in net.named_parameters()])", []),
    ],
)
def test_parameters_that_one_rank_reads_are_kept(
    tmp_path: Path, line: str, kept: list[str]
) -> None:
    text = f"""{_NET}\
dist.init_process_group("gloo")
net = DDP(Net())
if dist.get_rank() == 0:
    {line}
"""
    plan = planned(tmp_path, text)
    assert [e.found.what for e in plan.of(Kept) if isinstance(e.found, Kept)] == kept
    every = planned(tmp_path, text.replace("dist.get_rank() == 0", "True"))
    assert every.is_complete


_AVERAGED = f"""{_NET}\
import sys


def average(old, new, decay=0.5):
    weights = dict(new.named_parameters())
    for name, mean in old.named_parameters():
        mean.data.mul_(decay).add_(weights[name].data, alpha=1 - decay)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = Net()
mean = copy.deepcopy(net)  # a moving average
net = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
average(mean, net.module, decay=0)
for _ in range(2):
    net(torch.ones(2, 4) * dist.get_rank()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    average(mean, net.module)
if dist.get_rank() == 0:
    torch.save({{"net": net.module.state_dict(), "mean": mean.state_dict()}}, sys.argv[1])
"""


def test_a_moving_average_is_sharded_like_its_model(tmp_path: Path, ranks: Ranks) -> None:
    after = migrated(tmp_path, planned(tmp_path, _AVERAGED))
    shards = _SHARDED.replace("model", "net") + _SHARDED_ALONE.replace("model", "mean").replace(
        "(mean)", "(mean, reshard_after_forward=True)"
    )
    assert f"mean = copy.deepcopy(net)  # a moving average\n{shards}" in after
    files = [str(tmp_path / name) for name in ("before.pt", "after.pt")]
    for text, file in zip((_AVERAGED, after), files, strict=True):
        assert not report(ranks.run(text, arguments=[file], process_group=False))
    before, new = map(torch.load, files)
    torch.testing.assert_close(new, before, rtol=0, atol=0)


def test_a_state_that_another_file_takes_below_a_test_is_gathered(tmp_path: Path) -> None:
    saving = """\
import torch


def save(path, model, epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, path)
"""
    (tmp_path / "saving.py").write_text(saving)
    text = """\
import torch
import torch.distributed as dist
from saving import save
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    model(torch.randn(4, 4)).sum().backward()
    optimizer.step()
    if dist.get_rank() == 0 and epoch % 2:
        save("model.pt", model.module, epoch)
"""
    plan = plan_of(DDP, tmp_path, text)
    assert plan.is_complete, [entry.found for entry in plan.entries]
    saved, script = (after.text for _, after in plan.files)
    assert script.endswith('    if epoch % 2:\n        save("model.pt", model, epoch)\n')
    assert saved.endswith("""\
    if dist.get_rank() != 0:
        return
    torch.save({"model": state_dict, "epoch": epoch}, path)
""")


_HELPERS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def state(model, epoch):
    return {"model": model.module.state_dict(), "epoch": epoch}

def write(model, epoch, best):
    if best:
        torch.save(model.module.state_dict(), f"{epoch}-best.pt")
    else:
        torch.save(model.module.state_dict(), f"{epoch}.pt")

def write_through(model, epoch):
    taken = state(model, epoch)
    torch.save(taken, f"{epoch}.pt")
    print("written", epoch)

def write_and_tell(model, epoch):
    torch.save(model.module.state_dict(), f"{epoch}.pt")
    return f"{epoch}.pt"

def write_below(model, epoch):
    write_and_tell(model, epoch)
    print("written", epoch)

def saved(taken, epoch):
    torch.save(taken, f"{epoch}.pt")
    return epoch

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    loss = model(torch.ones(2, 4)).square().sum()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        LINE
dist.destroy_process_group()
"""
_BUILT = "torch.save(state(model, epoch), f'{epoch}.pt')"


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (
            _BUILT,
            _BUILT.replace("state(model, epoch)", "result").join(
                ["    result = state(model, epoch)\n    if dist.get_rank() == 0:\n        ", "\n"]
            ),
        ),
        ("write(model, epoch, epoch == 1)", "    write(model, epoch, epoch == 1)\n"),
        ("write_through(model, epoch)", "    write_through(model, epoch)\n"),
        (
            "path = write_and_tell(model, epoch)\n        print(path)",
            "    path = write_and_tell(model, epoch)\n    if dist.get_rank() == 0:\n"
            "        print(path)\n",
        ),
    ],
)
def test_states_that_helpers_of_one_rank_take(
    tmp_path: Path, ranks: Ranks, line: str, after: str
) -> None:
    text = _HELPERS.replace("LINE", line)
    new = only_change(planned(tmp_path, text))
    assert new.endswith(f"    optimizer.step()\n{after}dist.destroy_process_group()\n")
    files = []
    for name, program in {"before": text, "after": new}.items():
        (folder := tmp_path / name).mkdir()
        moved = f"import os; os.chdir({str(folder)!r})\n"
        assert not report(ranks.run(moved + program, process_group=False))
        files.append([torch.load(path) for path in sorted(folder.glob("*.pt"))])
    torch.testing.assert_close(*files)
    assert len(files[0]) == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("write_below(model, epoch)", "the test and the state are too far apart"),
        (
            "path = saved(state(model, epoch), epoch)",
            "all ranks may use what `state(model, epoch)` returns",
        ),
        (
            "taken = state(model, epoch)\n    if dist.get_rank() == 0:\n        print(taken)",
            "all ranks may use what `state(model, epoch)` returns",
        ),
        (
            "torch.save(state(model, epoch), 'a.pt')\n    print(len(state(model, epoch)))",
            "one rank calls this function, or all do",
        ),
        (
            "for each in range(2):\n            torch.save(state(model, each), 'a.pt')",
            "`for each in range(2):` does more than the collective needs",
        ),
    ],
)
def test_states_that_not_only_one_rank_may_need(tmp_path: Path, line: str, reason: str) -> None:
    found = planned(tmp_path, _HELPERS.replace("LINE", line)).of(Kept)
    reasons = [each.found.reason for each in found if isinstance(each.found, Kept)]
    assert [each.partition(";")[0] for each in reasons] == [reason]


_SOMETIMES = """\
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def start():
    if "RANK" not in os.environ:
        return False
    dist.init_process_group("gloo")
    return True


def save(path, model):
    torch.save({"model": model.state_dict()}, path)


distributed = start()
rank = dist.get_rank() if distributed else 0
torch.manual_seed(0)
model = plain = nn.Linear(4, 4)
if distributed:
    model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if os.path.exists("last.pt"):
    plain.load_state_dict(torch.load("last.pt")["model"])
for micro in range(2):
    with model.no_sync() if distributed and micro == 0 else nullcontext():
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
length = f"{plain.weight.norm():.4f}"
if rank == 0:
    save("last.pt", plain)
    print(f"{loss.item():.4f} {norm:.4f} {length}")
"""
_TWICE = "import runpy; [runpy.run_path('train.py') for _ in range(2)]"


def test_a_script_still_runs_without_a_process_group(tmp_path: Path, ranks: Ranks) -> None:
    after = only_change(planned(tmp_path, _SOMETIMES))
    assert "    if dist.is_initialized() and dist.get_rank() != 0:\n        return\n" in after
    printed = []
    for name, text in {"before": _SOMETIMES, "after": after}.items():
        (folder := tmp_path / name).mkdir()
        (folder / "train.py").write_text(text)
        run = [sys.executable, "-c", _TWICE]
        printed.append(subprocess.check_output(run, cwd=folder, text=True))
    assert printed[0] == printed[1] != ""
    found = [ranks.run(text, process_group=False) for text in (_SOMETIMES, after)]
    assert not any(map(report, found))
    one, other = (outcomes[0].output for outcomes in found)
    assert one == other != ""


_UNREACHED = "no analyzed path leads here, so the code around it is not adapted; migrate it by hand"


def test_a_program_that_is_not_analyzed_to_its_end_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, path_steps=20)
    text = f'{_NET}dist.init_process_group("gloo")\nnet = DDP(Net())\n' + "print(net)\n" * 20
    kept = [entry.found for entry in planned(tmp_path, text).of(Kept)]
    assert [found.reason for found in kept if isinstance(found, Kept)] == [
        "the analysis of it ended early (one path exceeds the step limit); migrate it by hand",
        _UNREACHED,
    ]


def test_a_program_that_no_analyzed_path_shards_is_kept(tmp_path: Path) -> None:
    text = f"{_HEAD}parallel = False\nif parallel:\n    model = DDP(model)\n"
    plan = planned(tmp_path, text)
    kept = [entry.found for entry in plan.of(Kept)]
    assert [found.reason for found in kept if isinstance(found, Kept)] == [_UNREACHED]
    reached = planned(tmp_path, f"{text}else:\n    model = DDP(model)\n")
    assert reached.is_complete


_ACCUMULATED = """\
import contextlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for step in range(5):
        due = step % 2 == 1
        CONTEXT
            model(torch.ones(2, 8)).sum().backward()
        if due:
            optimizer.step()
            optimizer.zero_grad()
"""
_CONTEXTS = {
    "with contextlib.nullcontext() if due else model.no_sync():": "with contextlib.nullcontext():",
    "with contextlib.nullcontext() if due or step == last else model.no_sync():": (
        "model.set_requires_gradient_sync(due or step == last)\n        try:"
    ),
    "model.require_backward_grad_sync = due\n        if 1:": (
        "model.set_requires_gradient_sync(True)\n        if 1:"
    ),
    "model.require_backward_grad_sync = step == 4\n        if 1:": (
        "model.set_requires_gradient_sync(step == 4)\n        if 1:"
    ),
}


@pytest.mark.parametrize("context", _CONTEXTS)
def test_no_gradients_remain_that_are_not_reduced(tmp_path: Path, context: str) -> None:
    plan = planned(tmp_path, _ACCUMULATED.replace("CONTEXT", context))
    assert f"        {_CONTEXTS[context]}\n            model(" in only_change(plan)


_LEFT = """\
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(8, 8, bias=False)
fully_shard(model)
for factor, sync in ((5.0, False), (1.0, True)):
    model.zero_grad()
    model.set_requires_gradient_sync(sync)
    (factor * model(torch.ones(1, 8)).sum()).backward()
assert torch.equal(model.weight.grad.full_tensor(), torch.full((8, 8), 6.0))
"""


def test_gradients_that_are_not_reduced_outlive_zero_grad(ranks: Ranks) -> None:
    assert not report(ranks.run(_LEFT))


def test_a_copy_is_resharded_before_it_gets_a_state(tmp_path: Path) -> None:
    text = f"""{_NET}\
dist.init_process_group("gloo")
net = Net()
teacher = copy.deepcopy(net)
net = DDP(net)
with torch.no_grad():
    target = teacher(torch.ones(2, 8))
(net(torch.ones(2, 8)) - target).square().sum().backward()
teacher.load_state_dict(net.module.state_dict())
"""
    after = only_change(planned(tmp_path, text))
    assert ".backward()\nteacher.reshard()\nset_model_state_dict(\n    teacher,\n" in after


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("print(net.module.gamma.mean().item())", "print(net.gamma.mean().full_tensor().item())"),
        (
            "print(net.module.gamma[0].detach().cpu().numpy())",
            "print(net.gamma[0].full_tensor().detach().cpu().numpy())",
        ),
        ('print(f"{net.module.gamma}")', 'print(f"{net.gamma.full_tensor()}")'),
        ("print(net.module.gamma.data)", "print(net.gamma.full_tensor().data)"),
        (
            'print(f"{net.module.gamma.shape}", net.module.gamma.numel())',
            'print(f"{net.gamma.shape}", net.gamma.numel())',
        ),
        ("net.module.gamma.data.clamp_(0.0, 1.0)", "net.gamma.data.clamp_(0.0, 1.0)"),
    ],
)
def test_parameters_that_a_class_of_the_program_registers(
    tmp_path: Path, line: str, after: str
) -> None:
    text = f"""{_NET}\
class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(8))


dist.init_process_group("gloo")
net = DDP(Scaled())
{line}
"""
    assert only_change(planned(tmp_path, text)).splitlines()[-1] == after


def test_names_of_data_parallel_stay(tmp_path: Path) -> None:
    other = """\
import torch
from torch import nn

model = nn.DataParallel(nn.Linear(4, 4))
model.load_state_dict(torch.load("old.pt"))
"""
    (tmp_path / "evaluate.py").write_text(other)
    text = f"""{_HEAD}\
if "RANK" in os.environ:
    model = DDP(model)
else:
    model = nn.DataParallel(model).cuda()
model.load_state_dict(torch.load("old.pt"))
import evaluate
"""
    assert """\
    torch.load("old.pt") if isinstance(model, nn.DataParallel) else {
        name.removeprefix("module."): value for name, value in torch.load("old.pt").items()
    },
""" in migrated(tmp_path, planned(tmp_path, text))


def test_the_wrapper_of_another_library_stays(tmp_path: Path) -> None:
    text = """\
import torch
import torch.distributed as dist
from apex.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
inner = model.module if hasattr(model, "module") else model
torch.save(inner.state_dict(), "model.pt")
"""
    plan = planned(tmp_path, text)
    assert (plan.entries, plan.files) == ((), ())


def test_a_copy_of_a_model_that_another_file_shards_is_kept(tmp_path: Path) -> None:
    average = """\
from copy import deepcopy


class Average:
    def __init__(self, model):
        self.module = deepcopy(model)
"""
    (tmp_path / "average.py").write_text(average)
    text = f"{_HEAD}from average import Average\n\nmean = Average(model)\nmodel = DDP(model)\n"
    assert [
        (Path(entry.path).name, entry.line, entry.found.reason)
        for entry in planned(tmp_path, text).entries
        if isinstance(entry.found, Kept)
    ] == [
        (
            "average.py",
            6,
            "its weights are whole, and do not mix with the shards of the model; shard this copy "
            "like the model by hand",
        )
    ]


_OPTIONAL = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, distributed):
        if distributed:
            self.model = DDP(model)
            self.main = dist.get_rank() == 0
        else:
            self.model = model
            self.main = True

    def loss(self):
        return self.model(torch.randn(2, 4)).square().mean()

    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for step in range(2):
            loss = self.loss()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if self.main:
                self.model.eval()
                evaluated = self.loss()
                print(round(loss.item(), 5), round(evaluated.item(), 5))
                self.model.train()
                self.save("model.pt")

    def save(self, path):
        torch.save(self.model.state_dict(), path)
"""
_TRAINED = "torch.manual_seed(0)\nTrainer(nn.Linear(4, 4), {}).train()\n"


def test_a_class_still_works_without_a_process_group(tmp_path: Path, ranks: Ranks) -> None:
    started = f'dist.init_process_group("gloo")\n{_TRAINED.format(True)}'
    after = only_change(planned(tmp_path, f"{_OPTIONAL}\n\n{started}"))
    assert after.endswith(started)
    alone = after.removesuffix(started) + _TRAINED.format(False)
    texts = (f"{_OPTIONAL}\n\n{_TRAINED.format(False)}", alone)
    outputs = []
    for text in texts:
        run = [sys.executable, "-c", text]
        outputs.append(subprocess.check_output(run, cwd=tmp_path, text=True))
    assert outputs[0] == outputs[1] != ""
    found = [ranks.run(text, process_group=False) for text in (f"{_OPTIONAL}\n\n{started}", after)]
    assert not any(map(report, found))
    assert found[0][0].output == found[1][0].output != ""


@pytest.mark.parametrize(
    ("test", "offloads"),
    [
        ("dist.get_rank() == 0", True),
        ('"ALL" in os.environ or dist.get_rank() == 0', False),
        ("dist.get_rank() % 2 == 0", False),
        ('int(os.environ["LOCAL_RANK"]) == 0', False),
    ],
)
def test_a_state_is_offloaded_where_rank_0_alone_writes_it(
    tmp_path: Path, test: str, offloads: bool
) -> None:
    text = f'{_HEAD}model = DDP(model)\nif {test}:\n    torch.save(model.state_dict(), "a.pt")\n'
    after = migrated(tmp_path, planned(tmp_path, text))
    assert ("cpu_offload=True" in after, "full_state_dict=True" in after) == (offloads, True)
