"""Trains through accelerate on CPU ranks, and writes the losses of each rank and the units."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


plugin = FullyShardedDataParallelPlugin(
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    forward_prefetch=False,
    use_orig_params=True,
)
accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
# accelerate chooses FSDP on GPUs only.
state = AcceleratorState._shared_state
state.update(distributed_type=DistributedType.FSDP, fsdp_plugin=plugin, device=torch.device("cpu"))
Accelerator.distributed_type = DistributedType.FSDP
Accelerator.is_fsdp2 = AcceleratorState.is_fsdp2 = plugin.fsdp_version == 2

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), Block(), Block())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer = accelerator.prepare(model, optimizer)
units = [
    name.replace("_fsdp_wrapped_module.", "")
    for name, module in model.named_modules()
    if isinstance(module, FullyShardedDataParallel)
]
torch.manual_seed(accelerator.process_index)
losses = []
for _ in range(4):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
result = {"losses": losses, "units": units, "states": plugin.state_dict_type.name}
Path(sys.argv[1], f"{accelerator.process_index}.json").write_text(json.dumps(result))
accelerator.end_training()
