"""Inference modes around a sharded module's first forward."""

from benchmarks.differential.families.family import Family

_TEXT = """
import os

import torch
import torch.distributed as dist
from torch import inference_mode, nn
from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
«wrap»
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


«mode.before»


def train():
    for index in range(3):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.6f}")


«mode.first»
«result»
train()
«mode.first»
«result»
"""

_WRAP = {
    "always": 'dist.init_process_group("gloo")\nfully_shard(model)',
    "launched": """
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
            fully_shard(model)
    """,
}

_MODE = {
    "context": {
        "before": "",
        "first": "with torch.inference_mode():\n    out = model(torch.ones(2, 8))",
    },
    "imported": {"first": "with inference_mode():\n    out = model(torch.ones(2, 8))"},
    "decorator": {
        "before": "@torch.inference_mode()\ndef evaluate(x):\n    return model(x)",
        "first": "out = evaluate(torch.ones(2, 8))",
    },
    "decorator_bare": {
        "before": "@torch.inference_mode\ndef evaluate(x):\n    return model(x)",
        "first": "out = evaluate(torch.ones(2, 8))",
    },
    "decorator_shared": {
        "before": """
            @torch.inference_mode()
            def evaluate(x, module=model):
                return module(x)
        """,
        "first": """
            out = evaluate(torch.ones(2, 8))
            plain = evaluate(torch.ones(2, 8), nn.Linear(8, 1))
            print(plain.is_inference())
        """,
    },
    "flag": {
        "first": """
            with torch.inference_mode(os.environ.get("EVAL", "1") == "1"):
                out = model(torch.ones(2, 8))
        """
    },
    "grad_enabled_inside": {
        "first": """
            with torch.inference_mode():
                with torch.enable_grad():
                    out = model(torch.ones(2, 8))
        """
    },
    "method": {
        "before": """
            class Evaluation:
                @torch.inference_mode()
                def run(self, x):
                    return model(x)
        """,
        "first": "out = Evaluation().run(torch.ones(2, 8))",
    },
}

_RESULT = {
    "value": "print(f'{out.sum().item():.5f}')",
    "asked": "print(out.is_inference(), out.requires_grad)",
    "mode_asked": """
        with torch.inference_mode():
            print(torch.is_inference_mode_enabled())
    """,
    "changed": "out.add_(1.0)\nprint(f'{out.sum().item():.5f}')",
    "trained_on": """
        try:
            (out * nn.Parameter(torch.ones(1))).sum().backward()
            print("has a graph")
        except RuntimeError as error:
            print(type(error).__name__)
    """,
}

FAMILIES = (
    Family("evaluations", {"train.py": _TEXT}, {"wrap": _WRAP, "mode": _MODE, "result": _RESULT}),
)
