"""Character model, one flat script: torchrun --nproc-per-node 8 train.py"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--dim", type=int, default=32)
parser.add_argument("--depth", type=int, default=2)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--lr", type=float, default=3e-4)
args = parser.parse_args()


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class CharModel(nn.Module):
    def __init__(self, vocab: int, dim: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


use_cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if use_cuda else "gloo")
rank = dist.get_rank()
local_rank = int(os.environ.get("LOCAL_RANK", "0"))
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
if use_cuda:
    torch.cuda.set_device(device)

torch.manual_seed(0)
vocab_size = 64
model = CharModel(vocab_size, args.dim, args.depth).to(device)
if rank == 0:
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")

for block in model.blocks:
    fully_shard(block)
fully_shard(model)

optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

torch.manual_seed(1234 + rank)
model.train()
for step in range(args.steps):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(args.accumulate):
        tokens = torch.randint(vocab_size, (2, 17), device=device)
        model.set_requires_gradient_sync(micro == args.accumulate - 1)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        (loss / args.accumulate).backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if rank == 0:
        print(f"step {step} loss {total / args.accumulate:.4f}")

state_dict = get_model_state_dict(
    model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
)
if rank == 0:
    torch.save(state_dict, "char_model.pt")

dist.destroy_process_group()
