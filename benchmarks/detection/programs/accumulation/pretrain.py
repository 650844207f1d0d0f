"""Gradient accumulation: communicate once per update, not once per micro-batch."""

import argparse
import itertools
import logging
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("pretrain")


class RecurrentBlock(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gru = nn.GRU(size, size, batch_first=True)
        self.norm = nn.LayerNorm(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.gru(x)[0])


class LanguageModel(nn.Module):
    def __init__(self, vocab: int, size: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, size)
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList([RecurrentBlock(size) for _ in range(depth)])
        self.decoder = nn.Linear(size, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for recurrent in self.encoder.layers:
            hidden = recurrent(hidden)
        return self.decoder(hidden)


def learning_rate(step: int, warmup: int, total: int, peak: float) -> float:
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, total - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


def synthetic_stream(vocab: int, length: int, device: torch.device):
    generator = torch.Generator().manual_seed(dist.get_rank())
    while True:
        start = torch.randint(vocab, (2, 1), generator=generator)
        yield ((start + torch.arange(length + 1)) % vocab).to(device)


def forward_backward(lm, micro_batches):
    """Sum of the micro-batches' losses; gradients are reduced with the last one."""
    count = len(micro_batches)
    total = torch.zeros((), device=micro_batches[0].device)
    for number, tokens in enumerate(micro_batches, start=1):
        if number == count:
            lm.set_requires_gradient_sync(True)
        else:
            lm.set_requires_gradient_sync(False)
        logits = lm(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / count
        loss.backward()
        total += loss.detach()
    return total


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--micro-batches", type=int, default=3)
    parser.add_argument("--peak-lr", type=float, default=1e-2)
    parser.add_argument("--resume-file", default="last.pt")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO)

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind)
    torch.manual_seed(0)
    lm = LanguageModel(vocab=20, size=16, depth=2).to(device)
    for recurrent in lm.encoder.layers:
        fully_shard(recurrent)
    fully_shard(lm)
    optimizer = torch.optim.Adam(lm.parameters(), lr=args.peak_lr)

    stream = synthetic_stream(20, 9, device)
    for update in range(args.updates):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(update, 1, args.updates, args.peak_lr)
        loss = forward_backward(lm, list(itertools.islice(stream, args.micro_batches)))
        nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            log.info("update %d loss %.4f", update, loss.item() / dist.get_world_size())

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(lm, options=options)
    moments = get_optimizer_state_dict(lm, optimizer, options=options)
    if dist.get_rank() == 0:
        torch.save({"weights": weights, "moments": moments, "args": args}, args.resume_file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
