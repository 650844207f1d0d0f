"""Trains a tiny GPT to count, from weights that are assigned to a model on the meta device.

torchrun --nproc-per-node 2 parameters_replaced_after_optimizer.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

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


def load(model, weights):
    slices = {}
    for name, like in model.state_dict().items():
        slices[name] = distribute_tensor(weights[name], like.device_mesh, like.placements)
    model.load_state_dict(slices, assign=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    weights = GPT().to(device).state_dict()
    with torch.device("meta"):
        model = GPT()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    load(model, weights)
    train(model, optimizer, args.steps, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
