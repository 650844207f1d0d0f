"""FSDP1's functions on FSDP2 models, and switches of gradient synchronization."""

from __future__ import annotations

import pytest
from verifier import Verifier

from fsdplint.verify.clauses.sharding import fsdp1_calls
from fsdplint.verify.events import Fsdp1Call, OptimizerBuilt, Sharded, SyncSwitched
from fsdplint.verify.evidence import Run

HEAD = """
import inspect
from contextlib import nullcontext
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import OptimStateKeyType, StateDictType, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
new = fully_shard(nn.Linear(4, 4).cuda())
"""
SWITCHES = f"""{HEAD}
old = FSDP(nn.Linear(4, 4), device_id=torch.cuda.current_device())
class Own(nn.Linear):
    def no_sync(self): return nullcontext()
own = fully_shard(Own(4, 4).cuda())

def asked(): hasattr(new, "no_sync")
def got(): getattr(new, "no_sync", nullcontext)()
def switched(): new.set_requires_gradient_sync(False, recurse=True)
def by_name(): new.set_requires_all_reduce(requires_all_reduce=True)
def entered():
    with old.no_sync():
        pass
def its_own(): own.no_sync()
assert inspect.getattr_static(new, "no_sync", None) is None
asked(), got(), switched(), by_name(), entered(), its_own()
try:
    new.no_sync()
except AttributeError as error:
    assert str(error) == "'FSDPLinear' object has no attribute 'no_sync'", error
    assert error.__context__ is None
else:
    raise AssertionError
"""
SILENT = f"""{HEAD}
old = FSDP(nn.Linear(4, 4), device_id=torch.cuda.current_device())
def full():
    with FSDP.summon_full_params(new):
        pass
def typed(): FSDP.set_state_dict_type(new, StateDictType.FULL_STATE_DICT)
def on_fsdp1():
    with FSDP.summon_full_params(old):
        FSDP.set_state_dict_type(module=old, state_dict_type=StateDictType.FULL_STATE_DICT)
def asked(): assert FSDP.fsdp_modules(new) == [] and not hasattr(new, "clip_grad_norm_")
def torchs_own(): get_model_state_dict(new)
def renamed():
    state = dict(state=dict(), param_groups=[dict(params=["weight", "bias"])])
    FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, new)
full(), typed(), on_fsdp1(), asked(), torchs_own(), renamed()
"""


def ended(run: Run) -> Run:
    assert [rank.ended and rank.ended.how for rank in run.ranks] == ["script"] * 2, run
    return run


def test_switches_and_requests_for_no_sync_are_noted(verifier: Verifier) -> None:
    run = ended(verifier.observe(SWITCHES))
    expected = [
        ("no_sync", False, "asked"),
        ("no_sync", False, "got"),
        ("set_requires_gradient_sync", False, "switched"),
        ("set_requires_all_reduce", True, "by_name"),
        ("no_sync", False, "entered"),
        ("no_sync", True, "entered"),
        ("no_sync", False, "<module>"),
    ]
    for rank in run.ranks:
        noted = rank.of(SyncSwitched)
        assert [(e.name, e.on, e.place.function) for e in noted if e.place] == expected


def test_calls_that_do_nothing_are_violated(verifier: Verifier) -> None:
    run = ended(verifier.observe(SILENT))
    calls = [(e.name, e.cls, e.place.function) for _, e in run.all(Fsdp1Call) if e.place]
    expected = [
        ("summon_full_params", "Linear", "full"),
        ("set_state_dict_type", "Linear", "typed"),
    ]
    assert calls == expected * 2
    found = fsdp1_calls.judge(run)
    assert (found.status.value, [place.function for place in found.places]) == (
        "violated",
        ["full", "typed"],
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("new.module", "module"),
        ("FSDP.clip_grad_norm_(new, 1.0)", "clip_grad_norm_"),
        ("FSDP.optim_state_dict(new, torch.optim.SGD(new.parameters()))", "optim_state_dict"),
    ],
)
def test_calls_that_end_the_script_are_violated(verifier: Verifier, line: str, name: str) -> None:
    result = verifier(f"{HEAD}\n{line}\n")
    assert [verdict.clause for verdict in result.violated] == ["fsdp1-calls"], result.failure
    assert f"`{name}`" in result.violated[0].figures
    assert [place.line for place in result.violated[0].places] == [HEAD.count("\n") + 2]


@pytest.mark.parametrize("line", ["new.unknown", "nn.Linear(2, 2).module", "1 / 0"])
def test_other_errors_are_no_verdict(verifier: Verifier, line: str) -> None:
    result = verifier(f"{HEAD}\n{line}\n")
    assert (result.violated, result.exit_code) == ((), 2)


def test_units_that_auto_wrap_makes_have_numbers_of_their_own(verifier: Verifier) -> None:
    run = verifier.observe(
        "import torch\nfrom torch import nn\nfrom torch.distributed.fsdp import *\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
        "torch.distributed.init_process_group('gloo')\n"
        "model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))\n"
        "model(torch.ones(2, 4)).sum().backward()\noptimizer.step()\n"
    )
    rank = run.ranks[0]
    assert [(event.unit, event.cls, event.lost) for event in rank.of(Sharded)] == [
        (0, "Sequential", 0),
        (1, "Linear", 0),
        (2, "Linear", 0),
    ]
    assert [tuple(p.name for p in event.stale) for event in rank.of(OptimizerBuilt)] == [
        ("0.0.weight", "0.0.bias", "1.weight", "1.bias")
    ]
