"""Finetune a small classifier with FSDP2: functions and a main()."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + torch.relu(self.linear(x)))


class Classifier(nn.Module):
    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Linear(16, width)
        self.layers = nn.ModuleList([Residual(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def setup() -> tuple[torch.device, DeviceMesh]:
    accelerated = torch.accelerator.is_available()
    kind = torch.accelerator.current_accelerator().type if accelerated else "cpu"
    dist.init_process_group()
    mesh = init_device_mesh(kind, (dist.get_world_size(),), mesh_dim_names=("dp",))
    index = torch.accelerator.current_device_index() if accelerated else None
    return torch.device(kind, index), mesh


def make_loader(batch_size: int, seed: int) -> DataLoader:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(64, 16, generator=generator)
    labels = torch.randint(4, (64,), generator=generator)
    dataset = TensorDataset(features, labels)
    return DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset, drop_last=True))


def train_one_epoch(
    model: nn.Module,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> float:
    model.train()
    running = 0.0
    for features, labels in loader:
        logits = model(features.to(device))
        loss = nn.functional.cross_entropy(logits.float(), labels.to(device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        running += loss.item()
    return running / len(loader)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    model.eval()
    correct = torch.zeros((), device=device)
    for features, labels in loader:
        prediction = model(features.to(device)).argmax(dim=-1)
        correct += (prediction == labels.to(device)).sum()
    dist.all_reduce(correct)
    return correct.item() / (len(loader) * loader.batch_size * dist.get_world_size())


def save(model: nn.Module, path: Path) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(weights, path)
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()

    device, mesh = setup()
    torch.manual_seed(42)
    model = Classifier(width=32, depth=3, classes=4).to(device)

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train_loader, eval_loader = make_loader(8, seed=0), make_loader(8, seed=1)
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        loss = train_one_epoch(model, train_loader, optimizer, device)
        save(model, args.out / f"epoch{epoch}.pt")
        accuracy = evaluate(model, eval_loader, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss:.3f} accuracy {accuracy:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
