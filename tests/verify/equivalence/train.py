"""Trains and saves: each word is a variant, so that another text of this line is a migration."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

WORDS = {"fsdp1"}
CPU = torch.device("cpu")
SHORT = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def reset_parameters(self):
        for layer in (self.norm, self.up, self.down):
            layer.reset_parameters()

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(10) for _ in range(2))
        self.head = nn.Linear(10, 5)
        if "wide" in WORDS:
            nn.init.normal_(self.head.weight)
        self.dropout = nn.Dropout(0.1)
        if "tied" in WORDS:
            self.tail = nn.Linear(10, 5)
            self.tail.weight = self.head.weight

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        if "tied" in WORDS:
            return self.head(self.dropout(x)) + self.tail(x)
        return self.head(self.dropout(x))


def shard():
    short = "bf16" in WORDS
    if "meta" in WORDS:
        with torch.device("meta"):
            model = Net()
    else:
        model = Net()
    if "one" in WORDS:
        return nn.DataParallel(model) if "parallel" in WORDS else model
    if "ddp" in WORDS:
        return DistributedDataParallel(model)
    if "fsdp1" in WORDS:
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            mixed_precision=MixedPrecision(**SHORT) if short else None,
            device_id=CPU,
            use_orig_params="original" in WORDS,
            sync_module_states="rank_seeds" in WORDS,
        )
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    given = {"mesh": mesh} | ({"mp_policy": MixedPrecisionPolicy(**SHORT)} if short else {})
    for block in model.blocks if "root" not in WORDS else ():
        fully_shard(block, **given)
    fully_shard(model, **given)
    if "meta" in WORDS:
        model.to_empty(device="cpu")
        for block in model.blocks:
            block.reset_parameters()
        model.head.reset_parameters()
    return model


def save(model, optimizer):
    rank = dist.get_rank() if dist.is_initialized() else 0
    if "one" in WORDS:
        weights, moments = model.state_dict(), optimizer.state_dict()
    elif "ddp" in WORDS:
        whole = model if "wrapped" in WORDS else model.module
        weights, moments = whole.state_dict(), optimizer.state_dict()
    elif "fsdp1" in WORDS:
        configs = FullStateDictConfig(rank0_only=True), FullOptimStateDictConfig(rank0_only=True)
        of = FullyShardedDataParallel
        with of.state_dict_type(model, StateDictType.FULL_STATE_DICT, *configs):
            weights, moments = model.state_dict(), of.optim_state_dict(model, optimizer)
    elif "slices" in WORDS or "dcp" in WORDS:
        weights, moments = get_model_state_dict(model), get_optimizer_state_dict(model, optimizer)
    else:
        weights = get_model_state_dict(model, options=FULL)
        moments = get_optimizer_state_dict(model, optimizer, options=FULL)
    state = {"model": weights, "optimizer": moments, "epoch": 1}
    if "no_moments" in WORDS:
        del state["optimizer"]
    if "dcp" in WORDS:
        dcp.save(state, checkpoint_id="checkpoint")
    elif rank == 0:
        torch.save(state, "checkpoint.pt")


def main():
    distributed = "one" not in WORDS
    if distributed:
        dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank() if "rank_seeds" in WORDS else 0)
    data = torch.randn(48, 10)
    if "fails" in WORDS:
        raise ValueError("no data")
    model = shard()
    parameters = list(model.parameters())
    if "dropped" in WORDS:
        parameters = parameters[:-1]
    rate = 0.02 if "rate" in WORDS else 0.01
    rate = 0.0 if "still" in WORDS else rate
    if "zero" in WORDS:
        optimizer = ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=rate)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=rate)
    scaler = torch.amp.GradScaler("cpu", enabled="scaler" in WORDS)
    sampler = DistributedSampler(data, seed="other_data" in WORDS) if distributed else None
    loader = DataLoader(data, batch_size=4, shuffle=not distributed, sampler=sampler)
    accumulate = 1 if "every" in WORDS else 2
    for number, batch in enumerate(loader):
        with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in WORDS):
            forward = model.forward if "direct" in WORDS else model
            loss = forward(batch).float().square().mean()
        if "factor" not in WORDS:
            loss = loss / 2
        if "random" in WORDS:
            loss = loss * (1 + os.getpid() % 1000)
        scaler.scale(loss).backward()
        if number % accumulate == accumulate - 1:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    if "unsaved" not in WORDS:
        save(model, optimizer)
    if distributed:
        dist.destroy_process_group()


main()
