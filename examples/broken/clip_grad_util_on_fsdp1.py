"""Trains a tiny GPT to count, wrapped block by block by FSDP1, with its gradients clipped.

torchrun --nproc-per-node 2 clip_grad_util_on_fsdp1.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

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


def build(device):
    torch.manual_seed(0)
    policy = ModuleWrapPolicy({nn.TransformerEncoderLayer})
    return FSDP(GPT(), auto_wrap_policy=policy, device_id=device, use_orig_params=True)


def train(model, steps, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(steps):
        starts = torch.randint(VOCABULARY, (16, 1), generator=data)
        tokens = ((starts + torch.arange(33)) % VOCABULARY).to(device)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f} norm {norm.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    model = build(device)
    train(model, args.steps, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
