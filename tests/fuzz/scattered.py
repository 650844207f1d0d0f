"""Programs scattered over files: who shards, who calls that, and what only looks like either.

Each is a trainer that does something wrong with a model, which a helper in another file shards. The
way from the one to the other leads through re-exports, registries, classes and lazy imports; beside
it stand files that name FSDP in comments, texts and unused imports, and files that do not.
"""

from __future__ import annotations

from random import Random

from tests.fuzz.programs import Program

_MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + self.inner(x)


class Net(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""
_SHARDS = (
    "from torch.distributed.fsdp import fully_shard\n\n\ndef {name}(model):\n"
    "    for block in model.blocks:\n        fully_shard(block)\n    return fully_shard(model)\n",
    "from torch.distributed.fsdp import fully_shard as cut\n\n\ndef {name}(model):\n"
    "    return cut(model)\n",
    "import torch.distributed.fsdp as parallel\n\n\ndef {name}(model):\n"
    "    return parallel.FullyShardedDataParallel(model)\n",
    "def {name}(model):\n    from torch.distributed import fsdp\n\n    fsdp.fully_shard(model)\n"
    "    return model\n",
)
_DECOYS = (
    "# fully_shard(model) is what the trainer does\nimport json\n\n\ndef read(path):\n"
    "    return json.load(open(path))\n",
    '"""Do not call FullyShardedDataParallel(model) here."""\n\nLIMIT = 10\n',
    "from torch.distributed.fsdp import fully_shard\n\nNAMES = []\n",
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef whole(model):\n"
    "    return model.module if isinstance(model, FSDP) else model\n",
    'HELP = "choose ddp, fsdp or fully_shard"\n\n\ndef parse(text):\n    return text in HELP\n',
    '__all__ = ["fully_shard"]\n\n\ndef fully_shard_later():\n    raise NotImplementedError\n',
    "try:\n    from torch.distributed.fsdp import fully_shard\nexcept ImportError:\n"
    "    fully_shard = None\n",
)
_PLAIN = (
    "def add(a, b):\n    return a + b\n",
    "import os\n\n\nclass Reader:\n    def train(self):\n        return os.listdir('.')\n",
    "import torch\n\n\ndef build(model):\n    return torch.optim.SGD(model.parameters(), lr=1.0)\n",
)
_WRONGS = (
    "    optimizer = torch.optim.AdamW(model.parameters())\n    model = {shard}(model)\n"
    "    model(batch).mean().backward()\n    optimizer.step()\n",
    "    model = {shard}(model)\n    model.forward(batch).mean().backward()\n",
    "    {shard}(model)\n    with model.no_sync():\n        model(batch).mean().backward()\n",
    '    model = {shard}(model)\n    torch.save(model.state_dict(), "last.pt")\n',
    "    model = {shard}(model)\n    optimizer = torch.optim.AdamW(model.parameters())\n"
    "    model(batch).mean().backward()\n    optimizer.step()\n",
)


class Scattered:
    """The files of one program, as they come to be."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.files: dict[str, str] = {"model.py": _MODEL}

    def module(self, stem: str) -> str:
        """The dotted name of a new module, at the top or in a package."""
        package = self.random.choice(("", "", "lib", "lib.parts"))
        for depth in range(package.count(".") + 1 if package else 0):
            folder = "/".join(package.split(".")[: depth + 1])
            self.files.setdefault(f"{folder}/__init__.py", "")
        return f"{package}.{stem}" if package else stem

    def write(self, module: str, text: str) -> None:
        self.files[f"{module.replace('.', '/')}.py"] = text

    def import_of(self, module: str, name: str) -> tuple[str, str]:
        """A line that imports ``name``, and the expression that it is then."""
        parent, _, last = module.rpartition(".")
        ways = [
            (f"from {module} import {name}", name),
            (f"from {module} import {name} as theirs", "theirs"),
            (f"from {module} import *", name),
            (f"import {module} as place", f"place.{name}"),
            (f"import {module}", f"{module}.{name}"),
        ]
        if parent:
            ways.append((f"from {parent} import {last}", f"{last}.{name}"))
        return self.random.choice(ways)

    def passed_on(self, module: str, name: str, number: int) -> tuple[str, str]:
        """Another module, and the name in it by which code that uses it gets at ``name``."""
        line, meant = self.import_of(module, name)
        new, at = f"step_{number}", self.module(f"way{number}")
        text = self.random.choice(
            (
                "{line}\n\n\ndef {new}(model):\n    return {meant}(model)\n",
                "{line}\n\n{new} = {meant}\n",
                '{line}\n\nTABLE = {{"fsdp": {meant}}}\n\n\ndef {new}(model):\n'
                '    return TABLE["fsdp"](model)\n',
                "{line}\n\n\nclass Engine:\n    def prepare_all(self, model):\n"
                "        return {meant}(model)\n\n\ndef {new}(model):\n"
                "    return Engine().prepare_all(model)\n",
            )
        )
        self.write(at, text.format(line=line, meant=meant, new=new))
        return at, new

    def trainer(self, module: str, name: str) -> str:
        line, meant = self.import_of(module, name)
        lazy = self.random.random() < 0.25 and not line.endswith("*")
        body = self.random.choice(_WRONGS).format(shard=meant)
        inner = f"    {line}\n\n" if lazy else ""
        head = "" if lazy else f"{line}\n"
        head += "import torch\n\nfrom model import Net\n"
        text = f"{head}\n\ndef main(batch):\n{inner}    model = Net()\n{body}"
        called = self.random.choice(("", '\n\nif __name__ == "__main__":\n    main(None)\n'))
        at = self.module("trainer")
        self.write(at, text + called)
        return at


def scattered(random: Random) -> Program:
    """A program of three to about a dozen files."""
    made = Scattered(random)
    module, name = made.module("helper"), random.choice(("apply_it", "wrap", "train"))
    made.write(module, random.choice(_SHARDS).format(name=name))
    for number in range(random.choice((0, 0, 1, 2, 3))):
        module, name = made.passed_on(module, name, number)
    trainer = made.trainer(module, name)
    if random.random() < 0.5:
        line, meant = made.import_of(trainer, "main")
        made.write("start", f"{line}\n\n{meant}(None)\n")
    _surrounded(made, random)
    return Program("scattered", made.files)


def _surrounded(made: Scattered, random: Random) -> None:
    """Puts files beside the program, which import one another and, for no use, the program."""
    others: list[str] = []
    for number, text in enumerate(random.sample((*_DECOYS, *_PLAIN), random.randint(1, 5))):
        at = made.module(f"other{number}")
        lines = [f"import {module}\n" for module in others if random.random() < 0.3]
        made.write(at, "".join(lines) + text if not text.startswith('"""') else text)
        others.append(at)
