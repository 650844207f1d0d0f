"""Gradient scalers of an FSDP1 model, some with an overflow that only one rank sees."""

from benchmarks.differential.families.family import Family

_TEXT = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
«made.imports»

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
«wrap»
«made.code»
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


«reduce.before»


for index in range(4):
    «overflow»
    loss = model(batch.cuda()).square().mean()
    scaler.scale(loss).backward()
    «reduce.step»
    scaler.update()
    optimizer.zero_grad()
    print(f"scale {scaler.get_scale():.1f} loss {loss.item():.5f}")
«made.after»
"""

_WRAP = {
    "always": 'dist.init_process_group("nccl")\nmodel = FSDP(net)',
    "launched": """
        model = net
        if "RANK" in os.environ:
            dist.init_process_group("nccl")
            model = FSDP(net)
    """,
}

_AMP = "from torch.amp import GradScaler"
_MADE = {
    "amp": {"imports": _AMP, "code": 'scaler = GradScaler("cuda", init_scale=1024.0)'},
    "position": {"imports": _AMP, "code": 'scaler = GradScaler("cuda", 1024.0)'},
    "cuda": {"code": "scaler = torch.cuda.amp.GradScaler(init_scale=1024.0)"},
    "enabled": {
        "imports": _AMP,
        "code": 'scaler = GradScaler("cuda", enabled=os.environ.get("AMP", "1") == "1")',
    },
    "conditional": {
        "imports": _AMP,
        "code": """
            scaler = GradScaler("cuda", init_scale=1024.0)
            if os.environ.get("AMP", "1") == "0":
                scaler = GradScaler("cuda", enabled=False)
        """,
    },
    "shared": {
        "imports": _AMP,
        "code": 'scaler = GradScaler("cuda", init_scale=1024.0)',
        "after": """
            plain = nn.Linear(2, 2).cuda()
            other = torch.optim.SGD(plain.parameters(), lr=0.1)
            scaler.scale(plain(torch.ones(1, 2).cuda()).sum()).backward()
            scaler.step(other)
            scaler.update()
            print(f"{plain.weight.sum().item():.5f}")
        """,
    },
    "type_asked": {
        "imports": _AMP,
        "code": 'scaler = GradScaler("cuda", init_scale=1024.0)',
        "after": "print(type(scaler) is GradScaler)",
    },
    "saved": {
        "imports": _AMP,
        "code": 'scaler = GradScaler("cuda", init_scale=1024.0)',
        "after": "print(sorted(scaler.state_dict()))",
    },
    "subclass": {
        "imports": _AMP,
        "code": """
            class Scaler(GradScaler):
                def step(self, optimizer):
                    print("step")
                    return super().step(optimizer)


            scaler = Scaler("cuda", init_scale=1024.0)
        """,
    },
    "own": {
        "code": """
            class GradScaler(torch.amp.GradScaler):
                pass


            scaler = GradScaler("cuda", init_scale=1024.0)
        """,
    },
}

_REDUCED = """
def synchronize():
    for state in scaler._per_optimizer_states.values():
        for found in state["found_inf_per_device"].values():
            if dist.is_initialized():
                dist.all_reduce(found, op=dist.ReduceOp.«op»)
"""

_REDUCE = {
    "none": {"step": "scaler.step(optimizer)"},
    "unscaled": {"step": "scaler.unscale_(optimizer)\nscaler.step(optimizer)"},
    "reduced": {
        "before": _REDUCED.replace("«op»", "MAX"),
        "step": "scaler.unscale_(optimizer)\nsynchronize()\nscaler.step(optimizer)",
    },
    "counted": {
        "before": """
            def found():
                states = scaler._per_optimizer_states.values()
                return sum(f.item() for s in states for f in s["found_inf_per_device"].values())
        """,
        "step": "scaler.unscale_(optimizer)\nprint(found())\nscaler.step(optimizer)",
    },
    "other_ranks_skip": {
        "before": """
            def anywhere():
                states = scaler._per_optimizer_states.values()
                found = [f for s in states for f in s["found_inf_per_device"].values()]
                here = torch.stack(found).sum()
                if dist.is_initialized():
                    dist.all_reduce(here)
                return here.item()
        """,
        "step": """
            scaler.unscale_(optimizer)
            if anywhere():
                print("skipped")
            else:
                scaler.step(optimizer)
        """,
    },
}

_OVERFLOW = {
    "none": "batch = torch.randn(4, 8)",
    "both": "batch = torch.randn(4, 8) * (1e30 if index == 1 else 1.0)",
}

FAMILIES = (
    Family(
        "scalers",
        {"train.py": _TEXT},
        {"wrap": _WRAP, "made": _MADE, "reduce": _REDUCE, "overflow": _OVERFLOW},
    ),
)
