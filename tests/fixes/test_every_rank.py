"""Collectives moved out from under the test of the rank."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Finding
from fsdplint.fixes.edits import apply, select

HEADER = """\
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType, fully_shard

rank = dist.get_rank()
full = StateDictOptions(full_state_dict=True, cpu_offload=True)
x = torch.ones(2, 8)
"""
MODEL = {
    "FSDP2": "model = fully_shard(nn.Linear(8, 8))\n",
    "FSDP1": "model = FSDP(nn.Linear(8, 8))\n",
}


def found(text: str) -> list[Finding]:
    findings = check_text(text)
    assert {finding.rule for finding in findings} <= {"collective-under-rank-guard"}
    return findings


def fixed(text: str) -> str:
    """The text after every fix, pass by pass."""
    while chosen := select([finding for finding in found(text) if finding.fix]):
        text = apply(text, [edit for one in chosen if one.fix for edit in one.fix.edits])
    compile(text, "train.py", "exec", dont_inherit=True)
    return text


FIXED = {
    "the header of a context": (
        "FSDP1",
        """\
if rank == 0 and x is not None:
    path = "x.pt"
    kind = StateDictType.FULL_STATE_DICT
    with FSDP.state_dict_type(
        model, kind
    ):
        # whole
        state = model.state_dict()

        torch.save(
            {"model": state},
            path,
        )
        print(path)
""",
        """\
if x is not None:
    kind = StateDictType.FULL_STATE_DICT
    with FSDP.state_dict_type(model, kind):
        # whole
        state = model.state_dict()
if rank == 0 and x is not None:
    path = "x.pt"

    torch.save(
        {"model": state},
        path,
    )
    print(path)
""",
    ),
    "the header of a context, inline": (
        "FSDP1",
        """\
if rank == 0:
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        torch.save(model.state_dict(), "x.pt")
""",
        """\
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    state_dict = model.state_dict()
if rank == 0:
    torch.save(state_dict, "x.pt")
""",
    ),
    "a caller and the function": (
        "FSDP1",
        """\
def save():
    if rank != 0:
        return
    from torch.distributed.fsdp import StateDictType

    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        state = model.state_dict()
        torch.save(state, "x.pt")


if rank == 0:
    save()
""",
        """\
def save():
    from torch.distributed.fsdp import StateDictType
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        state = model.state_dict()
    if rank != 0:
        return

    torch.save(state, "x.pt")


save()
""",
    ),
    "a checkpoint of all ranks": (
        "FSDP1",
        """\
if rank == 0:
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        dcp.save({"model": model.state_dict()}, checkpoint_id="x")
""",
        """\
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    dcp.save({"model": model.state_dict()}, checkpoint_id="x")
""",
    ),
    "save": (
        "FSDP2",
        """\
if rank == 0:
    # whole
    state = get_model_state_dict(model, options=full)  # gather
    torch.save(state, "x.pt")
""",
        """\
# whole
state = get_model_state_dict(model, options=full)  # gather
if rank == 0:
    torch.save(state, "x.pt")
""",
    ),
    "inline": (
        "FSDP2",
        """\
if rank == 0 and x is not None:
    torch.save(get_model_state_dict(model, options=full), "x.pt")
""",
        """\
if x is not None:
    state_dict = get_model_state_dict(model, options=full)
if rank == 0 and x is not None:
    torch.save(state_dict, "x.pt")
""",
    ),
    "two": (
        "FSDP2",
        """\
opt = torch.optim.SGD(model.parameters())
if rank == 0:
    sd = get_model_state_dict(model, options=full)
    o = get_optimizer_state_dict(model, opt, options=full)
    torch.save({"m": sd, "o": o}, "x.pt")
""",
        """\
opt = torch.optim.SGD(model.parameters())
sd = get_model_state_dict(model, options=full)
o = get_optimizer_state_dict(model, opt, options=full)
if rank == 0:
    torch.save({"m": sd, "o": o}, "x.pt")
""",
    ),
    "bare": (
        "FSDP2",
        """\
for i in range(3):
    if rank == 0:  # first
        # wait
        dist.barrier()
    print(i)
""",
        """\
for i in range(3):
    # first
    # wait
    dist.barrier()
    print(i)
""",
    ),
    "last": (
        "FSDP2",
        """\
if rank == 0:
    torch.save(x, "x.pt")
    dist.barrier()
""",
        """\
if rank == 0:
    torch.save(x, "x.pt")
dist.barrier()
""",
    ),
    "early": (
        "FSDP2",
        """\
def save(path):
    if rank != 0:
        return
    sd = get_model_state_dict(model, options=full)
    torch.save(sd, path)
save("p")
""",
        """\
def save(path):
    sd = get_model_state_dict(model, options=full)
    if rank != 0:
        return
    torch.save(sd, path)
save("p")
""",
    ),
    "early inline": (
        "FSDP2",
        """\
def save(path):
    if rank != 0:
        return
    torch.save(get_model_state_dict(model, options=full), path)
save("p")
""",
        """\
def save(path):
    state_dict = get_model_state_dict(model, options=full)
    if rank != 0:
        return
    torch.save(state_dict, path)
save("p")
""",
    ),
    "dictcomp": (
        "FSDP2",
        """\
if rank == 0:
    sd = {k: v.full_tensor() for k, v in model.state_dict().items()}
    torch.save(sd, "p")
""",
        """\
sd = {k: v.full_tensor() for k, v in model.state_dict().items()}
if rank == 0:
    torch.save(sd, "p")
""",
    ),
    "dictcomp2": (
        "FSDP2",
        """\
if rank == 0:
    torch.save({k: v.full_tensor() for k, v in model.state_dict().items()}, "p")
""",
        """\
full_ = {k: v.full_tensor() for k, v in model.state_dict().items()}
if rank == 0:
    torch.save(full_, "p")
""",
    ),
    "loop": (
        "FSDP2",
        """\
if rank == 0:
    sd = {}
    for k, v in model.state_dict().items():
        sd[k] = v.full_tensor().cpu()
    torch.save(sd, "p")
""",
        """\
sd = {}
for k, v in model.state_dict().items():
    sd[k] = v.full_tensor().cpu()
if rank == 0:
    torch.save(sd, "p")
""",
    ),
    "caller": (
        "FSDP2",
        """\
def evaluate(model):
    return model(x).mean()
if rank == 0:
    print("eval", evaluate(model))
""",
        """\
def evaluate(model):
    return model(x).mean()
result = evaluate(model)
if rank == 0:
    print("eval", result)
""",
    ),
    "caller bare": (
        "FSDP2",
        """\
def evaluate(model):
    print(model(x).mean())
for step in range(9):
    if step % 3 == 0 and rank == 0:
        evaluate(model)
""",
        """\
def evaluate(model):
    print(model(x).mean())
for step in range(9):
    if step % 3 == 0:
        evaluate(model)
""",
    ),
    "else": (
        "FSDP2",
        """\
if rank != 0:
    pass
else:
    dcp.save({"m": 1}, checkpoint_id="x")
""",
        """\
dcp.save({"m": 1}, checkpoint_id="x")
if rank != 0:
    pass
else:
    pass
""",
    ),
    "oneline": (
        "FSDP2",
        """\
if rank == 0: dist.barrier()
""",
        """\
dist.barrier()
""",
    ),
    "return": (
        "FSDP2",
        """\
def f():
    if rank == 0:
        return model(x)
f()
""",
        """\
def f():
    output = model(x)
    if rank == 0:
        return output
f()
""",
    ),
    "tabs and strings": (
        "FSDP2",
        '''\
def save():
\tif rank == 0:
\t\t# the state
\t\tstate = get_model_state_dict(
\t\t\tmodel,
\t\t\toptions=full,
\t\t)
\t\ttext = """
  as it is
"""
\t\ttorch.save(state, text)
save()
''',
        '''\
def save():
\t# the state
\tstate = get_model_state_dict(
\t\tmodel,
\t\toptions=full,
\t)
\tif rank == 0:
\t\ttext = """
  as it is
"""
\t\ttorch.save(state, text)
save()
''',
    ),
    "ctx": (
        "FSDP1",
        """\
if rank == 0:
    with FSDP.state_dict_type(model, 1):
        sd = model.state_dict()
    torch.save(sd, "x")
""",
        """\
with FSDP.state_dict_type(model, 1):
    sd = model.state_dict()
if rank == 0:
    torch.save(sd, "x")
""",
    ),
    "lines of a string": (
        "FSDP2",
        '''\
if rank == 0 and x is not None:
    dist.all_gather_object([0, 0], """x
y""")
    print(x)
''',
        '''\
if x is not None:
    dist.all_gather_object([0, 0], """x
y""")
if rank == 0 and x is not None:
    print(x)
''',
    ),
    "ctx3": (
        "FSDP1",
        """\
with FSDP.state_dict_type(model, 1):
    if rank == 0:
        sd = model.state_dict()
        torch.save(sd, "x")
""",
        """\
with FSDP.state_dict_type(model, 1):
    sd = model.state_dict()
    if rank == 0:
        torch.save(sd, "x")
""",
    ),
}


@pytest.mark.parametrize(("kind", "before", "after"), FIXED.values(), ids=FIXED)
def test_every_rank_makes_the_call(kind: str, before: str, after: str) -> None:
    head = HEADER + MODEL[kind]
    assert fixed(head + before) == head + after
    assert found(head + after) == []


def test_line_ends_are_kept() -> None:
    kind, before, after = FIXED["save"]
    head = HEADER + MODEL[kind]
    assert fixed((head + before).replace("\n", "\r\n")) == (head + after).replace("\n", "\r\n")


DECLINED = {
    "and": (
        "FSDP2",
        """\
rank == 0 and model(x)
""",
        "`rank == 0` is part of a larger expression",
    ),
    "cond": (
        "FSDP2",
        """\
sd = get_model_state_dict(model, options=full) if rank == 0 else {}
""",
        "`rank == 0` is part of a larger expression",
    ),
    "ctx2": (
        "FSDP1",
        """\
if rank == 0:
    with FSDP.state_dict_type(model, 1):
        torch.save(model.state_dict(), "x")
        print(model)
""",
        "`with FSDP.state_dict_type(model, 1):` also governs other code; move it by hand",
    ),
    "no_grad": (
        "FSDP2",
        """\
if rank == 0:
    with torch.no_grad():
        print(model(x))
""",
        "`with torch.no_grad():` does more than the collective needs; "
        "move the call before the test by hand",
    ),
    "elif": (
        "FSDP2",
        """\
if x is None:
    pass
elif rank == 0:
    model(x)
""",
        "`rank == 0` is one of several branches; move the call before the test by hand",
    ),
    "caller writes": (
        "FSDP2",
        """\
def save(p):
    torch.save(get_model_state_dict(model, options=full), p)
if rank == 0:
    save("p")
""",
        "`save` also writes files, and every rank would write them; split the call by hand",
    ),
    "barrier in the middle": (
        "FSDP2",
        """\
if rank == 0:
    print("a")
    dist.barrier()
    print("b")
""",
        "`dist.barrier()` cannot move before the code above it; move the call by hand",
    ),
    "changed before": (
        "FSDP2",
        """\
if rank == 0:
    options = full
    print("once")
    torch.save(get_model_state_dict(model, options=options), "p")
""",
        "`options` changes between the rank test and the collective; move the call by hand",
    ),
    "used before": (
        "FSDP2",
        """\
state = {}
if rank == 0:
    torch.save(state, "old")
    state = get_model_state_dict(model, options=full)
    torch.save(state, "new")
""",
        "`state` is used before the collective changes it",
    ),
    "or": (
        "FSDP2",
        """\
def f(done):
    if rank != 0 or done:
        return
    model(x)
f(x is None)
""",
        "`rank != 0 or done` tests more than the rank",
    ),
    "nested": (
        "FSDP2",
        """\
if rank == 0:
    if x is not None:
        model(x)
    print("a")
""",
        "`if x is not None:` does more than the collective needs; "
        "move the call before the test by hand",
    ),
    "match": (
        "FSDP2",
        """\
match rank:
    case 0:
        model(x)
    case _:
        pass
""",
        "`case 0:` is one of several branches; move the call before the test by hand",
    ),
    "two tests": (
        "FSDP2",
        """\
if rank == 0:
    if dist.get_rank() == 0:
        model(x)
""",
        "several tests exclude ranks; move the call out of all of them by hand",
    ),
    "decorated": (
        "FSDP2",
        """\
def first(function):
    def run():
        if rank == 0:
            function()
    return run
@first
def evaluate():
    model(x)
evaluate()
""",
        "`rank == 0` guards whichever function is passed here; call it on every rank by hand",
    ),
    "summon": (
        "FSDP1",
        """\
if rank == 0:
    with FSDP.summon_full_params(model):
        print(x)
""",
        "`with FSDP.summon_full_params(model):` does more than the collective "
        "needs; move the call before the test by hand",
    ),
    "a return between the test and the call": (
        "FSDP2",
        """\
def save(step):
    if rank != 0:
        return
    if step % 100:
        return
    torch.save(get_model_state_dict(model, options=full), "x.pt")


for step in range(1000):
    save(step)
""",
        "`step % 100` decides after the rank test whether this is called; test it before, "
        "so that all ranks agree",
    ),
}


@pytest.mark.parametrize(("kind", "text", "reason"), DECLINED.values(), ids=DECLINED)
def test_what_is_unsure_is_left_alone(kind: str, text: str, reason: str) -> None:
    findings = found(HEADER + MODEL[kind] + text)
    assert [finding.fix_declined for finding in findings] == [reason]
