"""Ranks that choose a device, where something in the file looks like the local rank."""

from benchmarks.differential.families.family import Family

_TEXT = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

«local.before»


def main():
    «local.first»
    dist.init_process_group("nccl")
    «rank.code»
    «local.middle»
    «device»
    torch.manual_seed(0)
    model = nn.Linear(8, 8).cuda()
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.randn(4, 8).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.6f} on {torch.cuda.current_device()}")
    «local.last»
    dist.destroy_process_group()


main()
"""

_RANK = {
    "get_rank": {"code": "rank = dist.get_rank()", "is": "rank"},
    "environment": {"code": 'rank = int(os.environ["RANK"])', "is": "rank"},
    "direct": {"code": "pass", "is": "dist.get_rank()"},
}

_DEVICE = {
    "set_device": "torch.cuda.set_device(«rank.is»)",
    "device": 'torch.cuda.set_device(torch.device("cuda", «rank.is»))',
    "text": 'torch.cuda.set_device(f"cuda:{«rank.is»}")',
    "mixed": "number = «rank.is»\ntorch.cuda.set_device(number)",
}

_LOCAL = {
    "first": {"first": 'local_rank = int(os.environ["LOCAL_RANK"])'},
    "top": {"before": 'LOCAL_RANK = int(os.environ["LOCAL_RANK"])'},
    "default": {"first": 'local_rank = int(os.environ.get("LOCAL_RANK", "0"))'},
    "default_minus": {"first": 'local_rank = int(os.environ.get("LOCAL_RANK", "-1"))'},
    "default_rank": {"first": 'local_rank = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))'},
    "later": {"last": 'local_rank = int(os.environ["LOCAL_RANK"])\nprint(local_rank)'},
    "deleted": {"first": 'local_rank = int(os.environ["LOCAL_RANK"])', "middle": "del local_rank"},
    "present": {"first": 'local_rank = int("LOCAL_RANK" in os.environ)'},
    "equal": {"first": 'is_first = int(int(os.environ["LOCAL_RANK"]) == 0)'},
    "halved": {"first": 'half = int(int(os.environ["LOCAL_RANK"]) // 2)'},
    "halved_outside": {"first": 'half = int(os.environ["LOCAL_RANK"]) // 2'},
    "added": {"first": 'shifted = int(os.environ["LOCAL_RANK"]) + 10'},
    "added_inside": {"first": 'shifted = int(os.environ["LOCAL_RANK"] + "0")'},
    "joined": {"first": 'port = int("2950" + os.environ["LOCAL_RANK"])'},
    "or_else": {"first": 'local_rank = int(os.environ.get("LOCAL_RANK") or 0)'},
    "base": {"first": 'local_rank = int(os.environ["LOCAL_RANK"], 2)'},
    "length": {"first": 'digits = int(len(os.environ["LOCAL_RANK"]))'},
    "branch": {
        "first": """
            if "LOCAL_RANK" in os.environ:
                local_rank = int(os.environ["LOCAL_RANK"])
        """
    },
    "tried": {
        "first": """
            try:
                local_rank = int(os.environ["LOCAL_RANK"])
            except KeyError:
                local_rank = None
        """
    },
    "written": {"first": 'os.environ["LOCAL_RANK"] = "0"'},
    "asked": {"first": 'launched = "LOCAL_RANK" in os.environ'},
    "text": {"first": 'print("LOCAL_RANK" "is not needed")'},
    "rebound": {
        "first": 'local_rank = int(os.environ["LOCAL_RANK"])',
        "middle": "local_rank += 10",
    },
    "rebound_with": {
        "first": 'local_rank = int(os.environ["LOCAL_RANK"])',
        "middle": """
            for local_rank in range(7, 9):
                pass
        """,
    },
    "rebound_by_global": {
        "before": """
            LOCAL_RANK = int(os.environ["LOCAL_RANK"])


            def move():
                global LOCAL_RANK
                LOCAL_RANK = 9
        """,
        "first": "move()",
    },
    "parameter": {
        "first": """
            class Settings:
                pass


            settings = Settings()
            settings.local_rank = int(os.environ["LOCAL_RANK"])
        """,
        "middle": "settings.local_rank += 10",
    },
}

FAMILIES = (
    Family(
        "devices",
        {"train.py": _TEXT},
        {"rank": _RANK, "device": _DEVICE, "local": _LOCAL},
        strength=1,
    ),
)
