"""Scripts that start their ranks themselves: as functions in verify's ranks, or not at all."""

from __future__ import annotations

import pytest
from verifier import Verifier

WORKER = """
import os, subprocess, sys
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def train(width):
    dist.init_process_group("gloo")
    model = fully_shard(torch.nn.Linear(width, width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, width)).sum().backward()
        optimizer.step()
    return dist.get_rank()
"""
ELASTIC = """
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
config = LaunchConfig(1, 1, {ranks}, rdzv_backend="c10d", rdzv_endpoint="localhost:0", run_id="a")
ranks = elastic_launch(config, {what})({argument})
assert ranks == {{int(os.environ["LOCAL_RANK"]): dist.get_rank()}}
"""


def test_torchruns_launcher_called_as_a_function(verifier: Verifier) -> None:
    called = ELASTIC.format(ranks=2, what="train", argument=4)
    found = verifier(WORKER + called, steps=None)
    assert found.failure == ""
    assert [rank.steps for rank in found.ranks] == [3, 3]


@pytest.mark.parametrize("call", ["spawn", "start_processes"])
def test_processes_that_a_function_starts_and_joins(verifier: Verifier, call: str) -> None:
    worker = "def worker(rank, width):\n    train(width)\n"
    started = f"torch.multiprocessing.{call}(worker, (4,), 2, join=False)"
    script = f"{WORKER}{worker}import torch.multiprocessing\ncontext = {started}\n"
    found = verifier(f"{script}while not context.join():\n    pass\n", steps=None)
    assert found.failure == ""
    assert [rank.steps for rank in found.ranks] == [3, 3]


def test_helpers_that_a_rank_spawns_are_no_ranks(verifier: Verifier) -> None:
    script = (
        f"{WORKER}"
        + """
def tokenize(index):
    print("tokenized", index, flush=True)

if __name__ == "__main__":
    import torch.multiprocessing
    train(4)
    torch.multiprocessing.start_processes(tokenize, (), 3, start_method="fork")
"""
    )
    found = verifier(script, steps=None)
    assert found.failure == ""
    told = [line for line in found.ranks[0].output.splitlines() if line.startswith("tokenized")]
    assert sorted(told) == ["tokenized 0", "tokenized 1", "tokenized 2"]


def test_another_number_of_ranks_is_told(verifier: Verifier) -> None:
    called = ELASTIC.format(ranks=4, what="train", argument=4)
    assert "pass --nproc 4" in verifier(WORKER + called).failure


@pytest.mark.parametrize(
    "start",
    [
        'subprocess.run([sys.executable, "-m", "torch.distributed.run", "train.py", "--worker"])',
        'subprocess.run("torchrun --nproc-per-node 2 train.py", shell=True)',
        'subprocess.Popen(["accelerate", "launch", "train.py"])',
        'os.system("torchrun train.py")',
        'os.execvp("torchrun", ["torchrun", "train.py"])',
        'os.system("cd . && OMP_NUM_THREADS=1 torchrun train.py")',
        'subprocess.run(["env", "A=1", "torchrun", "train.py"])',
        'from torch.distributed.run import main; main(["train.py"])',
    ],
)
def test_a_launcher_of_its_own_is_told(verifier: Verifier, start: str) -> None:
    found = verifier(f"import os, subprocess, sys\n{start}\n")
    assert found.exit_code == 2
    assert "the script launches its ranks with `" in found.failure
    assert found.failure.endswith(": run verify on train.py directly, with its arguments after --")
    assert "spawn.py" not in found.ranks[0].error


@pytest.mark.parametrize(
    "start",
    [
        'subprocess.run([sys.executable, "-c", "pass"], check=True)',
        'subprocess.run("true # torchrun", shell=True, check=True)',
        'os.system("true \'torchrun")',
    ],
)
def test_other_programs_run(verifier: Verifier, start: str) -> None:
    found = verifier(f"{WORKER}{start}\ntrain(4)\n", steps=None)
    assert found.failure == ""
