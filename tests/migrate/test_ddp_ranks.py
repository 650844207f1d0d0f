"""What DDP did on all ranks, or let one rank do, is the same after the migration from it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from textwrap import indent

import pytest
from plans import only_change, plan_of
from ranks import Ranks, report

from fsdplint.migrate.ddp import DDP
from fsdplint.migrate.step import Change, Kept

planned = partial(plan_of, DDP)

_HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

"""


_FROZEN = f"""{_HEAD}
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
for parameter in model[0].parameters():
    parameter.requires_grad = False
WRAPPED
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(4):
    if step == 2:
        for parameter in model.parameters():
            parameter.requires_grad_()
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""
_AVERAGED = "gradients of parameters that are frozen here and trained later are averaged over ranks"
_WEIGHT = "print(round(next(model.parameters()).detach()FULL.sum().item(), 4))\n"


def test_the_plan_tells_of_parameters_that_are_trained_later(tmp_path: Path) -> None:
    text = _FROZEN.replace("WRAPPED", "model = DDP(model)")
    for each, said in ((text, True), (text.replace("requires_grad_()", "grad"), False)):
        changes = [e.found for e in planned(tmp_path, each).of(Change)]
        assert any(_AVERAGED in c.differs for c in changes if isinstance(c, Change)) is said


def test_gradients_of_parameters_that_are_trained_later(ranks: Ranks) -> None:
    ddp = _FROZEN.replace("WRAPPED", "model = DDP(model)") + _WEIGHT.replace("FULL", "")
    sharded = "from torch.distributed.fsdp import fully_shard\nfully_shard(model)"
    fsdp = _FROZEN.replace("WRAPPED", sharded) + _WEIGHT.replace("FULL", ".full_tensor()")
    whole = [{o.output for o in ranks.run(text, process_group=False)} for text in (ddp, fsdp)]
    assert [len(each) for each in whole] == [2, 1]


_CAUGHT = f"""{_HEAD}
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    try:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        if rank == 0 and step % 2 == 0:
            torch.save(model.module.state_dict(), "model.pt")
    except Exception:
        HANDLED
"""


def test_the_wrapper_is_dropped_where_its_error_would_be_caught(tmp_path: Path) -> None:
    after = only_change(planned(tmp_path, _CAUGHT.replace("HANDLED", "break")))
    assert "get_model_state_dict(\n                model, options=" in after
    assert ".module" not in after


def test_a_state_that_one_rank_takes_after_an_error_is_kept(tmp_path: Path) -> None:
    save = 'torch.save(model.module.state_dict(), "last.pt")'
    (entry,) = planned(tmp_path, _CAUGHT.replace("HANDLED", save)).of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.found.what == "`model.module.state_dict()`"
    assert entry.found.reason == (
        "a rank that has an error in training takes this state alone, and waits for the others to "
        "gather it; save at intervals instead, by hand"
    )


_SHOWN = f"""{_HEAD}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def encode(self, x):
        return self.first(x)

    def forward(self, x):
        return self.last(self.encode(x))


def show(net, epoch, log=print):
    net.eval()
    with torch.no_grad():
        LOG(epoch, round(net.encode(torch.ones(2, 4)).sum().item(), 5))


dist.init_process_group("gloo")
SETUP
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    model.train()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        show(model.module, epochGIVEN)
print("done")
"""


def _shown(log: str = "print", setup: str = "", given: str = "") -> str:
    setup = f"if dist.get_rank() == 0:\n{indent(setup, '    ')}\n" if setup else ""
    return _SHOWN.replace("LOG", log).replace("SETUP\n", setup).replace("GIVEN", given)


def test_all_ranks_call_a_method_that_gathers_parameters(tmp_path: Path, ranks: Ranks) -> None:
    after = only_change(planned(tmp_path, _shown()))
    assert 'register_fsdp_forward_method(model, "encode")\n' in after
    assert (
        "    with torch.random.fork_rng(range(torch.cuda.device_count()), "
        "enabled=dist.get_rank() != 0):\n"
        "        show(model, epoch)\n"
    ) in after
    assert not report(ranks.run(after, process_group=False))


@pytest.mark.parametrize(
    ("log", "setup", "given", "needed"),
    [
        ("wandb.log", "wandb.init()", "", "wandb"),
        ("log.add", "log = wandb.Table()", ", log", "log"),
        ("log.add", "log = wandb.Table()", ", log=log", "log"),
    ],
)
def test_an_evaluation_with_what_only_rank_0_has_is_kept(
    tmp_path: Path, log: str, setup: str, given: str, needed: str
) -> None:
    plan = planned(tmp_path, f"import wandb\n{_shown(log, setup, given)}")
    (reason,) = (e.found.reason for e in plan.of(Kept) if isinstance(e.found, Kept))
    assert reason == (
        f"it needs `{needed}`, which only rank 0 has; make that on all ranks, or split the call, "
        "by hand"
    )


_LOCAL = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    import torch.distributed as distributed

    distributed.init_process_group("gloo")
    model = DDP(nn.Linear(4, 4))
    best = 100.0
    for step in range(3):
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        if loss.item() < best:
            best = loss.item()
            if distributed.get_rank() == 0:
                torch.save(model.module.state_dict(), "model.pt")
    print("done")


main()
"""


def test_a_helper_finds_what_functions_import_themselves(tmp_path: Path, ranks: Ranks) -> None:
    after = only_change(planned(tmp_path, _LOCAL))
    assert "if decided_together(loss.item() < best):\n" in after
    assert not report(ranks.run(after, process_group=False))


def test_a_test_above_the_sharding_lets_all_ranks_pass(tmp_path: Path) -> None:
    text = f"import os\n\n{_LOCAL}".replace(
        "\nmain()\n", '\nif "LOCAL_RANK" in os.environ:\n    main()\n'
    )
    after = only_change(planned(tmp_path, text))
    assert "if decided_together(loss.item() < best):\n" in after


_EVALUATED = f"""{_HEAD}
dist.init_process_group("gloo")
model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
with torch.no_grad():
    model(torch.ones(2, 4))
if dist.get_rank() == 0:
    torch.save(STATES, "last.pt")
print("done")
"""


def test_states_after_an_evaluation_begin_with_the_model(tmp_path: Path, ranks: Ranks) -> None:
    states = '{"optimizer": optimizer.state_dict(), "model": model.module.state_dict()}'
    after = only_change(planned(tmp_path, _EVALUATED.replace("STATES", states)))
    assert after.index("state_dict = get_model_") < after.index("optimizer_state = get_optimizer_")
    assert not report(ranks.run(after, process_group=False))


def test_the_state_of_an_optimizer_after_an_evaluation_is_kept(tmp_path: Path) -> None:
    plan = planned(tmp_path, _EVALUATED.replace("STATES", "optimizer.state_dict()"))
    (reason,) = (e.found.reason for e in plan.of(Kept) if isinstance(e.found, Kept))
    assert reason == (
        "the forward before this leaves the root unsharded; call `reshard()` on it first, by hand"
    )


_COMPILED = f"""{_HEAD}
import sys

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.compile(nn.Linear(4, 4), backend="eager")
model = DDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
old, new = sys.argv[1:]
if old != "none":
    state = torch.load(old)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
loss = model(torch.ones(2, 4)).square().mean()
print(round(loss.item(), 5))
loss.backward()
optimizer.step()
if dist.get_rank() == 0:
    torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}, new)
"""


def test_states_of_a_compiled_model_still_load(tmp_path: Path, ranks: Ranks) -> None:
    after = only_change(planned(tmp_path, _COMPILED))
    first, second, third = (str(tmp_path / name) for name in ("1.pt", "2.pt", "3.pt"))
    printed = []
    for text, *files in (
        (_COMPILED, "none", first),
        (_COMPILED, first, second),
        (after, first, second),
        (after, second, third),
    ):
        outcomes = ranks.run(text, arguments=files, process_group=False)
        assert not report(outcomes)
        printed.append(outcomes[0].output)
    assert printed[1] == printed[2]
    assert len(set(printed)) == 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("model.module.encode(batch)", True),
        ("model.module(batch)", True),
        ("torch.no_grad()(model.module.encode)(batch)", False),
        ("model(batch)", False),
    ],
)
def test_the_plan_tells_of_calls_that_bypass_ddp(tmp_path: Path, call: str, said: bool) -> None:
    text = _shown().replace("model(torch.ones(2, 4))", call.replace("batch", "torch.ones(2, 4)"))
    texts = [
        e.found.differs for e in planned(tmp_path, text).of(Change) if isinstance(e.found, Change)
    ]
    assert ("gradients of this call are averaged over ranks, which DDP did not do" in texts) is said


def test_gradients_of_calls_that_bypass_ddp(ranks: Ranks) -> None:
    lines = f"""{_HEAD}
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
one, other = DDP(nn.Linear(4, 4)), fully_shard(nn.Linear(4, 4))
torch.manual_seed(dist.get_rank())
batch = torch.randn(2, 4)
for model in (one.module, other):
    model(batch).sum().backward()
print(round(one.module.weight.grad.sum().item(), 4))
print(round(other.weight.grad.full_tensor().sum().item(), 4))
"""
    printed = [o.output.split() for o in ranks.run(lines, process_group=False)]
    (first, mean), (second, same) = printed
    assert first != second
    assert mean == same


_FLAG = """\
        if dist.is_initialized():
            model.require_backward_grad_sync = last
"""
_ACCUMULATED = f"""{_HEAD}
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(3):
    for last in (False, True):
        batch = torch.randn(2, 4)
        loss = model(batch).square().mean()
{_FLAG}\
        loss.backward()
        print(round(loss.item(), 5))
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_flag_that_ddp_reads_too_late_is_told_and_corrected(tmp_path: Path, ranks: Ranks) -> None:
    plan = planned(tmp_path, _ACCUMULATED)
    ((_, corrected),) = plan.corrected
    forward = "        loss = model(batch).square().mean()\n"
    assert corrected.text == _ACCUMULATED.replace(forward + _FLAG, _FLAG + forward)
    printed = []
    for text in (_ACCUMULATED, corrected.text, only_change(plan)):
        outcomes = ranks.run(text, process_group=False)
        assert not report(outcomes)
        printed.append([outcome.output for outcome in outcomes])
    assert printed[0] != printed[1] == printed[2]
    early = planned(tmp_path, corrected.text)
    assert early.corrected == ()
    assert not any(e.found.differs for e in early.of(Change) if isinstance(e.found, Change))


_RESUMED = """\
import torch


def resume(path, net):
    net.load_state_dict(torch.load(path)["net"])
"""


@pytest.mark.parametrize("given", ["path, model", "path, net=model"])
def test_a_helper_loads_what_the_wrapper_saved(tmp_path: Path, given: str) -> None:
    (tmp_path / "resumed.py").write_text(_RESUMED, "utf-8")
    plan = planned(
        tmp_path,
        f"""{_HEAD}
from resumed import resume

dist.init_process_group("gloo")
path = "old.pt"
model = DDP(nn.Linear(4, 4))
resume({given})
""",
    )
    assert plan.is_complete
    changed = {Path(after.path).name: after.text for _, after in plan.files}
    assert 'name.removeprefix("module."): value for name, value in' in changed["resumed.py"]
    assert "set_model_state_dict(\n        net,\n" in changed["resumed.py"]


_OF_NODES = f"""{_HEAD}
import os


class Trainer:
    def __init__(self):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.model = DDP(nn.Linear(4, 4))

    def save(self):
        torch.save({{"model": self.model.module.state_dict()}}, "model.pt")

    def train(self):
        self.model(torch.ones(2, 4)).sum().backward()
        if self.local_rank == 0:
            self.save()


dist.init_process_group("gloo")
Trainer().train()
"""


def test_one_rank_of_each_node_still_saves(tmp_path: Path, ranks: Ranks) -> None:
    after = only_change(planned(tmp_path, _OF_NODES))
    assert "self.model, options=StateDictOptions(full_state_dict=True)\n" in after
    assert "if dist.get_node_local_rank(dist.get_rank()) != 0:\n            return\n" in after
    assert not report(ranks.run(after, process_group=False))
