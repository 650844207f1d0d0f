"""Starts its own ranks: python main.py"""

import os
import socket
from argparse import ArgumentParser, Namespace

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class ConvBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(2, channels)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class SmallConvNet(nn.Module):
    def __init__(self, channels=8, depth=2, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.body = nn.ModuleList([ConvBlock(channels) for _ in range(depth)])
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stem(x)
        for conv_block in self.body:
            x = conv_block(x)
        return self.fc(x.mean(dim=(2, 3)))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=world_size)


def batches(count, seed, device):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        images = torch.randn(4, 1, 8, 8, generator=generator)
        labels = torch.randint(10, (4,), generator=generator)
        yield images.to(device), labels.to(device)


def test(model, args, device):
    model.eval()
    hits = torch.zeros(1, device=device)
    with torch.no_grad():
        for images, labels in batches(2, seed=999, device=device):
            hits += (model(images).argmax(1) == labels).sum()
    dist.all_reduce(hits)
    model.train()
    return hits.item() / (8 * args.world_size)


def worker(rank: int, args: Namespace) -> None:
    setup(rank, args.world_size, args.port)
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
        device = torch.device("cuda", rank)
    else:
        device = torch.device("cpu")

    torch.manual_seed(args.seed)
    model = SmallConvNet().to(device)
    for conv_block in model.body:
        fully_shard(conv_block)
    fully_shard(model)

    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        for images, labels in batches(3, seed=epoch * 1000 + rank, device=device):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        accuracy = test(model, args, device)
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f} accuracy {accuracy:.2f}")

    cpu_state = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if rank == 0:
        torch.save(cpu_state, args.save_to)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--world-size", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-to", default="convnet.pt")
    arguments = parser.parse_args()
    arguments.port = free_port()
    mp.spawn(worker, args=(arguments,), nprocs=arguments.world_size)
