"""What watching a script costs it: the CPU time of a step, and of a start, with and without.

One script trains a small transformer on two CPU ranks, once under torchrun alone and once under
`fsdplint verify --device cpu`, in turns; it times its own steps. Medians are compared, the first
step (lazy initialisation, snapshot) apart from those after it. Starts are compared with
`import torch` and what FSDP2 itself imports, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fsdplint.verify.events import Started
from fsdplint.verify.launch import Elastic
from fsdplint.verify.request import Request
from fsdplint.verify.run import observe

SCRIPT = """import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

target, width, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
layers = [nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True) for _ in range(4)]
model = nn.Sequential(nn.Linear(16, width), *layers, nn.Linear(width, 16))
for layer in layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
seconds = []
for _ in range(steps):
    began = time.process_time()
    x = torch.randn(4, 32, 16)
    loss = (model(x) - x).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.process_time() - began)
if dist.get_rank() == 0:
    with open(target, "w") as file:
        json.dump(seconds, file)
dist.destroy_process_group()
"""

IMPORTS = {
    "import torch": "import torch",
    "+ FSDP2": "import torch, torch.distributed.fsdp, torch.distributed.checkpoint, torch._dynamo",
}


def alone(folder: Path, arguments: Sequence[str]) -> None:
    """Runs the script under torchrun as its user would."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, str(folder / "train.py"), *arguments]
    subprocess.run(command, check=True, capture_output=True)


def watched(folder: Path, arguments: Sequence[str]) -> float:
    """Runs it under the observer; returns the seconds from a rank's start to the first line."""
    request = Request("train.py", tuple(arguments), steps=None, device="cpu")
    run = observe(request, folder, {}, Elastic, lambda _: None)
    started = [event.loading for _, event in run.all(Started)]
    return max(started)


def imported(code: str) -> float:
    """Returns the wall seconds of a process that only imports."""
    timed = f"import time; began = time.perf_counter(); {code}; print(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    starts: list[float] = []
    for width in options.widths:
        steps: dict[str, list[list[float]]] = {"alone": [], "watched": []}
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                (folder / "train.py").write_text(SCRIPT)
                for kind, start in ("alone", alone), ("watched", watched):
                    target = folder / f"{kind}.json"
                    loading = start(folder, (str(target), str(width), str(options.steps)))
                    starts += [loading] if loading is not None else []
                    steps[kind].append(json.loads(target.read_text()))
        report(width, steps)
    print(f"start of a watched rank: {statistics.median(starts):.2f} s wall, of it")
    for label, code in IMPORTS.items():
        seconds = statistics.median(imported(code) for _ in range(options.rounds))
        print(f"  {label}: {seconds:.2f} s")


def report(width: int, steps: dict[str, list[list[float]]]) -> None:
    """Prints the medians of first and later steps in milliseconds of CPU, and their ratios."""
    for label, part in ("first step", slice(0, 1)), ("later steps", slice(1, None)):
        alone_, watched_ = (
            1000 * statistics.median(second for run in steps[kind] for second in run[part])
            for kind in ("alone", "watched")
        )
        ratio = watched_ / alone_
        print(f"width {width}, {label}: {alone_:.1f} -> {watched_:.1f} ms CPU, {ratio:.2f}x")


if __name__ == "__main__":
    main()
