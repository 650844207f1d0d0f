"""How the model is spread over the ranks."""

import os

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def build_mesh(device):
    return init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("shard",))


def parallelize(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)
