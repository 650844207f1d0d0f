"""Gradient clipping of an FSDP1 model, by a function that others use too or under other names."""

from benchmarks.differential.families.family import Family

_HEAD = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
«clip.imports»

«clip.before»
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
«wrap»
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
«clip.setup»
for index in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    «clip.call»
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
«clip.after»
"""

_WRAP = {
    "always": """
        dist.init_process_group("gloo")
        model = FSDP(net, use_orig_params=True, device_id=torch.device("cpu"))
    """,
    "launched": """
        model = net
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
            model = FSDP(net, device_id=torch.device("cpu"))
    """,
    "switch": """
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
        if os.environ.get("FSDP", "1") == "1":
            model = FSDP(net, device_id=torch.device("cpu"))
        else:
            model = net
    """,
}

_ONCE = "from torch.nn.utils import clip_grad_norm_"
_CALL = "clip_grad_norm_(model.parameters(), 0.1)"
_EXTRA = "extra.grad = torch.full((3,), 5.0)\nclip_grad_norm_(params, 0.1)\nprint(extra.grad)"
_CLIP = {
    "plain": {"imports": _ONCE, "call": _CALL},
    "attribute": {"call": "nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)"},
    "twice": {
        "imports": _ONCE,
        "call": _CALL,
        "after": "other = nn.Linear(2, 2)\nprint(clip_grad_norm_(other.parameters(), 1.0))",
    },
    "norm_printed": {"imports": _ONCE, "call": f"norm = {_CALL}\nprint(f'norm {{norm:.6f}}')"},
    "norm_device": {"imports": _ONCE, "call": f"norm = {_CALL}\nprint(norm.dtype, norm.shape)"},
    "reexported": {
        "imports": "from utils import clip_grad_norm_",
        "call": _CALL,
        "utils": f"{_ONCE}\n\n__all__ = ['clip_grad_norm_']\n",
    },
    "reexported_module": {
        "imports": "import utils",
        "call": "utils.clip_grad_norm_(model.parameters(), 0.1)",
        "utils": f"{_ONCE}  # noqa: F401\n",
    },
    "reexported_star": {"imports": "from utils import *", "call": _CALL, "utils": f"{_ONCE}\n"},
    "exported_here": {
        "imports": _ONCE + "\nimport helper",
        "call": _CALL,
        "after": "print(helper.clipped(nn.Linear(2, 2)))",
        "utils": "",
        "helper": """
            import sys


            def clipped(module):
                return sys.modules["__main__"].clip_grad_norm_(module.parameters(), 1.0)
        """,
    },
    "imported_from_training": {
        "imports": "from loop import clip",
        "call": "clip(model)",
        "after": "import evaluation\nprint(evaluation.norm(nn.Linear(2, 2)))",
        "loop": f"""
            {_ONCE}


            def clip(module):
                return clip_grad_norm_(module.parameters(), 0.1)
        """,
        "evaluation": """
            from loop import clip_grad_norm_


            def norm(module):
                return clip_grad_norm_(module.parameters(), 1.0)
        """,
    },
    "helper_shared": {
        "imports": _ONCE,
        "before": """
            def clip(module):
                return clip_grad_norm_(module.parameters(), 0.1)


        """,
        "call": "clip(model)",
        "after": "print(clip(nn.Linear(2, 2)))",
    },
    "helper_by_name": {
        "imports": _ONCE,
        "before": """
            def clip(module):
                return clip_grad_norm_(module.parameters(), 0.1)


            CLIPS = {"norm": clip}


        """,
        "call": "CLIPS['norm'](model)",
        "after": "print(CLIPS['norm'](nn.Linear(2, 2)))",
    },
    "engine": {
        "imports": _ONCE,
        "before": """
            class Engine:
                def __init__(self, module):
                    self.module = module

                def parameters(self):
                    return self.module.parameters()

                def clip_grad_norm_(self, limit):
                    print("engine clips")
                    return clip_grad_norm_(self.module.parameters(), limit)


        """,
        "setup": "engine = Engine(model)",
        "call": "clip_grad_norm_(engine.parameters(), 0.1)",
    },
    "engine_without": {
        "imports": _ONCE,
        "before": """
            class Engine:
                def __init__(self, module):
                    self.module = module

                def parameters(self):
                    return self.module.parameters()


        """,
        "setup": "engine = Engine(model)",
        "call": "clip_grad_norm_(engine.parameters(), 0.1)",
    },
    "engine_module": {
        "imports": _ONCE,
        "before": """
            class Engine:
                def __init__(self, module):
                    self.module = module


        """,
        "setup": "engine = Engine(model)",
        "call": "clip_grad_norm_(engine.module.parameters(), 0.1)",
    },
    "extended": {
        "imports": _ONCE,
        "setup": """
            extra = nn.Parameter(torch.ones(3))
            params = list(model.parameters())
            params.append(extra)
        """,
        "call": _EXTRA,
    },
    "extended_by_plus": {
        "imports": _ONCE,
        "setup": """
            extra = nn.Parameter(torch.ones(3))
            params = list(model.parameters())
            params += [extra]
        """,
        "call": _EXTRA,
    },
    "sliced": {
        "imports": _ONCE,
        "setup": "params = list(model.parameters())\ndel params[1:]",
        "call": "clip_grad_norm_(params, 0.1)",
    },
    "sliced_here": {"imports": _ONCE, "call": "clip_grad_norm_(list(model.parameters())[:1], 0.1)"},
    "filtered": {
        "imports": _ONCE,
        "setup": "params = [p for p in model.parameters() if p.dim() > 1]",
        "call": "clip_grad_norm_(params, 0.1)",
    },
    "trainable": {
        "imports": _ONCE,
        "setup": "params = [p for p in model.parameters() if p.requires_grad]",
        "call": "clip_grad_norm_(params, 0.1)",
    },
    "popped": {
        "imports": _ONCE,
        "setup": "params = list(model.parameters())\nparams.pop()",
        "call": "clip_grad_norm_(params, 0.1)",
    },
    "captured": {
        "imports": _ONCE,
        "setup": "before = list(net.parameters())",
        "call": "clip_grad_norm_(before, 0.1)",
    },
    "lambda": {
        "imports": _ONCE,
        "setup": "clip = lambda m, n=0.1: clip_grad_norm_(m.parameters(), n)",
        "call": "clip(model)",
        "after": "print(clip(nn.Linear(2, 2)))",
    },
    "rebound": {
        "imports": _ONCE,
        "setup": "target = model",
        "call": "clip_grad_norm_(target.parameters(), 0.1)",
        "after": "target = nn.Linear(2, 2)\nprint(clip_grad_norm_(target.parameters(), 0.1))",
    },
    "infinity": {
        "imports": _ONCE,
        "call": 'clip_grad_norm_(model.parameters(), 0.1, float("inf"))',
    },
    "patched": {
        "imports": _ONCE,
        "setup": """
            def clip_grad_norm_(parameters, limit):
                print("own clip")
                return nn.utils.clip_grad_norm_(parameters, limit)
        """,
        "call": _CALL,
    },
}

FAMILIES = (
    Family(
        "clipping",
        {
            "train.py": _HEAD,
            "utils.py": "«clip.utils»",
            "helper.py": "«clip.helper»",
            "loop.py": "«clip.loop»",
            "evaluation.py": "«clip.evaluation»",
        },
        {"wrap": _WRAP, "clip": _CLIP},
    ),
)
