"""Which models train parameters that no unit holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import script

from fsdplint.engine.facts.coverage import unsharded_roots

NET = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.token = nn.Parameter(torch.zeros(8))
        self.head = nn.Linear(8, 8)
        self.drop = nn.Dropout()
        self.other = thing()

    def forward(self, x):
        return x

"""
TRAIN = "optimizer = torch.optim.SGD(model.parameters())\nmodel(x).backward()\noptimizer.step()\n"
BLOCKS = "for block in model.blocks:\n    fully_shard(block)\n"


def outside(root: Path, text: str) -> list[list[str]]:
    found = script(root, NET + "model = Net()\n" + text)
    return [[part.path() for part in fact.outside] for fact in unsharded_roots(found)]


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        (BLOCKS, [".embed", ".token", ".head"]),
        ("fully_shard(model.head)\n", [".embed", ".blocks[]", ".token"]),
        (BLOCKS + "fully_shard([model.embed, model.head])\n", [".token"]),
        (BLOCKS + "model.token.requires_grad = False\n", [".embed", ".head"]),
        (BLOCKS + "model.embed.requires_grad_(False)\n", [".token", ".head"]),
        (BLOCKS + "for p in model.head.parameters():\n    p.requires_grad = x\n", None),
        (BLOCKS + "setattr(model.token, 'requires_grad', False)\n", [".embed", ".head"]),
        (BLOCKS + "model.requires_grad_(False)\n", []),
        (BLOCKS + "model.requires_grad_(False)\nmodel.head.requires_grad_()\n", [".head"]),
        ("for m in model.children():\n    fully_shard(m)\n", []),
        ("for m in model.modules():\n    if test(m):\n        fully_shard(m)\n", []),
        (BLOCKS + "fully_shard(model)\n", []),
        ("for block in model.blocks:\n    FSDP(block)\n", []),
    ],
)
def test_what_is_in_no_unit(tmp_path: Path, sharding: str, expected: list[str] | None) -> None:
    expected = [".embed", ".token"] if expected is None else expected
    found = outside(tmp_path, sharding + TRAIN)
    inner = [[path.removesuffix(".linear") for path in paths] for paths in found]
    assert inner == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (TRAIN, True),
        (TRAIN.replace("optimizer.step()\n", ""), True),
        (TRAIN.replace("model(x).backward()\n", ""), True),
        ("model(x).backward()\n", True),
        ("model(x)\n", False),
        (TRAIN.replace("model.parameters", "model.blocks.parameters"), False),
        (TRAIN.replace("model.parameters()", "[p for p in model.parameters() if f(p)]"), False),
        ("shard(model)\n" + TRAIN, False),
        (TRAIN + "shard(model)\n", True),
        ("nn.parallel.DistributedDataParallel(model)\n" + TRAIN, False),
        ("model.head = nn.parallel.DistributedDataParallel(model.head)\n" + TRAIN, False),
        ("model, o = accelerator.prepare(model, 1)\n" + TRAIN, False),
        ("for p in model.parameters():\n    dist.broadcast(p.data, 0)\n" + TRAIN, False),
        ("dist.all_reduce(loss)\n" + TRAIN, True),
        ("dist.all_reduce(model.head.weight.grad)\n" + TRAIN, False),
        ("model.token.register_hook(reduce)\n" + TRAIN, False),
    ],
)
def test_what_is_trained_and_by_whom(tmp_path: Path, use: str, expected: bool) -> None:
    assert bool(outside(tmp_path, BLOCKS + use)) == expected


@pytest.mark.parametrize(
    ("model", "loop", "expected"),
    [
        ("LlamaForCausalLM", "model.model.layers", True),
        ("LlamaForCausalLM", "model.model.children()", False),
        ("AutoModelForCausalLM", "model.transformer.h", True),
        ("AutoModelForCausalLM", "model.parts", False),
        ("AutoTokenizer", "model.model.layers", False),
    ],
)
def test_models_of_transformers(tmp_path: Path, model: str, loop: str, expected: bool) -> None:
    text = f"""\
import transformers
model = transformers.{model}.from_pretrained("x")
for block in {loop}:
    fully_shard(block)
{TRAIN}"""
    assert [f.outside for f in unsharded_roots(script(tmp_path, text))] == [()] * expected


def test_a_root_sharded_on_another_path_is_the_authors_choice(tmp_path: Path) -> None:
    assert outside(tmp_path, BLOCKS + "if args.root:\n    fully_shard(model)\n" + TRAIN) == []
