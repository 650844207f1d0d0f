"""Samplers that may be none, may be of another class, or belong to a loader that is no loader."""

from benchmarks.differential.families.family import Family

_HEAD = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    TensorDataset,
)

«where»
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(16, 8))
validation = TensorDataset(torch.randn(8, 8))
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
if distributed:
    dist.init_process_group("gloo")
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(batch):
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
"""

_WHERE = {
    "environment": 'distributed = "RANK" in os.environ',
    "size": 'distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1',
    "switch": 'distributed = os.environ.get("FSDP", "1") == "1" and "RANK" in os.environ',
    "always": "distributed = True",
}

_SAMPLER = {
    "none": "sampler = DistributedSampler(dataset) if distributed else None",
    "random": "sampler = DistributedSampler(dataset) if distributed else RandomSampler(dataset)",
    "branch": """
        if distributed:
            sampler = DistributedSampler(dataset)
        else:
            sampler = None
    """,
    "plain": "sampler = DistributedSampler(dataset, num_replicas=1, rank=0)",
    "derived": """
        class Logged(DistributedSampler):
            def __iter__(self):
                print("the sampler begins")
                return super().__iter__()


        sampler = Logged(dataset, num_replicas=1, rank=0)
    """,
    "own": """
        class Ordered(torch.utils.data.Sampler):
            def __iter__(self):
                return iter(range(len(dataset)))

            def __len__(self):
                return len(dataset)


        sampler = DistributedSampler(dataset) if distributed else Ordered()
    """,
}

_USE = {
    "flat": """
        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        for epoch in range(2):
            for (batch,) in loader:
                step(batch)
    """,
    "function": """
        def train(loader, epochs):
            for epoch in range(epochs):
                for (batch,) in loader:
                    step(batch)


        train(DataLoader(dataset, batch_size=4, sampler=sampler), 2)
    """,
    "batch_sampler": """
        def train(loader, epochs):
            for epoch in range(epochs):
                for (batch,) in loader:
                    step(batch)


        batches = BatchSampler(sampler, batch_size=4, drop_last=True) if sampler else None
        train(DataLoader(dataset, batch_sampler=batches), 2)
    """,
    "batch_sampler_in_a_function": """
        def make(dataset):
            batches = BatchSampler(DistributedSampler(dataset, 1, 0), 4, drop_last=True)
            return DataLoader(dataset, batch_sampler=batches)


        def train(loader, epochs):
            for epoch in range(epochs):
                for (batch,) in loader:
                    step(batch)


        train(make(dataset), 2)
    """,
    "shared_with_plain": """
        def train(loader, epochs):
            for epoch in range(epochs):
                for (batch,) in loader:
                    step(batch)


        train(DataLoader(dataset, batch_size=4, sampler=sampler), 2)
        train(DataLoader(validation, batch_size=4), 2)
    """,
    "shared_with_list": """
        def train(loader, epochs):
            for epoch in range(epochs):
                for (batch,) in loader:
                    step(batch)


        train([(torch.ones(4, 8),)], 2)
        train(DataLoader(dataset, batch_size=4, sampler=sampler), 2)
    """,
    "batches": """
        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        loaders = [loader, DataLoader(validation, batch_size=4)]
        for epoch in range(2):
            for loader in loaders:
                for (batch,) in loader:
                    step(batch)
    """,
    "wrapped": """
        class Prefetcher:
            def __init__(self, inner):
                self.inner = inner

            def __iter__(self):
                return iter(self.inner)


        loader = Prefetcher(DataLoader(dataset, batch_size=4, sampler=sampler))
        for epoch in range(2):
            for (batch,) in loader:
                step(batch)
    """,
    "resumed": """
        class Trainer:
            def __init__(self, loader):
                self.loader = loader

            def fit(self, first, last):
                for epoch in range(first, last):
                    for (batch,) in self.loader:
                        step(batch)


        Trainer(DataLoader(dataset, batch_size=4, sampler=sampler)).fit(0, 2)
    """,
    "trainer_without": """
        class Trainer:
            def __init__(self, loader=None):
                self.loader = loader if loader is not None else [(torch.ones(4, 8),)]

            def fit(self):
                for epoch in range(2):
                    for (batch,) in self.loader:
                        step(batch)


        Trainer(DataLoader(dataset, batch_size=4, sampler=sampler)).fit()
        Trainer().fit()
    """,
    "loader_chosen": """
        if os.environ.get("SYNTHETIC", "0") == "1":
            loader = [(torch.ones(4, 8),)] * 3
        else:
            loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        for epoch in range(2):
            for (batch,) in loader:
                step(batch)
    """,
    "materialized": """
        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        for epoch in range(2):
            batches = list(loader)
            for (batch,) in batches:
                step(batch)
    """,
    "not_counted": """
        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        steps = 0
        while steps < 6:
            for (batch,) in loader:
                step(batch)
                steps += 1
    """,
    "repeated": """
        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        for stage in range(2):
            for epoch in range(2):
                for (batch,) in loader:
                    step(batch)
    """,
    "not_counted_shared": """
        def train(loader):
            for _ in range(2):
                for (batch,) in loader:
                    step(batch)


        train([(torch.ones(4, 8),)])
        train(DataLoader(validation, batch_size=4))
        train(DataLoader(dataset, batch_size=4, sampler=sampler))
    """,
    "endless": """
        def cycle(loader):
            while True:
                yield from loader


        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        for number, (batch,) in enumerate(cycle(loader)):
            step(batch)
            if number == 6:
                break
        print(len(list(zip(range(3), cycle([1])))))
    """,
    "used_up": """
        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        batches = iter(loader)
        for number in range(6):
            try:
                (batch,) = next(batches)
            except StopIteration:
                batches = iter(loader)
                (batch,) = next(batches)
            step(batch)
    """,
}

FAMILIES = (
    Family(
        "epochs",
        {"train.py": _HEAD + "\n\n«sampler»\n«use»\n"},
        {"where": _WHERE, "sampler": _SAMPLER, "use": _USE},
    ),
)
