"""Hybrid sharding: shard inside a node, replicate between nodes."""

import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = int(os.environ.get("STEPS", "3"))
MICRO_BATCHES = int(os.environ.get("MICRO_BATCHES", "2"))


class MixerBlock(nn.Module):
    def __init__(self, tokens, channels):
        super().__init__()
        self.ln1 = nn.LayerNorm(channels)
        self.token_mlp = nn.Linear(tokens, tokens)
        self.ln2 = nn.LayerNorm(channels)
        self.channel_mlp = nn.Linear(channels, channels)

    def forward(self, x):
        x = x + self.token_mlp(self.ln1(x).mT).mT
        return x + self.channel_mlp(self.ln2(x))


class Mixer(nn.Module):
    def __init__(self, tokens=6, channels=12, depth=2, classes=5):
        super().__init__()
        self.patch = nn.Linear(8, channels)
        self.blocks = nn.Sequential(*[MixerBlock(tokens, channels) for _ in range(depth)])
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        return self.head(self.blocks(self.patch(x)).mean(1))


def hybrid_mesh(device_type):
    world_size = dist.get_world_size()
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    shape = (world_size // per_node, per_node)
    return init_device_mesh(device_type, shape, mesh_dim_names=("dp_replicate", "dp_shard"))


def build(device, mesh):
    net = Mixer().to(device)
    for blk in net.blocks:
        fully_shard(blk, mesh=mesh)
    fully_shard(net, mesh=mesh, reshard_after_forward=False)
    return net


def run_step(net, optimizer, device):
    for index in range(MICRO_BATCHES):
        is_last = index == MICRO_BATCHES - 1
        net.set_requires_gradient_sync(is_last)
        images = torch.randn(4, 6, 8, device=device)
        labels = torch.randint(5, (4,), device=device)
        loss = nn.functional.cross_entropy(net(images), labels)
        (loss / MICRO_BATCHES).backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def snapshot(net, folder):
    state = get_model_state_dict(
        net, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() == 0:
        folder.mkdir(exist_ok=True)
        torch.save({"net": state}, folder / "last.pt")


def main():
    accelerator = torch.accelerator.current_accelerator()
    device = torch.device(accelerator.type if accelerator else "cpu")
    dist.init_process_group()
    mesh = hybrid_mesh(device.type)
    torch.manual_seed(3)
    net = build(device, mesh)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    torch.manual_seed(50 + dist.get_rank())
    for step in range(STEPS):
        loss = run_step(net, optimizer, device)
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(step, loss.item() / dist.get_world_size())
    snapshot(net, pathlib.Path("snapshots"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
