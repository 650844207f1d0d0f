"""Loads of distributed checkpoints that fill complete state, and the saves that go with them."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.fixes.edits import apply

PROGRAM = """\
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard


def save(model, optimizer, step, every):
{save}

def resume(model, optimizer, path):
    state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
    dcp.load(state, checkpoint_id=path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


model = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
resume(model, optimizer, "ckpt-0")
for step, batch in enumerate(torch.randn(1000, 4, 8)):
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    save(model, optimizer, step, 100)
"""
STATE = '    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}\n'
RETURN = "    if step % every:\n        return\n"
WRITE = '    dcp.save(state, checkpoint_id=f"ckpt-{step}")\n'


def test_a_save_below_an_early_return_is_changed_where_it_stands() -> None:
    text = PROGRAM.format(save=RETURN + STATE + WRITE)
    (finding,) = check_text(text)
    assert finding.rule == "fresh-optimizer-in-dcp-load" and finding.fix is not None
    fixed = apply(text, finding.fix.edits)
    below = STATE.replace("optimizer.state_dict()", "get_optimizer_state_dict(model, optimizer)")
    assert RETURN + below + WRITE in fixed


@pytest.mark.parametrize(
    ("save", "test"),
    [
        (STATE + RETURN + WRITE, "step % every"),
        (STATE + "    if step % every == 0:\n    " + WRITE, "step % every == 0"),
    ],
)
def test_no_helper_runs_where_nothing_is_saved(save: str, test: str) -> None:
    (finding,) = check_text(PROGRAM.format(save=save))
    assert finding.fix is None
    assert finding.fix_declined == (
        f"`{test}` decides after the state dict is taken whether it is saved, so the helper would "
        "run every time; take the state below that test"
    )
