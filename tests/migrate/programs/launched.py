"""Trains through accelerate by the environment of a launch, and writes losses and units."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState
from accelerate.utils import dataclasses
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, ShardingStrategy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


class Model(nn.Sequential):
    _no_split_modules = ("Block",)


# For GPUs only, accelerate has FSDP1 hand out rank 0's weights.
dataclasses.is_cuda_available, torch.cuda.current_device = (lambda: True), (lambda: "cpu")
plugin = FullyShardedDataParallelPlugin()
plugin.sync_module_states = False
accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
# accelerate chooses FSDP on GPUs only.
state = AcceleratorState._shared_state
state.update(distributed_type=DistributedType.FSDP, fsdp_plugin=plugin, device=torch.device("cpu"))
Accelerator.distributed_type = DistributedType.FSDP
Accelerator.is_fsdp2 = AcceleratorState.is_fsdp2 = plugin.fsdp_version == 2

torch.manual_seed(0)
model = Model(nn.Linear(8, 8), Block(), Block())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer = accelerator.prepare(model, optimizer)
units = [
    name.replace("_fsdp_wrapped_module.", "")
    for name, module in model.named_modules()
    if isinstance(module, (FSDPModule, FullyShardedDataParallel))
]
frees = plugin.reshard_after_forward
if plugin.fsdp_version == 1:
    frees = plugin.sharding_strategy is ShardingStrategy.FULL_SHARD
torch.manual_seed(accelerator.process_index)
losses = []
for _ in range(4):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
result = {"losses": losses, "units": units, "states": plugin.state_dict_type.name, "frees": frees}
Path(sys.argv[1], f"{accelerator.process_index}.json").write_text(json.dumps(result))
accelerator.end_training()
