"""Build on meta, shard, materialize, fill from rank 0: no rank holds the whole model twice."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

WIDTH, DEPTH, STEPS = 32, 4, 3


class ExpertBlock(nn.Module):
    def __init__(self, width: int, experts: int = 2) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(experts)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.router(x).softmax(dim=-1)
        mixed = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return x + (mixed * weights.unsqueeze(-2)).sum(dim=-1)


class MoE(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.layers = nn.ModuleList([ExpertBlock(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.readout(self.norm(x))


def initial_weights() -> dict[str, torch.Tensor]:
    """What a checkpoint would hold; only rank 0 has it, the others get it from there."""
    if dist.get_rank() != 0:
        return {}
    torch.manual_seed(0)
    return MoE(WIDTH, DEPTH).state_dict()


def create_model(device: torch.device) -> nn.Module:
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    offload = CPUOffloadPolicy() if os.environ.get("OFFLOAD") else OffloadPolicy()
    with torch.device("meta"):
        model = MoE(WIDTH, DEPTH)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, offload_policy=offload)
    fully_shard(model, mesh=mesh, offload_policy=offload)

    model.to_empty(device="cpu" if os.environ.get("OFFLOAD") else device)
    set_model_state_dict(
        model,
        initial_weights(),
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
    return model


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    torch.manual_seed(10 + dist.get_rank())
    for step in range(STEPS):
        x = torch.randn(8, 4, device=device)
        prediction = model(x)
        loss = (prediction - x.flip(-1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        total_norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"{step} loss {loss.item():.4f} norm {total_norm.full_tensor().item():.3f}")
        else:
            total_norm.full_tensor()


def main() -> None:
    cuda = torch.cuda.is_available()
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    device = torch.device("cuda" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = create_model(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    fit(model, optimizer, device)
    final = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() == 0:
        torch.save(final, "moe.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
