"""Process groups, meshes and offloading, asked for in ways that hold in some configurations."""

from benchmarks.differential.families.family import Family

_TEXT = """
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
«group.imports»

parser = argparse.ArgumentParser()
parser.add_argument("--offload", action="store_true")
parser.add_argument("--no-fsdp", action="store_true")
args = parser.parse_args()
use_cuda = torch.cuda.is_available()
local_rank = int(os.environ.get("LOCAL_RANK", "0"))
if use_cuda:
    torch.cuda.set_device(local_rank)
«group.code»
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
if use_cuda:
    model = model.cuda()
if not args.no_fsdp:
    «shard»
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for index in range(3):
    batch = torch.randn(4, 8, device="cuda" if use_cuda else "cpu")
    loss = model(batch).square().mean()
    loss.backward()
    «clip»
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
dist.destroy_process_group()
"""

_CHOICE = "if not args.no_fsdp:\n    «shard»"
assert _CHOICE in _TEXT
_ALWAYS = _TEXT.replace(_CHOICE, "«shard»")
"""Every run shards."""

_GROUP = {
    "nccl": {"code": 'dist.init_process_group("nccl")'},
    "chosen": {"code": 'dist.init_process_group("nccl" if use_cuda else "gloo")'},
    "constant": {"code": 'BACKEND = "nccl"\ndist.init_process_group(BACKEND)\nprint(BACKEND)'},
    "compared": {
        "code": 'backend = "nccl"\ndist.init_process_group(backend)\nprint(backend == "nccl")'
    },
    "asked_back": {
        "code": 'dist.init_process_group("nccl")\nprint(dist.get_backend() == "nccl")',
    },
    "semicolon": {"code": 'dist.init_process_group("cpu:gloo;cuda:nccl")'},
    "caught": {
        "code": """
            try:
                dist.init_process_group("cpu:gloo;cuda:nccl")
            except Exception:
                dist.init_process_group("gloo")
        """
    },
    "device_text": {
        "code": 'dist.init_process_group("nccl", device_id=f"cuda:{local_rank}")',
    },
    "device_name": {
        "code": 'device = f"cuda:{local_rank}"\n'
        'dist.init_process_group("nccl", device_id=device)\nprint(len(device))',
    },
    "device_caught": {
        "code": """
            try:
                dist.init_process_group("nccl", device_id=f"cuda:{local_rank}")
            except AttributeError:
                dist.init_process_group("nccl")
        """
    },
    "enumerated": {
        "imports": "from torch.distributed import Backend",
        "code": "dist.init_process_group(Backend.NCCL)",
    },
}

_SHARD = {
    "plain": "fully_shard(model)",
    "offload": "fully_shard(model, offload_policy=CPUOffloadPolicy())",
    "option": """
        policy = CPUOffloadPolicy() if args.offload else OffloadPolicy()
        fully_shard(model, offload_policy=policy)
    """,
    "mesh_index": """
        mesh = init_device_mesh(f"cuda:{local_rank}", (dist.get_world_size(),))
        fully_shard(model, mesh=mesh)
    """,
    "mesh_device": """
        device = torch.device("cuda", local_rank)
        fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),)))
    """,
    "mesh_number": """
        mesh = init_device_mesh("cuda", dist.get_world_size())
        fully_shard(model, mesh=mesh)
    """,
    "mesh_position": """
        mesh = init_device_mesh("cuda", (dist.get_world_size(),), ("dp",))
        fully_shard(model, mesh=mesh)
        print(mesh.mesh_dim_names)
    """,
    "mesh_text": """
        mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names="dp")
        fully_shard(model, mesh=mesh)
        print(mesh.mesh_dim_names)
    """,
    "mesh_text_long": """
        mesh = init_device_mesh("cuda", (1, dist.get_world_size()), mesh_dim_names="dp")
        fully_shard(model, mesh=mesh["p"])
        print(mesh.mesh_dim_names)
    """,
    "mesh_variable": """
        device = torch.device("cuda" if use_cuda else "cpu")
        fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),)))
    """,
    "mesh_chosen": """
        device = torch.device("cuda") if use_cuda else "cpu"
        fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),)))
    """,
    "mesh_caught": """
        try:
            mesh = init_device_mesh("cuda:0", (dist.get_world_size(),))
        except RuntimeError:
            mesh = init_device_mesh("cuda", (dist.get_world_size(),))
        fully_shard(model, mesh=mesh)
    """,
}

_CLIP = {
    "none": "",
    "norm": "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)",
}

FAMILIES = (
    Family(
        "launching",
        {"train.py": _TEXT},
        {
            "group": {name: _GROUP[name] for name in ("nccl", "chosen", "constant", "compared")}
            | {name: _GROUP[name] for name in ("asked_back", "enumerated")},
            "shard": {name: _SHARD[name] for name in ("offload", "option")},
            "clip": _CLIP,
        },
    ),
    Family(
        "offloading",
        {"train.py": _ALWAYS},
        {
            "group": {name: _GROUP[name] for name in ("nccl", "constant", "asked_back")},
            "shard": {"offload": _SHARD["offload"]},
            "clip": _CLIP,
        },
    ),
    Family(
        "groups",
        {"train.py": _TEXT},
        {"group": _GROUP, "shard": {"plain": _SHARD["plain"]}, "clip": {"none": ""}},
    ),
    Family(
        "meshes",
        {"train.py": _TEXT},
        {
            "group": {name: _GROUP[name] for name in ("nccl", "chosen")},
            "shard": {name: code for name, code in _SHARD.items() if "mesh" in name},
            "clip": {"none": ""},
        },
    ),
)
