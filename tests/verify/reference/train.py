"""A training script in many variants: its arguments say which."""

import contextlib
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  -- as everyone does
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817  -- as everyone does
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

HAS = set(sys.argv[1:])


@dataclass
class Batch:
    ids: torch.Tensor
    note: object = None


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.drop = nn.Dropout(0.2 if "dropout" in HAS else 0.0)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = (q @ k.transpose(1, 2)).softmax(-1)
        return x + self.drop(self.out(weights @ v))


class Net(nn.Module):
    def __init__(self, words=11, d=6):
        super().__init__()
        self.embed = nn.Embedding(words, d)
        self.bn = nn.BatchNorm1d(d, affine=False)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.head = nn.Linear(d, words, bias=False)
        if "tied" in HAS:
            self.head.weight = self.embed.weight
        self.calls = 0

    def forward(self, batch):
        x = self.embed(batch.ids)
        x = self.bn(x.transpose(1, 2).float()).transpose(1, 2).to(x.dtype)
        if "talks" in HAS:
            mean = batch.ids.float().mean()
            dist.all_reduce(mean)
            x = x * mean
        if "counts" in HAS:
            self.calls += 1
            x = x * self.calls
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if "checkpoint" in HAS else block(x)
        logits = self.head(x)
        return {"loss": F.cross_entropy(logits.flatten(0, 1), batch.ids.flatten()), "at": logits}


class ByShard(torch.optim.Optimizer):
    """Divides by the norm of whatever part of a gradient the rank has."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            gradient = p.grad.to_local()
            p.to_local().sub_(gradient / (gradient.norm() + 1e-6), alpha=1e-3)


def sharded(model, rank, world):
    if "fsdp1" in HAS:
        short = MixedPrecision(torch.bfloat16, torch.bfloat16) if "bf16" in HAS else None
        return FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            use_orig_params="orig" in HAS,
            mixed_precision=short,
            device_id=rank,
        )
    mesh = init_device_mesh("cuda", (world,))
    if "hsdp" in HAS:
        mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("copies", "parts"))
    if "tensor-parallel" in HAS:
        both = init_device_mesh("cuda", (1, world), mesh_dim_names=("data", "tensor"))
        parallelize_module(
            model, both["tensor"], {"head": ColwiseParallel(output_layouts=Replicate())}
        )
        mesh = both["data"]
    policy = MixedPrecisionPolicy(torch.bfloat16 if "bf16" in HAS else None)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    if "no-root" not in HAS:
        fully_shard(model, mesh=mesh, mp_policy=policy)
    if "factor" in HAS:
        model.set_reduce_scatter_divide_factor(1.0)  # its name in torch 2.6 too
    if "unsynced" in HAS:
        model.set_requires_gradient_sync(False)
    return model


def optimizers(model):
    if "by-shard" in HAS:
        return [ByShard(model.parameters())]
    if "two" in HAS:
        first, *rest = model.parameters()
        return [torch.optim.SGD([first], lr=0.1, momentum=0.9), torch.optim.AdamW(rest, lr=1e-2)]
    return [torch.optim.AdamW(model.parameters(), lr=1e-2)]


def backward(model, ids, last):
    holding = contextlib.nullcontext()
    if "fsdp1" in HAS and not last:
        holding = model.no_sync()
    elif "fsdp1" not in HAS and "unsynced" not in HAS and "no-root" not in HAS:
        model.set_requires_gradient_sync(last)
    with holding:
        note = (lambda: 0) if "unpicklable" in HAS else None
        loss = model(Batch(ids, note))["loss"]
        if "around" in HAS:
            loss = loss + sum(p.square().sum().to_local() for p in model.blocks.parameters())
        (loss / 2).backward()


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert world > 1 or "several" not in HAS, "several ranks, please"
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = Net(words=12 if "tensor-parallel" in HAS else 11).cuda()
    early = optimizers(model) if "early" in HAS else None
    model = sharded(model, rank, world)
    steppers = early or optimizers(model)
    decay = torch.optim.lr_scheduler.ExponentialLR(steppers[-1], 0.5)
    torch.manual_seed(1 + rank)
    for _ in range(3):
        for last in (False, True):
            backward(model, torch.randint(0, 11, (2, 5), device="cuda"), last)
        if "clip" in HAS:
            own = "fsdp1" in HAS and "badly" not in HAS
            clip = model.clip_grad_norm_ if own else torch.nn.utils.clip_grad_norm_
            clip(*([] if own else [model.parameters()]), max_norm=0.1)
        if "by-hand" in HAS:
            norms = [p.grad.to_local().norm() for p in model.parameters()]
            for p in model.parameters():
                p.grad.mul_(0.1 / torch.stack(norms).norm().item())
        for stepper in steppers:
            stepper.step()
        for stepper in steppers:
            stepper.zero_grad()
        decay.step()
    dist.destroy_process_group()


main()
