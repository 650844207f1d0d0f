"""Calls of `forward` on what is a sharded module at times, and something else at others."""

from benchmarks.differential.families.family import Family

_TEXT = """
import os
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, scale=1.0):
        return self.linear(x) * scale

    «call»


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        «other.attribute»

    def forward(self, x):
        for block in self.blocks:
            x = «use.inner»
        return x


«other.before»
torch.manual_seed(0)
model = Model()
«wrap»
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
«other.setup»


def run(module, x):
    return «use.outer»


for index in range(3):
    loss = run(model, torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
«other.after»
"""

_SHARD = """
    dist.init_process_group("gloo")
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
"""

_WRAP = {
    "always": _SHARD,
    "launched": 'if "RANK" in os.environ:\n' + _SHARD,
    "switch": 'if os.environ.get("FSDP", "1") == "1":\n' + _SHARD,
    "root_only_last": """
        dist.init_process_group("gloo")
        fully_shard(model.blocks[1])
        fully_shard(model)
    """,
}

_USE = {
    "outer": {"inner": "block(x)", "outer": "module.forward(x)"},
    "inner": {"inner": "block.forward(x)", "outer": "module(x)"},
    "both": {"inner": "block.forward(x)", "outer": "module.forward(x)"},
    "checkpoint": {
        "inner": "checkpoint(block.forward, x, use_reentrant=False)",
        "outer": "module(x)",
    },
    "keyword": {"inner": "block.forward(x, scale=0.5)", "outer": "module(x)"},
    "partial": {"inner": "partial(block.forward, scale=0.5)(x)", "outer": "module(x)"},
    "bound_name": {"inner": "block(x)", "outer": "module.forward.__func__(module, x)"},
    "asked": {"inner": "block(x)", "outer": "getattr(module, 'forward')(x)"},
}

_CALL = {
    "none": "",
    "call_overridden": """
        def __call__(self, *args, **kwargs):
            print("called")
            return super().__call__(*args, **kwargs) + 1.0
    """,
    "call_without_super": """
        def __call__(self, x):
            return x * 2.0
    """,
    "hook": """
        def train(self, mode=True):
            return super().train(mode)
    """,
}

_PLAIN = """
class Plain:
    def forward(self, x):
        return x * 3.0


"""

_OTHER = {
    "none": {},
    "plain_object": {"before": _PLAIN, "after": "print(run(Plain(), torch.ones(1)))"},
    "plain_in_blocks": {
        "before": _PLAIN,
        "after": "for one in (Plain(), Plain()):\n    print(run(one, torch.ones(1)))",
    },
    "plain_module": {"after": "print(run(Block(), torch.ones(1, 8)).shape)"},
    "plain_hooked": {
        "after": """
            plain = Block()
            plain.register_forward_hook(lambda module, given, out: out + 1.0)
            print(f"{run(plain, torch.ones(1, 8)).sum().item():.5f}")
        """
    },
    "hooked": {
        "setup": """
            for block in model.blocks:
                block.register_forward_hook(lambda module, given, out: print("hook"))
        """
    },
    "callable": {
        "before": """
            class Runner:
                def forward(self, x):
                    return x * 3.0

                def __call__(self, x):
                    return x * 5.0


        """,
        "after": "print(run(Runner(), torch.ones(1)))",
    },
    "namespace": {
        "before": "from types import SimpleNamespace\n",
        "after": "print(run(SimpleNamespace(forward=lambda x: x), torch.ones(1)))",
    },
    "replaced": {"setup": "model.blocks[0].forward = lambda x, scale=1.0: x * scale"},
}

FAMILIES = (
    Family(
        "forwards",
        {"train.py": _TEXT},
        {
            "wrap": {key: _WRAP[key] for key in ("always", "launched")},
            "use": _USE,
            "call": _CALL,
            "other": {key: _OTHER[key] for key in ("none", "plain_object", "hooked")},
        },
    ),
    Family(
        "forwards_of_others",
        {"train.py": _TEXT},
        {
            "wrap": _WRAP,
            "use": {key: _USE[key] for key in ("outer", "inner", "both")},
            "call": {"none": ""},
            "other": _OTHER,
        },
    ),
)
