"""Conditions that each rank decides on its own batch, and what a rank skips by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import script

from fsdplint.rules.step_skipped_on_one_rank import skipped_steps

LOOP = """
import math
from torch.nn import functional as F

def bad(loss):
    return loss.isnan() or not loss.isfinite()

def main(model, batches, args, accelerator, other):
    model = fully_shard(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for x, y in batches:
        loss = model(x).mean()
        {test}
            continue
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "test",
    [
        "if torch.isnan(loss):",
        "if loss != 0 and not torch.isfinite(loss).all():",
        "if bad(loss):",
        "if math.isinf(float(loss)):",
        "if loss > args.limit:",
        "if loss.detach().abs().max().item() > 2 * args.limit:",
        "if ~torch.isfinite(loss):",
        "if (loss - args.mean) / args.std > 3:",
        "if F.mse_loss(model(x), y) < 1e-3:",
        "if nn.CrossEntropyLoss()(model(x), y).item() < 1e-3:",
        "value = loss.item()\n        if round(value, 2) == 0.0:",
        "value = loss if args.raw else loss.sqrt()\n        if value > 1:",
        "print(loss)\n        args.logger.log(loss)\n        if loss > 1:",
        "loss /= 2\n        if loss > 1:",
        "_, loss = model(x, y)\n        if loss > 1:",
        "_, (loss, *_) = model(x, y)\n        if loss > 1:",
        "loss = model(x, y)[1:][0]\n        if loss > 1:",
        "loss += args.weight * x.norm()\n        if loss > 1:",
        "args.total += loss.item()\n        if args.total > 100:",
        "if torch.max(loss, args.floor) > 1:",
        "value = accelerator.scaler.scale(loss)\n        if value > 1:",
    ],
)
def test_a_number_of_this_rank_skips_the_backward(tmp_path: Path, test: str) -> None:
    facts = list(skipped_steps(script(tmp_path, LOOP.replace("{test}", test))))
    assert {fact.skipped.name for fact in facts} == {"backward"}


@pytest.mark.parametrize(
    "test",
    [
        "if args.step > 3:",
        "if x is None or torch.isnan(x).any():",
        "if loss is None:",
        "if loss == args.nothing:",
        "if loss.requires_grad and loss.shape[0] > 1 and len(loss) == 1:",
        "if torch.is_tensor(loss) and torch.numel(loss) > 1:",
        "if hasattr(loss, 'value') or isinstance(loss, list):",
        "if accelerator.gather(loss).isnan().any():",
        "if accelerator.mean(loss) > 1:",
        "if other(loss) > 1:",
        "other(loss)\n        if loss > 1:",
        "number = loss.detach()\n        other(number)\n        if number > 1:",
        "dist.all_reduce(loss)\n        if loss > 1:",
        "flag = (loss > 1).float()\n        dist.all_reduce(flag)\n        if flag.item():",
        "value = loss if args.raw else other(loss)\n        if value > 1:",
        "if args.world_size == 1 and loss > 1:",
        "if dist.get_rank() == 0 and loss > 1:",
        "if nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 9:",
        "if loss.full_tensor() > 1:",
    ],
)
def test_what_is_not_known_to_be_this_ranks_own_is_left(tmp_path: Path, test: str) -> None:
    assert not list(skipped_steps(script(tmp_path, LOOP.replace("{test}", test))))


STEP = """
def main(batches, args, head):
    model = fully_shard(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in batches:
        loss = model(x).mean()
"""


@pytest.mark.parametrize(
    ("lines", "skipped"),
    [
        ("if loss < 1:\n    loss.backward()", "backward"),
        ("if not loss < 1:\n    print(loss)\nelse:\n    (loss / 2).backward()", "backward"),
        ("if loss > 1:\n    break\nmodel(x).sum().backward()", "forward"),
        ("loss.backward()\nif loss < 1:\n    optimizer.step()", "step"),
        (
            "if loss > 1:\n    if args.strict:\n        raise ValueError\n    continue\n"
            "loss.backward()",
            "backward",
        ),
    ],
)
def test_the_first_part_of_a_step_that_is_skipped(tmp_path: Path, lines: str, skipped: str) -> None:
    text = STEP + "".join(f"        {line}\n" for line in lines.split("\n"))
    assert [fact.skipped.name for fact in skipped_steps(script(tmp_path, text))] == [skipped]


@pytest.mark.parametrize(
    "lines",
    [
        "if loss > 1:\n    raise ValueError\nloss.backward()",
        "if loss > 1:\n    print(loss)\n    exit(1)\nloss.backward()",
        "if loss > 1:\n    args.abort_all()\n    continue\nloss.backward()",
        "if loss > 1:\n    loss = loss * 0\nloss.backward()",
        "if loss > 1:\n    (loss * 0).backward()\n    continue\nloss.backward()",
        "if loss > 1:\n    dist.barrier()\n    continue\nloss.backward()",
        "if loss > 1:\n    continue\nhead(x).sum().backward()",
        "loss.backward()\noptimizer.step()\nif loss > 1:\n    print(loss)",
        "if args.world_size == 1:\n    if loss > 1:\n        continue\nloss.backward()",
        "if args.world_size == 1:\n    if loss > 1:\n        continue\n    loss.backward()",
    ],
)
def test_a_rank_that_skips_nothing_or_ends_all_is_left(tmp_path: Path, lines: str) -> None:
    text = STEP + "".join(f"        {line}\n" for line in lines.split("\n"))
    assert not list(skipped_steps(script(tmp_path, text)))


def test_a_model_that_may_reduce_its_loss_is_left(tmp_path: Path) -> None:
    text = """
class Model(nn.Linear):
    def forward(self, x):
        loss = super().forward(x).mean()
        dist.all_reduce(loss)
        return loss

def main(batches):
    model = fully_shard(Model(8, 8))
    for x in batches:
        loss = model(x)
        if torch.isnan(loss):
            continue
        loss.backward()
"""
    assert not list(skipped_steps(script(tmp_path, text)))
    text = text.replace("        dist.all_reduce(loss)\n", "")
    assert len(list(skipped_steps(script(tmp_path, text)))) == 1
