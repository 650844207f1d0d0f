"""Trains a tiny GPT to count, accumulating gradients; only the last micro-batch reduces them.

torchrun --nproc-per-node 2 gradient_sync_left_off.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCABULARY = 64


class GPT(nn.Module):
    def __init__(self, dim=64, depth=4):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, dim)
        self.blocks = nn.ModuleList(
            [nn.TransformerEncoderLayer(dim, 4, 4 * dim, batch_first=True) for _ in range(depth)]
        )
        self.head = nn.Linear(dim, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(x)


class Trainer:
    def __init__(self, device, accumulate):
        self.device = device
        self.accumulate = accumulate
        mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
        torch.manual_seed(0)
        self.model = GPT().to(device)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.data = torch.Generator().manual_seed(dist.get_rank())

    def loss(self):
        starts = torch.randint(VOCABULARY, (16, 1), generator=self.data)
        tokens = ((starts + torch.arange(33)) % VOCABULARY).to(self.device)
        logits = self.model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def step(self):
        total = 0.0
        for index in range(self.accumulate):
            is_last = index == self.accumulate - 1
            self.model.set_requires_gradient_sync(is_last)
            loss = self.loss() / self.accumulate
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--accumulate", type=int, default=4)
    args = parser.parse_args()

    trainer = Trainer("cuda" if torch.cuda.is_available() else "cpu", args.accumulate)
    for step in range(args.steps):
        loss = trainer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss:.3f}")
    dist.destroy_process_group()
