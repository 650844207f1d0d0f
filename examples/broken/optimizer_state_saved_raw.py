"""Trains a tiny GPT to count and saves its optimizer, to go on with later.

torchrun --nproc-per-node 2 optimizer_state_saved_raw.py
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


def train(model, optimizer, steps, device):
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(steps):
        starts = torch.randint(VOCABULARY, (16, 1), generator=data)
        tokens = ((starts + torch.arange(33)) % VOCABULARY).to(device)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}")


def save(model, optimizer, path):
    if dist.get_rank() == 0:
        torch.save(optimizer.state_dict(), path)
    dist.barrier()


def resume(model, optimizer, path):
    optimizer.load_state_dict(torch.load(path))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--output", default="adamw.pt")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    model = GPT().to(device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if args.resume:
        resume(model, optimizer, "adamw.pt")
    train(model, optimizer, args.steps, device)
    save(model, optimizer, args.output)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
