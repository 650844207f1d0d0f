"""States of FSDP1 optimizers that are loaded again, in the order of one release or another."""

from benchmarks.differential.families.family import Family

_TEXT = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP




torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
«wrap»
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for index in range(2):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
«load.after»
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
}

_TAKEN = "saved = FSDP.optim_state_dict(model, optimizer)\n"
_OLD = "FSDP.optim_state_dict_to_load(saved, model, optimizer)"
_NEW = "FSDP.optim_state_dict_to_load(model, optimizer, saved)"
_LOAD = {
    "old": {"after": f"{_TAKEN}optimizer.load_state_dict({_OLD})\nprint('loaded')"},
    "new": {"after": f"{_TAKEN}optimizer.load_state_dict({_NEW})\nprint('loaded')"},
    "tried": {
        "after": f"""
            {_TAKEN}
            try:
                state = {_OLD}
            except TypeError:
                state = {_NEW}
            optimizer.load_state_dict(state)
            print('loaded')
        """
    },
    "wanted": {
        "after": f"""
            {_TAKEN}
            if os.environ.get("RESUME") == "1":
                optimizer.load_state_dict({_OLD})
            print('done')
        """
    },
}

FAMILIES = (Family("states", {"train.py": _TEXT}, {"wrap": _WRAP, "load": _LOAD}),)
