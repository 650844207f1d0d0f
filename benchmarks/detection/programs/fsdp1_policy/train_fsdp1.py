"""The wrapper generation: FullyShardedDataParallel with an auto-wrap policy."""

import argparse
import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class T5ishBlock(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
        self.norm1 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.norm2 = nn.LayerNorm(d)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Tagger(nn.Module):
    def __init__(self, vocab: int, d: int, n: int, tags: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(vocab, d)
        self.encoder = nn.ModuleList([T5ishBlock(d) for _ in range(n)])
        self.tags = nn.Linear(d, tags)

    def forward(self, ids):
        h = self.shared(ids)
        for block in self.encoder:
            h = block(h)
        return self.tags(h)


class Synthetic(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        ids = torch.randint(30, (6,), generator=g)
        return ids, ids % 4


def train(args, model, loader, optimizer, scheduler, epoch, device):
    model.train()
    loader.sampler.set_epoch(epoch)
    totals = torch.zeros(2, device=device)
    for index, (ids, tags) in enumerate(loader):
        ids, tags = ids.to(device), tags.to(device)
        if (index + 1) % args.accumulate:
            with model.no_sync():
                loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), tags.flatten())
                loss.backward()
        else:
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), tags.flatten())
            loss.backward()
            model.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
        totals += torch.tensor([loss.item(), 1.0], device=device)
    scheduler.step()
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


def save(model, path, device):
    config = FullStateDictConfig(offload_to_cpu=device.type == "cuda", rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--path", default="tagger.pt")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    model = Tagger(vocab=30, d=16, n=2, tags=4)
    bf16 = MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
    wrap_policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={T5ishBlock}
    )
    model = FSDP(
        model,
        auto_wrap_policy=wrap_policy,
        mixed_precision=bf16 if args.bf16 else None,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=device,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    dataset = Synthetic()
    loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset))
    for epoch in range(args.epochs):
        loss = train(args, model, loader, optimizer, scheduler, epoch, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss:.4f}")
    save(model, args.path, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
