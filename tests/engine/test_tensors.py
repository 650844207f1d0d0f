"""Tensors of sharded modules: which numbers of them are read in part, and which are whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import script

from fsdplint.engine.facts.clipping import local_norms
from fsdplint.rules.sharded_reduction_read_locally import local_reads

PREFIX = """\
model = Net()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
model(x).mean().backward()
p = next(iter(model.parameters()))
for p in model.parameters():
    g = p.grad
"""


def read(root: Path, statement: str) -> list[str]:
    found = script(root, f"{PREFIX}    {statement}\n")
    texts = {found.text(f.read.site.path, f.read.site.node) for f in local_reads(found)}
    return sorted(texts)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("g.norm().item()", ["g.norm().item()"]),
        ("g.norm(float('inf')).item()", ["g.norm(float('inf')).item()"]),
        ("torch.norm(g, 2).item()", ["torch.norm(g, 2).item()"]),
        ("int(g.count_nonzero())", ["int(g.count_nonzero())"]),
        ("(g * 2 + p).abs().mean().detach().item()", ["(g * 2 + p).abs().mean().detach().item()"]),
        ("(g.sum() / 2).item()", ["(g.sum() / 2).item()"]),
        ("(g.sum() + p.sum()).item()", ["(g.sum() + p.sum()).item()"]),
        ("x = g.isnan().any() or p.isnan().any()", ["g.isnan().any()"]),
        ("x = 1 if (g > 1).any() else 2", ["(g > 1).any()"]),
        ("print(f'{g.max()} {g.min():.2f}')", ["g.max()"]),
        ("print('%d %s' % (g.sum(), p))", ["g.sum()"]),
        ("model.head.bias.grad.norm().item()", ["model.head.bias.grad.norm().item()"]),
        ("max(0.0, g.abs().max()).item()", ["max(0.0, g.abs().max()).item()"]),
        ("torch._foreach_norm([g])[0].item()", ["torch._foreach_norm([g])[0].item()"]),
        # Whole: the parts are combined before, or each rank has all.
        ("(g.norm() ** 2).item()", []),
        ("(g.norm() + p.norm()).item()", []),
        ("(g.max() * 2).item()", []),
        ("(1.0 - g.sum()).item()", []),
        ("g.pow(2).sum().sqrt().item()", []),
        ("g.std().item()", []),
        ("(g.norm() > 1).item()", []),
        ("torch.stack([g.norm(), p.norm()]).norm().item()", []),
        ("g.norm().full_tensor().item()", []),
        ("g.to_local().norm().item()", []),
        # No number, or one that is not known to be of a shard.
        ("print(g.norm(dim=1), g.sum(0).max().item(), g[0].sum().item())", []),
        ("print(p.numel(), g.shape[0], float(p.size(0)))", []),
        ("unknown(g).norm().item()", []),
        ("(g.full_tensor() if flag else g).norm().item()", []),
        ("torch.norm(g if flag else g.to_local()).item()", []),
        ("print(f'{g.norm():.3f}')", []),
    ],
)
def test_reads_of_a_part(statement: str, expected: list[str], tmp_path: Path) -> None:
    assert read(tmp_path, statement) == expected


def test_a_number_that_is_combined_later_is_no_finding(tmp_path: Path) -> None:
    assert (
        read(tmp_path, "n = g.norm().item() ** 2; t = torch.tensor([n]); dist.all_reduce(t)") == []
    )
    assert read(tmp_path, "n = g.norm().item(); dist.all_reduce(other)") == ["g.norm().item()"]
    assert read(tmp_path, "n = g.norm().item(); reduce_metrics({'norm': n})") == []


@pytest.mark.parametrize(
    ("wrapping", "argument", "expected"),
    [
        ("FSDP(Net())", "model.parameters()", [True]),
        ("FSDP(Net())", "list(model.parameters())", [True]),
        ("FSDP(Net())", "model.head.parameters()", [False]),
        ("FSDP(Net())", "[*model.parameters(), *other.parameters()]", [False]),
        ("FSDP(Net(), sharding_strategy=config.strategy)", "model.parameters()", [True]),
        ("FSDP(Net(), sharding_strategy=S.NO_SHARD)", "model.parameters()", []),
        ("fully_shard(Net())", "model.parameters()", []),
        ("Net()", "model.parameters()", []),
        ("FSDP(Net())", "other.parameters()", []),
        ("FSDP(Net())", "unknown(model)", []),
    ],
)
def test_norms_of_fsdp1_gradients(
    wrapping: str, argument: str, expected: list[bool], tmp_path: Path
) -> None:
    text = f"""\
        from torch.distributed.fsdp import ShardingStrategy as S
        other = nn.Linear(8, 8)
        FSDP(nn.Linear(8, 8))
        model = {wrapping}
        torch.nn.utils.clip_grad_norm_({argument}, 1.0)
    """
    found = script(tmp_path, text)
    assert [fact.of_root for fact in local_norms(found)] == expected
