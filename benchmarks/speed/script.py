"""What `fsdplint check` costs, in CPU seconds of whole processes, relative to what others cost.

Two figures: one FSDP script of 500 lines, relative to LibCST parsing it; the installed torch
package, relative to `ruff check --select F` on it. Runs are interleaved and medians compared, so
that a busy machine slows both sides alike.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TRAINER = Path(__file__).parent / "detection" / "programs" / "trainer_class" / "trainer.py"
LINES = 500

FAMILY = '''class Block{n}(nn.Module):
    """Family {n}: {heads} heads, gated."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, {heads}, batch_first=True)
        self.gate = nn.Linear(width, {factor} * width)
        self.up = nn.Linear(width, {factor} * width)
        self.down = nn.Linear({factor} * width, width)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.gate(x)) * self.up(x))


class Network{n}(nn.Module):
    def __init__(self, args: Args):
        super().__init__()
        self.inp = nn.Linear(8, args.width)
        self.trunk = nn.ModuleList([Block{n}(args.width) for _ in range(args.depth)])
        self.out = nn.Linear(args.width, 1)

    def forward(self, x):
        h = self.inp(x)
        for block in self.trunk:
            h = block(h)
        return self.out(h).squeeze(-1)

    def count(self):
        total = 0
        for name, parameter in self.named_parameters():
            if not name.endswith("bias"):
                total += parameter.numel()
        return total


'''


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds, user and system, of each run of ``command``, its children included."""

    name: str
    command: tuple[str, ...]
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def run(self) -> None:
        sink = subprocess.DEVNULL
        process = subprocess.Popen(self.command, stdout=sink, stderr=sink)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):  # 1: it found something
            raise SystemExit(f"{self.name} ended with {process.returncode}")
        self.seconds.append(usage.ru_utime + usage.ru_stime)


def script() -> str:
    """A trainer of 500 lines: one program of the detection benchmark with more model families."""
    text = TRAINER.read_text()
    head, tail = text.split("@contextmanager", 1)
    tail = "@contextmanager" + tail.replace("Regressor(args)", "FAMILIES[args.family](args)")
    head = head.replace('run_dir: str = "runs"', 'run_dir: str = "runs"\n    family: int = 0')
    count = 0
    while f"{head}{FAMILY}{tail}".count("\n") + count + 10 < LINES:
        head += FAMILY.format(n=count, heads=2 ** (count % 3), factor=2 + count % 4)
        count += 1
    members = "".join(f"    Network{n},\n" for n in range(count))
    return f"{head}FAMILIES = [\n    Regressor,\n{members}]\n\n\n{tail}"


def compare(ours: Cost, theirs: Cost, repetitions: int) -> None:
    for cost in (ours, theirs):  # Once unmeasured: the files come from the page cache afterwards.
        cost.run()
        cost.seconds.clear()
    for _ in range(repetitions):
        ours.run()
        theirs.run()
    ratio = ours.median / theirs.median
    print(f"{ours.name:32} {ours.median:8.3f} s")
    print(f"{theirs.name:32} {theirs.median:8.3f} s    ratio {ratio:.2f}", flush=True)


def ours(path: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "fsdplint", "check", str(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--ruff", default=str(Path(sys.executable).with_name("ruff")))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.py")
        file.write_text(script())
        lines = len(file.read_text().splitlines())
        parse = f"import libcst; libcst.parse_module(open({str(file)!r}).read())"
        compare(
            Cost(f"fsdplint check, {lines} lines", ours(file), []),
            Cost("libcst.parse_module", (sys.executable, "-c", parse), []),
            args.repetitions,
        )
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("torch is not installed: no second figure")
    torch = Path(spec.origin).parent
    ruff = (args.ruff, "check", "--isolated", "--no-cache", "--select", "F", str(torch))
    compare(
        Cost("fsdplint check, torch", ours(torch), []),
        Cost("ruff check --select F, torch", ruff, []),
        max(3, args.repetitions // 2),
    )


if __name__ == "__main__":
    main()
