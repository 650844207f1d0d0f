"""Methods of sharded modules beside `forward`, and modules that are asked for their class."""

from benchmarks.differential.families.family import Family

_METHODS = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)

    «method»


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


torch.manual_seed(0)
«build»
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for index in range(3):
    out = «use»
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
"""

_METHOD = {
    "plain": """
        def encode(self, x):
            return self.linear(x) + 1.0
    """,
    "calls_forward": """
        def encode(self, x):
            return self(self.linear(x))
    """,
    "prints": """
        def encode(self, x):
            print("encoding")
            return self.linear(x) + 1.0
    """,
    "two_results": """
        def encode(self, x):
            return self.linear(x) + 1.0

        def norm(self):
            return self.linear.weight.norm()
    """,
    "generator": """
        def encode(self, x):
            return sum(self.parts(x))

        def parts(self, x):
            for _ in range(2):
                yield self.linear(x)
    """,
    "static": """
        @staticmethod
        def encode(x):
            return x.clone().requires_grad_()
    """,
    "property": """
        @property
        def weight(self):
            return self.linear.weight

        def encode(self, x):
            return nn.functional.linear(x, self.weight)
    """,
}

_BUILD = {
    "always": 'dist.init_process_group("gloo")\nmodel = Encoder()\nfully_shard(model)',
    "arms": """
        if os.environ.get("KIND", "encoder") == "encoder":
            model = Encoder()
        else:
            model = Plain()
        dist.init_process_group("gloo")
        fully_shard(model)
    """,
    "launched": """
        model = Encoder()
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
            fully_shard(model)
    """,
    "function": """
        def shard(module):
            fully_shard(module)
            return module


        dist.init_process_group("gloo")
        plain = shard(Plain())
        model = shard(Encoder())
    """,
    "loop": """
        dist.init_process_group("gloo")
        for made in (Plain(), Encoder()):
            fully_shard(made)
        model = made
    """,
    "table": """
        KINDS = {"encoder": Encoder, "plain": Plain}
        dist.init_process_group("gloo")
        model = KINDS[os.environ.get("KIND", "encoder")]()
        fully_shard(model)
    """,
    "replaced": """
        dist.init_process_group("gloo")
        model = Encoder()
        fully_shard(model)
        if os.environ.get("PLAIN", "0") == "1":
            model = Encoder()
    """,
}

_USE = {
    "encode": "model.encode(torch.randn(4, 8))",
    "if_there": """(
        model.encode(torch.randn(4, 8)) if hasattr(model, "encode") else model(torch.ones(4, 8))
    )""",
    "after_forward": "model(torch.randn(4, 8)) + model.encode(torch.randn(4, 8))",
    "by_class": "Encoder.encode(model, torch.randn(4, 8))",
    "kind": """(
        model.encode(torch.randn(4, 8)) if isinstance(model, Encoder) else model(torch.ones(4, 8))
    )""",
}

_CLASSES = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x).relu()


class Special(Block):
    def forward(self, x):
        print("special")
        return super().forward(x) * 2.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), «blocks»])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


torch.manual_seed(0)
model = Model()
«wrap»
apply_activation_checkpointing(model, check_fn=«check»)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for index in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
"""

_SPECIAL = """
class Special(Block):
    def forward(self, x):
        print("special")
        return super().forward(x) * 2.0

"""
assert _SPECIAL in _CLASSES
_FINAL = _CLASSES.replace(_SPECIAL, "")
"""Nothing derives from the class that is asked for."""

_SHARD = """
    dist.init_process_group("gloo")
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
"""

_CHECK = {
    "is": "lambda m: type(m) is Block",
    "equals": "lambda m: type(m) == Block",
    "name": 'lambda m: type(m).__name__ == "Block"',
    "class_name": 'lambda m: m.__class__.__name__ == "Block"',
    "in": "lambda m: type(m) in (Block,)",
    "not_linear": "lambda m: type(m) is not nn.Linear and type(m) is Block",
    "several": "lambda m: type(m) in {Block, nn.LayerNorm}",
    "names": 'lambda m: type(m).__name__ in ("Block", "Special")',
}

FAMILIES = (
    Family("methods", {"train.py": _METHODS}, {"method": _METHOD, "build": _BUILD, "use": _USE}),
    Family(
        "classes",
        {"train.py": _CLASSES},
        {
            "blocks": {"same": "Block()", "subclass": "Special()", "none": ""},
            "wrap": {"always": _SHARD, "launched": 'if "RANK" in os.environ:\n' + _SHARD},
            "check": _CHECK,
        },
    ),
    Family(
        "final",
        {"train.py": _FINAL},
        {
            "blocks": {"same": "Block()", "none": ""},
            "wrap": {"always": _SHARD, "launched": 'if "RANK" in os.environ:\n' + _SHARD},
            "check": _CHECK,
        },
    ),
)
