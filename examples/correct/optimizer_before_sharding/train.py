"""Trains a tiny GPT to count, its parameters sharded over all ranks.

torchrun --nproc-per-node 2 train.py
"""

import argparse

import torch
import torch.distributed as dist
from gpt import GPT
from parallel import build_mesh
from trainer import Trainer

VOCABULARY = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = build_mesh(device)
    torch.manual_seed(0)
    trainer = Trainer(GPT(VOCABULARY).to(device), mesh, args.steps)

    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(args.steps):
        starts = torch.randint(VOCABULARY, (16, 1), generator=data)
        tokens = ((starts + torch.arange(33)) % VOCABULARY).to(device)
        loss = trainer.step(tokens)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
