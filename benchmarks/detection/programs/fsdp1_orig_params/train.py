"""FSDP1 that keeps the original parameters: the optimizer may come first."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Cell(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = nn.Linear(size, size)

    def forward(self, x):
        return x + self.inner(x).tanh()


class Chain(nn.Module):
    def __init__(self, size=12, length=3):
        super().__init__()
        self.cells = nn.Sequential(*(Cell(size) for _ in range(length)))
        self.readout = nn.Linear(size, 2)

    def forward(self, x):
        return self.readout(self.cells(x))


def parameter_groups(model, weight_decay):
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    weights = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    return [{"params": weights, "weight_decay": weight_decay}, {"params": biases}]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--accumulation", type=int, default=2)
    args = parser.parse_args()

    dist.init_process_group()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = Chain().to(device)
    # Grouped by name while the names are still the model's own.
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=1e-2, weight_decay=0.0)
    fsdp_model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Cell}),
        device_id=device,
        use_orig_params=True,
    )

    torch.manual_seed(1 + dist.get_rank())
    for update in range(args.updates):
        for i in range(args.accumulation):
            last = i + 1 == args.accumulation
            x = torch.randn(4, 12, device=device)
            with contextlib.nullcontext() if last else fsdp_model.no_sync():
                loss = fsdp_model.forward(x).square().mean() / args.accumulation
                loss.backward()
        fsdp_model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(update, loss.item())

    options = StateDictOptions(full_state_dict=True, cpu_offload=device.type == "cuda")
    weights = get_model_state_dict(fsdp_model, options=options)
    if dist.get_rank() == 0:
        torch.save(weights, "chain.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
