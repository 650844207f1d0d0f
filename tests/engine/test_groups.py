"""Whether a path knows that the default process group is up, shown by the tests of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import program, script

from fsdplint.engine.interpreter.values import Const

INIT = "torch.distributed.init_process_group"
ASKS = "if not dist.is_initialized():\n    dist.init_process_group('nccl')\n"
SHARDS = "fully_shard(nn.Linear(2, 2))\n"
LATER = "def main():\n" + "".join(f"    {line}\n" for line in (ASKS + SHARDS).splitlines())


def makes(tmp_path: Path, text: str) -> bool:
    """Whether the one path of a script makes the group where it asks for it."""
    (trace,) = script(tmp_path, text).traces
    return bool(trace.calls(INIT))


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import os\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n",
        "import argparse\nargs = argparse.ArgumentParser().parse_args()\nprint(args.x.lower())\n",
        "import yaml\nsettings = yaml.safe_load(open('settings.yaml'))\n",
        "from transformers import HfArgumentParser\n"
        "class Options: pass\n"
        "(options,) = HfArgumentParser(Options).parse_args_into_dataclasses()\n",
        "dist.init_process_group('gloo')\ndist.destroy_process_group()\n",
        "if dist.is_initialized():\n    dist.barrier()\n",
        "def rank():\n    return dist.get_rank() if dist.is_initialized() else 0\nprint(rank())\n",
        "import argparse\nfrom rich_argparse import RichHelpFormatter\n"
        "argparse.ArgumentParser(formatter_class=RichHelpFormatter)\n",
        "def timed(function):\n    def wrapper():\n        import wandb\n"
        "        if wandb.run is not None:\n            wandb.log({})\n"
        "        return function()\n    return wrapper\n"
        "@timed\ndef show():\n    print()\n",
    ],
)
def test_nothing_has_made_it(tmp_path: Path, before: str) -> None:
    assert makes(tmp_path, before + ASKS + SHARDS)


@pytest.mark.parametrize(
    "before",
    [
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "init_device_mesh('cuda', (8,))\n",
        "fully_shard(nn.Linear(3, 3))\n",
        "dist.barrier()\n",
        "import launcher\nlauncher.start()\n",
        "from . import parallel\nparallel.start()\n",
        "from launcher import *\nstart()\n",
        "import launcher\n@launcher.distributed\ndef main():\n    pass\nmain()\n",
        "import launcher\nclass Run(launcher.Run):\n    pass\nRun()\n",
        "import accelerate\naccelerate.PartialState()\n",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        "from transformers import HfArgumentParser, TrainingArguments\n"
        "HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n",
        "from transformers import TrainingArguments\n"
        "class Mine(TrainingArguments):\n    pass\nMine('out')\n",
        "from timm.utils import init_distributed_device\ninit_distributed_device(None)\n",
        "import hydra, yaml\n"
        "hydra.utils.instantiate(yaml.safe_load(open('settings.yaml'))['runtime'])\n",
        "import importlib\nimportlib.import_module('runtime')\n",
    ],
)
def test_something_has_or_may_have_made_it(tmp_path: Path, before: str) -> None:
    assert not makes(tmp_path, before + ASKS + SHARDS)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("import os\nif os.path.exists('x'):\n    dist.init_process_group('gloo')\n", 1),
        ("import os\nx = os.path.exists('x') and dist.init_process_group('gloo')\n", 1),
        ("import os\nx = dist.init_process_group() if os.path.exists('x') else None\n", 1),
        ("import os\nif os.path.exists('x'):\n    print('x')\n", 1),
        ("dist.init_process_group('gloo')\n", 1),
    ],
)
def test_arms_that_both_run(tmp_path: Path, before: str, expected: int) -> None:
    (trace,) = script(tmp_path, before + ASKS + SHARDS).traces
    assert len(trace.calls(INIT)) == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("if __name__ == '__main__':\n    main()\n", True),
        ("import fire\nif __name__ == '__main__':\n    fire.Fire(main)\n", True),
        ("import launcher\nif __name__ == '__main__':\n    launcher.run(main)\n", False),
        ("import fire\nif __name__ == '__main__':\n    print()\n    fire.Fire(main)\n", True),
        (
            "import torch.multiprocessing as mp\nclass Run:\n    pass\n"
            "def worker(rank, run):\n    main()\n"
            "if __name__ == '__main__':\n    dist.init_process_group('gloo')\n"
            "    mp.spawn(worker, args=(Run(),))\n",
            True,
        ),
        ("", False),
    ],
)
def test_where_a_program_starts(tmp_path: Path, start: str, expected: bool) -> None:
    (trace,) = script(tmp_path, LATER + start).traces
    backends = [call.argument(0, "backend") for call in trace.calls(INIT)]
    assert ("nccl" in [each.value for each in backends if isinstance(each, Const)]) is expected


def test_a_module_that_is_imported_asks_of_a_time_not_known(tmp_path: Path) -> None:
    files = {
        "state.py": "import torch.distributed as dist\nALONE = not dist.is_initialized()\n",
        "train.py": """
            import torch.distributed as dist
            from torch import nn
            from torch.distributed.fsdp import fully_shard

            from state import ALONE

            if ALONE:
                dist.init_process_group("gloo")
            fully_shard(nn.Linear(2, 2))
        """,
    }
    (trace,) = program(tmp_path, files).traces
    assert trace.calls(INIT) == []
