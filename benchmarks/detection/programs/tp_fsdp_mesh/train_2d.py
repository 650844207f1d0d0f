"""Tensor parallelism within a node, FSDP2 across: a 2-D mesh."""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

PLAN = {"w1": ColwiseParallel(), "w3": ColwiseParallel(), "w2": RowwiseParallel()}


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Stack(nn.Module):
    def __init__(self, dim: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.read = nn.Linear(dim, dim)
        self.layers = nn.ModuleList(FeedForward(dim, hidden) for _ in range(depth))
        self.write = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.read(x)
        for ffn in self.layers:
            x = x + ffn(x)
        return self.write(x)


def apply_tp(model: Stack, tp_mesh: DeviceMesh) -> None:
    for ffn in model.layers:
        parallelize_module(ffn, tp_mesh, PLAN)


def apply_dp(model: Stack, dp_mesh: DeviceMesh) -> None:
    for ffn in model.layers:
        fully_shard(ffn, mesh=dp_mesh)
    fully_shard(model, mesh=dp_mesh)


def build_mesh(device_type: str, tp: int) -> DeviceMesh:
    world = dist.get_world_size()
    if world % tp:
        raise SystemExit(f"{world} ranks do not divide by --tp {tp}")
    return init_device_mesh(device_type, (world // tp, tp), mesh_dim_names=("dp", "tp"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--iters", type=int, default=3)
    args = parser.parse_args()

    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group()
    mesh = build_mesh(device_type, args.tp)

    torch.manual_seed(0)
    model = Stack(dim=16, hidden=32, depth=3).to(device_type)
    if args.tp > 1:
        apply_tp(model, mesh["tp"])
    apply_dp(model, mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=args.tp == 1)

    # Ranks of one tensor-parallel group see the same data.
    torch.manual_seed(100 + mesh["dp"].get_local_rank())
    for i in range(args.iters):
        x = torch.randn(4, 16, device=device_type)
        out = model(x)
        loss = (out - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"iter {i} loss {loss.item():.5f}")

    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optim": optimizer_state}, checkpoint_id="ckpt_2d")
    weights = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() == 0:
        torch.save(weights, "stack.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
