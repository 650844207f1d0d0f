"""One script, three ways to spread it: --parallel ddp | fsdp1 | fsdp2"""

import argparse
import functools
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel as DDP


class EncoderLayer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.token_mix = nn.Conv1d(d_model, d_model, 3, padding=1)
        self.channel_mix = nn.Linear(d_model, d_model)

    def forward(self, x):
        x = x + self.token_mix(x.transpose(1, 2)).transpose(1, 2)
        return x + torch.relu(self.channel_mix(x))


class Encoder(nn.Module):
    def __init__(self, d_in, d_model, n_layers, n_classes):
        super().__init__()
        self.proj = nn.Linear(d_in, d_model)
        self.layers = nn.ModuleList([EncoderLayer(d_model) for _ in range(n_layers)])
        self.classifier = nn.Linear(d_model, n_classes)

    def forward(self, x):
        x = self.proj(x)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x.mean(dim=1))


def parallelize(model, args, device):
    if args.parallel == "ddp":
        return DDP(model, device_ids=[device.index] if device.type == "cuda" else None)
    if args.parallel == "fsdp1":
        policy = functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={EncoderLayer}
        )
        return FSDP(model, auto_wrap_policy=policy, device_id=device, use_orig_params=True)
    if args.parallel == "fsdp2":
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        return model
    raise ValueError(f"unknown parallelism {args.parallel!r}")


def sync_context(model, args, is_last):
    """Communicate gradients for the last micro-batch only."""
    if args.parallel == "fsdp2":
        model.set_requires_gradient_sync(is_last)
        return nullcontext()
    return nullcontext() if is_last else model.no_sync()


def clip(model, args):
    if args.parallel == "fsdp1":
        return model.clip_grad_norm_(args.max_norm)
    return nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)


def gather_state(model, args):
    if args.parallel == "ddp":
        return model.module.state_dict()
    on_gpu = torch.cuda.is_available()
    options = StateDictOptions(full_state_dict=True, cpu_offload=on_gpu)
    return get_model_state_dict(model, options=options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=["ddp", "fsdp1", "fsdp2"], default="fsdp2")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--grad-accum", type=int, default=2)
    parser.add_argument("--max-norm", type=float, default=1.0)
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    if torch.cuda.is_available():
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")

    torch.manual_seed(0)
    model = Encoder(d_in=6, d_model=16, n_layers=2, n_classes=3).to(device)
    model = parallelize(model, args, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    torch.manual_seed(rank)
    for iteration in range(args.iterations):
        for micro in range(args.grad_accum):
            x = torch.randn(4, 5, 6, device=device)
            y = torch.randint(3, (4,), device=device)
            with sync_context(model, args, is_last=micro == args.grad_accum - 1):
                loss = nn.functional.cross_entropy(model(x), y)
                (loss / args.grad_accum).backward()
        clip(model, args)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"{iteration}: {loss.item():.4f}")

    state = gather_state(model, args)
    if rank == 0:
        torch.save(state, f"encoder-{args.parallel}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
