"""Which methods of a unit run past its hooks."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import script

from fsdplint.rules.custom_method_bypasses_hooks import bypassing_methods

NET = """\
from torch.distributed.fsdp import register_fsdp_forward_method as register

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8, 8))
        self.drop = nn.Dropout()

    def forward(self, x):
        return self.encode(x)

    def encode(self, x):
        return self.head(self.body(x))

    def inner(self, x):
        return self.body(x)

    def outer(self, x):
        return self.encode(x)

    def scaled(self, x):
        return x @ self.scale

    def linear(self, x):
        return nn.functional.linear(x, self.head.weight)

    def inner_linear(self, x):
        return nn.functional.linear(x, self.body.weight)

    def shifted(self, x):
        return x + self.scale

    def dropped(self, x):
        return self.drop(x)

    def loss(self, x):
        return self(x).mean()

    def gathered(self, x):
        self.unshard()
        return self.encode(x)

    @staticmethod
    def normal(x):
        return x @ x

    @property
    def total(self):
        return self.head(0)

model = Net()
"""
SHARD = "fully_shard(model.body)\nfully_shard(model)\n"


def found(root: Path, text: str) -> list[tuple[str, str]]:
    """Methods as (the attribute, where it uses parameters)."""
    program = script(root, NET + text)
    facts = {
        (
            program.text(fact.method.source.path, fact.method.source.node),
            program.text(fact.use.path, fact.use.node),
        )
        for fact in bypassing_methods(program)
    }
    return sorted(facts)


@pytest.mark.parametrize(
    ("method", "use"),
    [
        ("encode", "self.head(self.body(x))"),
        ("outer", "self.head(self.body(x))"),
        ("scaled", "x @ self.scale"),
        ("linear", "nn.functional.linear(x, self.head.weight)"),
        ("inner", None),
        ("inner_linear", None),
        ("shifted", None),
        ("dropped", None),
        ("loss", None),
        ("gathered", None),
        ("normal", None),
        ("unknown", None),
        ("parameters", None),
    ],
)
def test_methods_by_what_they_use(tmp_path: Path, method: str, use: str | None) -> None:
    expected = [] if use is None else [(f"model.{method}", use)]
    assert found(tmp_path, f"{SHARD}model.{method}(x)\n") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{SHARD}model.encode(x)\n", True),
        ("model.encode(x)\n" + SHARD, False),
        ("fully_shard(model.body)\nmodel.encode(x)\n", False),
        ("FSDP(model)\nmodel.encode(x)\n", True),
        ("FSDP(model, auto_wrap_policy=policy)\nmodel.encode(x)\n", False),
        (f"{SHARD}register(model, 'encode')\nmodel.encode(x)\n", False),
        (f"{SHARD}register(model, 'outer')\nmodel.outer(x)\n", False),
        (f"{SHARD}register(model, 'outer')\nmodel.encode(x)\n", True),
        (f"{SHARD}register(model, name)\nmodel.encode(x)\n", False),
        (f"register(model, 'encode')\n{SHARD}model.encode(x)\n", True),
        (f"{SHARD}model.encode(x)\nregister(model, 'encode')\n", True),
        (f"{SHARD}model.unshard()\nmodel.encode(x)\n", False),
        (f"{SHARD}model.unshard()\nmodel.reshard()\nmodel.encode(x)\n", True),
        (f"{SHARD}loss = model(x)\nmodel.encode(x)\n", False),
        (f"{SHARD}model(x).backward()\nmodel.encode(x)\n", True),
        (f"{SHARD}model(x)\nmodel.reshard()\nmodel.encode(x)\n", True),
        ("fully_shard(model, reshard_after_forward=True)\nmodel(x)\nmodel.encode(x)\n", True),
        ("prepare(model)\n" + SHARD + "model.encode(x)\n", True),
        (f"{SHARD}prepare(model)\nmodel.encode(x)\n", False),
        (f"{SHARD}if args.fsdp:\n    model.encode(x)\n", True),
        ("if args.fsdp:\n    fully_shard(model)\nif args.ddp:\n    model.encode(x)\n", False),
    ],
)
def test_what_speaks_against_it(tmp_path: Path, text: str, expected: bool) -> None:
    assert bool(found(tmp_path, text)) == expected
