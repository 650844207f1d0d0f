"""A command line tool: torch's distributed parts are imported where they are used."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed.device_mesh import DeviceMesh


class Decoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.norm(x + scale * torch.sin(self.project(x)))


class Forecaster(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.lift = nn.Linear(3, width)
        self.decoders = nn.ModuleList([Decoder(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.lower = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lift(x)
        for decoder in self.decoders:
            x = decoder(x, scale=0.5)
        return self.lower(self.norm(x))


@contextlib.contextmanager
def distributed() -> Iterator[DeviceMesh]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group()
    yield init_device_mesh(device_type, (dist.get_world_size(),), mesh_dim_names=("shard",))
    dist.destroy_process_group()


def is_rank_zero() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def setup_fsdp(forecaster: Forecaster, mesh: DeviceMesh) -> None:
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard

    for decoder in forecaster.decoders:
        fully_shard(decoder, mesh=mesh)
    # Needed together at the end of the forward pass: one unit, not gathered twice.
    fully_shard([forecaster.norm, forecaster.lower], mesh=mesh, reshard_after_forward=False)
    fully_shard(forecaster, mesh=mesh)


def command_train(args: argparse.Namespace) -> None:
    with distributed() as mesh:
        torch.manual_seed(args.seed)
        forecaster = Forecaster(args.width, args.depth).to(mesh.device_type)
        setup_fsdp(forecaster, mesh)

        from torch.optim import AdamW

        optimizer = AdamW(forecaster.parameters(), lr=args.lr)
        torch.manual_seed(args.seed + mesh.get_rank() + 1)
        for step in range(args.steps):
            series = torch.randn(8, 3, device=mesh.device_type).cumsum(dim=0)
            forecast = forecaster(series[:-1])
            loss = nn.functional.l1_loss(forecast, series[1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if is_rank_zero():
                print(f"{step=} loss={loss.item():.4f}")
        export(forecaster, args.weights)


def export(forecaster: nn.Module, path: str) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    tensors = get_model_state_dict(forecaster, options=options)
    if is_rank_zero():
        torch.save(tensors, path)


def command_predict(args: argparse.Namespace) -> None:
    """One process, no sharding: an ordinary module may be used in any way."""
    forecaster = Forecaster(args.width, args.depth)
    if os.path.exists(args.weights):  # noqa: PTH110
        forecaster.load_state_dict(torch.load(args.weights))
    with torch.no_grad():
        print(forecaster.forward(torch.zeros(1, 3)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="?", choices=["train", "predict"], default="train")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default="forecaster.pt")
    args = parser.parse_args()
    if args.command == "train":
        command_train(args)
    else:
        command_predict(args)


if __name__ == "__main__":
    main()
