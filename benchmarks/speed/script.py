"""What `fsdplint check` costs on one FSDP script of 500 lines, relative to LibCST parsing it.

CPU seconds of whole processes, in turns, so that a busy machine slows both sides alike; and where
they go.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.speed.measure import as_installed, cost_of

TRAINER = Path(__file__).parents[1] / "detection" / "programs" / "trainer_class" / "trainer.py"
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


def compare(ours: Sequence[str], theirs: Sequence[str], folder: Path, rounds: int) -> None:
    """Prints the medians of two commands and of their ratios."""
    pairs: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        empty = {"FSDPLINT_CACHE_DIR": str(folder / f"cache{number}")}
        pairs.append((cost_of(ours, folder, empty).cpu, cost_of(theirs, folder).cpu))
    del pairs[0]  # the first run compiles modules
    ratio = median(a / b for a, b in pairs)
    print(f"fsdplint check       {median(a for a, _ in pairs):8.3f} s")
    print(f"libcst.parse_module  {median(b for _, b in pairs):8.3f} s    ratio {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.py")
        file.write_text(script())
        ours = (sys.executable, "-m", "fsdplint", "check", "--isolated", str(file))
        parse = f"import libcst; libcst.parse_module(open({str(file)!r}).read())"
        compare(ours, (sys.executable, "-c", parse), Path(folder), args.rounds)
        command = (sys.executable, "-m", "benchmarks.speed.phases", str(file))
        print("\nin another run:", flush=True)
        subprocess.run(command, check=True, env=as_installed())


if __name__ == "__main__":
    main()
