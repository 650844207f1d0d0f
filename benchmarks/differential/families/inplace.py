"""Outputs of a sharded module that are changed in place, while other names see the same memory."""

from benchmarks.differential.families.family import Family

_TEXT = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return «view»


«wrap.before»
torch.manual_seed(0)
model = Block()
«wrap.shard»
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def rest(value):
    return value.square().mean()


for index in range(3):
    batch = {"x": torch.randn(4, 8)}
    out = model(batch["x"])
    «alias.before»
    torch.manual_seed(index)
    «change»
    «alias.after»
    loss = rest(out)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
"""

_VIEW = {
    "view": "self.linear(x).view(8, 4)",
    "transposed": "self.linear(x).t()",
    "sliced": "self.linear(x)[:, :8]",
}

_WRAP = {
    "always": {"shard": 'dist.init_process_group("gloo")\nfully_shard(model)'},
    "launched": {
        "before": 'launched = "RANK" in os.environ',
        "shard": 'if launched:\n    dist.init_process_group("gloo")\n    fully_shard(model)',
    },
}

_CHANGE = {
    "augmented": "out += 1.0",
    "method": "out.mul_(2.0)",
    "chained": "out.mul_(2.0).add_(1.0)",
    "clamp": "out.clamp_(min=0.0)",
    "exponential": "out.exponential_()",
    "random": "out.random_()",
    "bernoulli": "out.bernoulli_(0.5)",
    "without_graph": "with torch.no_grad():\n    out.exponential_()",
    "masked": "out.masked_fill_(out > 0, 0.5)",
    "result": "kept_result = out.add_(1.0)",
    "argument": "print(out.add_(1.0).sum().item())",
    "matmul": "out @= torch.eye(out.shape[1])",
    "dropout": "out.relu_()",
    "transposing": "out.t_()",
}

_ALIAS = {
    "none": {},
    "kept": {"before": "kept = out", "after": "print(f'kept {kept.sum().item():.5f}')"},
    "list": {"before": "outs = [out]", "after": "print(f'kept {outs[0].sum().item():.5f}')"},
    "batch": {
        "before": 'batch["logits"] = out',
        "after": "print(f'kept {batch[\"logits\"].sum().item():.5f}')",
    },
    "part": {"before": "first = out[:2]", "after": "print(f'kept {first.sum().item():.5f}')"},
    "closure": {
        "before": "def seen():\n    return captured.sum().item()\n\ncaptured = out.detach()",
        "after": "print(f'kept {seen():.5f}')",
    },
    "base": {"before": "base = out._base", "after": "print(f'kept {base.sum().item():.5f}')"},
}

FAMILIES = (
    Family(
        "inplace",
        {"train.py": _TEXT},
        {"view": {"view": _VIEW["view"]}, "wrap": _WRAP, "change": _CHANGE, "alias": _ALIAS},
    ),
    Family(
        "inplace_views",
        {"train.py": _TEXT},
        {
            "view": {key: _VIEW[key] for key in ("transposed", "sliced")},
            "wrap": {"always": _WRAP["always"]},
            "change": {key: _CHANGE[key] for key in ("augmented", "method", "result")},
            "alias": _ALIAS,
        },
    ),
)
