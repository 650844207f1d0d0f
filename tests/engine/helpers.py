"""Programs written by a test, and the layers of the engine over them in a form to compare with."""

from __future__ import annotations

import sysconfig
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fsdplint.engine import ir
from fsdplint.engine.frontend.lower import lower
from fsdplint.engine.interpreter import paths
from fsdplint.engine.interpreter.entry_point import Entry
from fsdplint.engine.interpreter.events import Event, Trace
from fsdplint.engine.interpreter.site import Guard
from fsdplint.engine.interpreter.state import PathState
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program, analyze
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.unit import Unit

# Most programs need these; a test's line 1 is the line after them.
HEADER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
"""

STDLIB = Path(sysconfig.get_path("stdlib"))
_LARGEST = 20_000


def module(text: str) -> ir.Module:
    return lower(text, "x.py")


def dump(value: object) -> str:
    """A node as a constructor call without its span, e.g. ``Attribute(Name('a'), 'b')``."""
    if isinstance(value, ir.Node):
        inner = [getattr(value, name) for name in ir.field_names(type(value))]
        return f"{type(value).__name__}({', '.join(map(dump, inner))})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(dump, value))}]"
    return repr(value)


@cache
def stdlib_sample() -> list[Path]:
    """90 files of the standard library, the same on every run."""
    tops = (top for top in STDLIB.iterdir() if top.name not in {"site-packages", "test"})
    paths = (path for top in tops for path in (top.rglob("*.py") if top.is_dir() else [top]))
    sizes = {
        path: path.stat().st_size
        for path in paths
        if path.suffix == ".py" and not {"test", "tests"} & set(path.parts)
    }
    small = [path for path, size in sizes.items() if size <= _LARGEST]
    return sorted(small, key=lambda path: (sizes[path] * 7919 % 1009, path))[:90]


def placed(module: ir.Module) -> list[tuple[str, int, int]]:
    return [(dump(node), node.start, node.end) for node in _leaves(module)]


def _leaves(module: ir.Module) -> Iterator[ir.Node]:
    """The nodes without any below, and every kind of statement by its name and its place."""
    for node in ir.walk(module):
        if not ir.children(node):
            yield node
        else:
            yield ir.Name(node.start, node.end, type(node).__name__)


def texts(source: str, kind: type[ir.Node]) -> list[str]:
    """The source text of every node of a kind, parents first."""
    nodes = [node for node in ir.walk(module(source)) if isinstance(node, kind)]
    return [source[node.start : node.end] for node in nodes]


def write(root: Path, files: dict[str, str]) -> list[Path]:
    """Writes dedented files below ``root``."""
    written = []
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        written.append(path)
    return written


def read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def project(root: Path, files: dict[str, str]) -> Project:
    write(root, files)
    return Project(root, read)


def unit(project: Project, name: str) -> Unit:
    found = project.unit(project.root / name)
    assert found is not None, name
    return found


def program(root: Path, files: dict[str, str]) -> Program:
    return analyze(root, write(root, files), read)


def script(root: Path, text: str) -> Program:
    """The program of one file that begins with `HEADER`."""
    return program(root, {"train.py": HEADER + textwrap.dedent(text)})


def path_of(program: Program) -> Trace:
    """The one path of a program that has no other."""
    (trace,) = program.traces
    return trace


def events(program: Program, trace: Trace) -> list[tuple[str, str]]:
    """What happens on a path, in order: the kind of each event and the source of its node."""
    return [event(program, each) for each in trace.events]


def event(program: Program, each: Event) -> tuple[str, str]:
    return type(each).__name__, program.text(each.site.path, each.site.node)


def every_path(program: Program) -> list[list[tuple[str, str]]]:
    return sorted(events(program, trace) for trace in program.traces)


def guards(program: Program, these: Iterable[Guard]) -> list[tuple[str, bool, str]]:
    """Branches as (test, outcome, "rank", "loop" or "")."""
    return [
        (
            program.text(guard.path, guard.test),
            guard.taken,
            "rank" * guard.divergent + "loop" * guard.progress,
        )
        for guard in these
    ]


def paths_started(patch: pytest.MonkeyPatch) -> list[PathState]:
    """A list that the state of every path is put into which is followed from now on."""
    states: list[PathState] = []
    start = paths.start

    def noted(state: PathState, entry: Entry) -> None:
        states.append(state)
        start(state, entry)

    patch.setattr(paths, "start", noted)
    return states


def objects_made(patch: pytest.MonkeyPatch) -> list[Object]:
    """A list that every object is put into which a path makes from now on."""
    made: list[Object] = []
    new = PathState.new

    def noted(self: PathState, *args: Any, **options: Any) -> Object:
        made.append(new(self, *args, **options))
        return made[-1]

    patch.setattr(PathState, "new", noted)
    return made
