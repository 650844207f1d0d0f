"""What runs beside fsdplint: other linters, in environments of their own, and two floors."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

# By environment. TorchFix pins a LibCST of its own.
REQUIREMENTS = {
    "peers": ("ruff==0.17.6", "flake8==7.5.0", "fixit==2.2.1"),
    "torchfix": ("torchfix==0.7.0",),
}
FIXIT_RULE = "fixit.rules.no_redundant_fstring:NoRedundantFString"

# What the command that is installed as `fsdplint` does.
_COMMAND = "from fsdplint.start import main; main()"
_SCAN = """
import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith((".py", ".pyi", ".ipynb")):
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            b"fully_shard" in data or b"FullyShardedDataParallel" in data or b"FSDP" in data
"""
_PARSE = """
import sys, libcst
for name in open(sys.argv[1]).read().splitlines():
    with open(name, "rb") as file:
        libcst.parse_module(file.read())
"""


@dataclass(frozen=True, slots=True)
class Tool:
    """A command to measure.

    Attributes:
        cache: the variable that names the folder of its cache, empty if it has none or is run
            without it.
        warm: whether that folder holds what an earlier run has left there, or nothing.
        changed: the file that is another one in each run.
        slow: whether it takes so long that it is run once.
    """

    name: str
    command: tuple[str, ...]
    cache: str = ""
    warm: bool = False
    changed: Path | None = None
    slow: bool = False
    variables: dict[str, str] = field(default_factory=dict)


def environments(folder: Path, names: set[str]) -> None:
    """Makes those virtual environments below ``folder`` that are not there yet."""
    for name in sorted(names):
        target = folder / name
        if not (target / "complete").exists():
            venv.create(target, with_pip=True, clear=True)
            pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, *REQUIREMENTS[name]], check=True)
            (target / "complete").touch()


def checkers(package: Path, changed: Path) -> tuple[Tool, Tool, Tool]:
    """fsdplint as a user runs it: with its cache empty, filled, and filled before a change."""
    command = (sys.executable, "-c", _COMMAND, "check", "--isolated", str(package))
    cache = "FSDPLINT_CACHE_DIR"
    return (
        Tool("fsdplint, cold", command, cache),
        Tool("fsdplint, warm", command, cache, warm=True),
        Tool("fsdplint, after a change", command, cache, warm=True, changed=changed),
    )


def ruff(venvs: Path, package: Path, *, warm: bool) -> Tool:
    """Ruff with one rule."""
    command = (str(venvs / "peers/bin/ruff"), "check", "--isolated", "--select", "F401")
    if warm:
        return Tool("ruff, warm", (*command, str(package)), "RUFF_CACHE_DIR", warm)
    return Tool("ruff", (*command, "--no-cache", str(package)))


def floors(package: Path, needed: Path) -> tuple[Tool, Tool]:
    """Reading every file and looking for three words, and parsing the files named in ``needed``."""
    scan = (sys.executable, "-c", _SCAN, str(package))
    parse = (sys.executable, "-c", _PARSE, str(needed))
    return Tool("floor: walk, read, scan", scan), Tool("floor: libcst.parse_module", parse)


def others(venvs: Path, package: Path) -> tuple[Tool, ...]:
    """The linters that are slower by far; `torchfix` and `fixit` use every core by themselves."""
    peers, path = venvs / "peers/bin", str(package)
    flake8 = (str(peers / "flake8"), "--isolated", "--select", "F401", path)
    fixit = (str(peers / "fixit"), "--quiet", "--rules", FIXIT_RULE, "lint", path)
    return (
        Tool("flake8", flake8, slow=True),
        Tool("fixit, one rule", fixit, slow=True),
        Tool("torchfix", (str(venvs / "torchfix/bin/torchfix"), path), slow=True),
    )
