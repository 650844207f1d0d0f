"""Projects of any size, each growing in one way alone: one function for each way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Files = dict[str, str]

_IMPORTS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
"""
_MODEL = """

class Block{n}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model{n}(nn.Module):
    def __init__(self, width=64, depth=8):
        super().__init__()
        self.blocks = nn.ModuleList([Block{n}(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)
"""
_BASE = _IMPORTS + _MODEL.replace("{n}", "")
_TRAIN = """

def main{n}():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = Model{n}()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1000):
        loss = model(torch.randn(8, 64, device="cuda")).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()
"""
_MAIN = '\n\nif __name__ == "__main__":\n    main{n}()\n'
_PLAIN = '''"""Utilities, part {n}."""

import json
import os


class Reader{n}:
    """Reads records."""

    def __init__(self, path, limit=None):
        self.path = path
        self.limit = limit
        self.records = []

    def read(self):
        with open(self.path) as file:
            for number, line in enumerate(file):
                if self.limit is not None and number >= self.limit:
                    break
                self.records.append(json.loads(line))
        return self.records


def sizes{n}(folder):
    return {{name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)}}
'''


def script(n: int = 0) -> str:
    """A whole correct training program in one file."""
    return f"{_IMPORTS}{_MODEL}{_TRAIN}{_MAIN}".replace("{n}", str(n))


def plain_files(n: int) -> Files:
    """Files without sharding, which nothing joins to the one trainer beside them."""
    plain = {f"part{i % 50}/plain{i}.py": _PLAIN.format(n=i) for i in range(n)}
    return {**plain, "train.py": script()}


def large_plain_files(n: int) -> Files:
    """As `plain_files`, of 20 kB each."""
    return {
        name: text
        if name == "train.py"
        else text.replace("Reads records.", "Reads records." * 1_430)
        for name, text in plain_files(n).items()
    }


def plain_importers(n: int) -> Files:
    """Files that import a module with sharding, for what does not shard."""
    helper = f"{_IMPORTS}\n\ndef shard(model):\n    fully_shard(model)\n\n\nLIMIT = 10\n"
    user = "from helper import LIMIT\n\n\ndef within{n}(values):\n    return values[:LIMIT]\n"
    users = {f"user{i}.py": user.replace("{n}", str(i)) for i in range(n)}
    return {**users, "helper.py": helper, "train.py": script()}


def relevant_files(n: int) -> Files:
    """Trainers, each a program of its own."""
    return {f"train{i}.py": script(i) for i in range(n)}


def file_length(n: int) -> Files:
    """One trainer with models that it does not train."""
    families = "".join(_MODEL.replace("{n}", f"{i}") for i in range(1, n + 1))
    rest = f"{_TRAIN}{_MAIN}".replace("{n}", "")
    return {"train.py": f"{_BASE}{families}{rest}"}


def call_depth(n: int) -> Files:
    """Functions that each do a little and call the next one; the last one trains."""
    link = "\n\ndef step{n}(model):\n    model.train()\n    return step{m}(model)\n"
    links = "".join(link.replace("{n}", str(i)).replace("{m}", str(i + 1)) for i in range(n))
    last = f"\n\ndef step{n}(model):\n    fully_shard(model)\n    return model\n"
    return {"train.py": f"{_BASE}{links}{last}\n\nstep0(Model())\n"}


def sharding_calls(n: int) -> Files:
    """One function with many sharding calls, of parts that are known apart."""
    head = "\n\ndef main():\n    model = Model(depth={n})\n"
    calls = "".join(f"    fully_shard(model.blocks[{i}])\n" for i in range(n))
    rest = "    fully_shard(model)\n    model(torch.randn(8, 64)).mean().backward()\n\n\nmain()\n"
    return {"train.py": f"{_BASE}{head.replace('{n}', str(n))}{calls}{rest}"}


def models(n: int) -> Files:
    """One script with many models, each sharded, optimized and trained."""
    one = _MODEL + _TRAIN + _MAIN
    return {"train.py": _IMPORTS + "".join(one.replace("{n}", str(i)) for i in range(n))}


def loop_nesting(n: int) -> Files:
    """Loops in one another around a training step, in twenty functions."""
    texts = []
    for i in range(20):
        loops = "".join("    " * (d + 1) + f"for i{d} in range(limit):\n" for d in range(n))
        step = "    " * (n + 1) + "model(torch.randn(8, 64)).mean().backward()\n"
        texts.append(f"\n\ndef train{i}(limit):\n    model = fully_shard(Model())\n{loops}{step}")
    return {"train.py": f"{_BASE}{''.join(texts)}"}


def import_chain(n: int) -> Files:
    """Modules that each import the next one and call it; the last one shards."""
    link = "from m{m} import run{m}\n\n\ndef run{n}(model):\n    return run{m}(model)\n"
    files = {f"m{i}.py": link.replace("{n}", str(i)).replace("{m}", str(i + 1)) for i in range(n)}
    files[f"m{n}.py"] = f"{_IMPORTS}\n\ndef run{n}(model):\n    return fully_shard(model)\n"
    main = f"from m0 import run0\n{_BASE}\n\nrun0(Model())\n"
    return {**files, "train.py": main}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to grow, from one size to another by doubling."""

    files: Callable[[int], Files]
    first: int
    last: int


WAYS = {
    way.files.__name__: way
    for way in (
        Way(plain_files, 500, 16_000),
        Way(large_plain_files, 500, 16_000),
        Way(plain_importers, 25, 1_600),
        Way(relevant_files, 10, 160),
        Way(file_length, 10, 1_280),
        Way(call_depth, 50, 3_200),
        Way(sharding_calls, 50, 3_200),
        Way(models, 10, 160),
        Way(loop_nesting, 2, 16),
        Way(import_chain, 10, 640),
    )
}
