"""Denoiser with an averaged copy: both are sharded, the copy is never optimized."""

import argparse
import os
from copy import deepcopy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class UNetStage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time = nn.Linear(1, width)
        self.net = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x, t):
        return x + self.net(x + self.time(t))


class Denoiser(nn.Module):
    def __init__(self, dim=4, width=16, depth=3):
        super().__init__()
        self.enter = nn.Linear(dim, width)
        self.stages = nn.ModuleList(UNetStage(width) for _ in range(depth))
        self.leave = nn.Linear(width, dim)

    def forward(self, x, t):
        h = self.enter(x)
        for stage in self.stages:
            h = stage(h, t)
        return self.leave(h)


def shard_(module):
    for stage in module.stages:
        fully_shard(stage)
    return fully_shard(module)


@torch.no_grad()
def update_ema(ema, denoiser, decay):
    # Both are DTensors laid out alike, so each rank averages its own shards.
    for averaged, current in zip(ema.parameters(), denoiser.parameters(), strict=True):
        averaged.lerp_(current, 1 - decay)


@torch.no_grad()
def sample(network, count, steps, device):
    network.eval()
    x = torch.randn(count, 4, device=device)
    for i in reversed(range(steps)):
        t = torch.full((count, 1), i / steps, device=device)
        x = x - network(x, t) / steps
    network.reshard()
    return x


def denoising_loss(denoiser, clean):
    t = torch.rand(clean.shape[0], 1, device=clean.device)
    noise = torch.randn_like(clean)
    predicted = denoiser(clean * (1 - t) + noise * t, t)
    return (predicted - noise).pow(2).mean()


def full_state(module):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(module, options=options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--decay", type=float, default=0.9)
    parser.add_argument("--sample-every", type=int, default=2)
    args = parser.parse_args()

    dist.init_process_group()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    denoiser = Denoiser().to(device)
    ema = deepcopy(denoiser).requires_grad_(False)  # FSDP modules cannot be copied: copy first
    reference = deepcopy(denoiser)
    denoiser, ema = shard_(denoiser), shard_(ema)
    optimizer = torch.optim.RAdam(denoiser.parameters(), lr=1e-2)

    torch.manual_seed(1 + dist.get_rank())
    for step in range(args.steps):
        for k in range(args.accumulate):
            denoiser.set_requires_gradient_sync(k == args.accumulate - 1)
            loss = denoising_loss(denoiser, torch.randn(4, 4, device=device).tanh())
            (loss / args.accumulate).backward()
        nn.utils.clip_grad_norm_(denoiser.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        update_ema(ema, denoiser, args.decay)
        if (step + 1) % args.sample_every == 0:
            drawn = sample(ema, 4, 3, device)
            with torch.no_grad():  # an unsharded module: its forward has no hooks to miss
                drift = reference.forward(drawn, torch.zeros(4, 1, device=device)).abs().mean()
            if dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.3f} drift {drift.item():.3f}")
            denoiser.train()

    checkpoint = {"denoiser": full_state(denoiser), "ema": full_state(ema)}
    if dist.get_rank() == 0:
        torch.save(checkpoint, "denoiser.pt")
        torch.save(reference.state_dict(), "initial.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
