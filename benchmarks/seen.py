"""What `fsdplint inspect` shows of the files of whole repositories that shard a model.

A file counts if it calls `fully_shard` or `FullyShardedDataParallel` of torch, tests apart. That
its program builds an optimizer or saves is read from the texts, not from the analysis, so that the
shares have a denominator of their own.
"""

from __future__ import annotations

import argparse
import ast
import csv
import multiprocessing
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path

from fsdplint.engine.inspection.outline import Step
from fsdplint.engine.inspection.summary import Entry, inspect
from fsdplint.engine.program import Program, analyze
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.relevance import imported_files
from fsdplint.files.discover import discover
from fsdplint.files.file import absolute
from fsdplint.process.stack import deep
from fsdplint.sources import Sources

SHARDING = ("fully_shard", "FullyShardedDataParallel")
# By its name, since optimizers of other libraries count as well.
OPTIMIZER = re.compile(
    r"(torch\.optim\.[A-Z]|.*\b(Fused|Paged)?(Adam|SGD|Lion|Muon|Dion|Adafactor|Shampoo|RMSprop))\w*$"
)
SAVES = re.compile(r"torch\.(save|distributed\.checkpoint\..*(save|save_state_dict))$")
# These save no model.
SMALL = re.compile("token|process|config|sched", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Row:
    """A file that shards; of what it does, whether `inspect` shows it. None: it does not do it."""

    repository: str
    path: str
    sharding: bool
    model: bool
    optimizer: bool | None
    save: bool | None


class Texts:
    """What the texts of a repository's files say, as far as Python's own parser reads them."""

    def __init__(self, project: Project, files: Iterable[Path]) -> None:
        self.project = project
        self.calls = {path: set(_calls(project.read(path) or "")) for path in files}

    @cached_property
    def importers(self) -> dict[Path, set[Path]]:
        found: dict[Path, set[Path]] = {}
        for path in self.calls:
            if not self.project.is_test(path.as_posix()):
                for target in imported_files(self.project, path):
                    found.setdefault(target, set()).add(path)
        return found

    def sharding(self) -> Iterator[Path]:
        for path, calls in self.calls.items():
            own = any(name.startswith("torch.") and name.endswith(SHARDING) for name in calls)
            if own and not self.project.is_test(path.as_posix()):
                yield path

    def program(self, path: Path) -> set[Path]:
        """Return the file, those that import it, and all that these import, transitively."""
        users = _reached([path], lambda each: self.importers.get(each, ()))
        return _reached(users, lambda each: imported_files(self.project, each))

    def has(self, files: Iterable[Path], pattern: re.Pattern[str]) -> bool:
        return any(pattern.match(name) for path in files for name in self.calls.get(path, ()))


def _reached(start: Iterable[Path], step: Callable[[Path], Iterable[Path]]) -> set[Path]:
    queue = list(start)
    seen = set(queue)
    for path in queue:
        new = set(step(path)) - seen
        seen |= new
        queue += sorted(new)
    return seen


def _calls(text: str) -> Iterator[str]:
    """Yield what is called, by its full name where an import says it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    names = dict(_imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _dotted(node.func)):
            first, _, rest = name.partition(".")
            full = ".".join(filter(None, (names.get(first, first), rest)))
            yield full
            if full.endswith(".save_pretrained") and not SMALL.search(full):
                yield "torch.save"


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.split(".")[0],
                    (alias.name if alias.asname else alias.name.split(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def rows(folder: Path, program: Program, sources: Sources, files: Sequence[Path]) -> Iterator[Row]:
    """Yield what is shown of each file of a program that shards."""
    texts = Texts(program.project, files)
    for path in texts.sharding():
        own = sources.with_scripts([path.as_posix()])
        entries = inspect(program, *own).entries
        leading = [entry for entry in entries if _shards_in(entry, own)]
        around = texts.program(path)
        optimizers = any(o.takes for entry in leading for o in entry.optimizers)
        saves = any(s.kind in ("save", "write") for entry in leading for s in _steps(entry))
        yield Row(
            folder.name,
            path.relative_to(folder).as_posix(),
            bool(leading),
            any(m.span is not None and m.shardings for entry in leading for m in entry.models),
            optimizers if texts.has(around, OPTIMIZER) else None,
            saves if texts.has(around, SAVES) else None,
        )


def _shards_in(entry: Entry, own: Sequence[str]) -> bool:
    listed = any(s.span.path in own for model in entry.models for s in model.shardings)
    return listed or any(s.kind == "shard" and s.span.path in own for s in _steps(entry))


def _steps(entry: Entry) -> list[Step]:
    """Return the steps of the first path, and what the others add."""
    return [*entry.steps, *(step for variant in entry.variants for step in variant.added)]


def examine(folder: Path, sender: Connection) -> None:
    sources = Sources({}, most=sys.maxsize)
    found = sorted(map(absolute, discover([folder]).files))
    files = [Path(path) for path in sources.with_scripts(found)]
    program = deep(lambda: analyze(folder, files, sources.text))
    sender.send(deep(lambda: list(rows(folder, program, sources, files))))


def shares(every: Sequence[Row]) -> str:
    """Return, of what is shown, how often and of how many files."""
    lines = ["| | shown | of | share |", "| --- | ---: | ---: | ---: |"]
    for name in ("sharding", "model", "optimizer", "save"):
        said = [value for row in every if (value := getattr(row, name)) is not None]
        share = f"{100 * sum(said) / len(said):.0f} %" if said else "-"
        lines.append(f"| {name} | {sum(said)} | {len(said)} | {share} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+", type=Path, help="folders to examine")
    parser.add_argument("--limit", type=float, default=240, help="seconds for a repository")
    parser.add_argument("--table", type=Path, help="where to write a row for each file (CSV)")
    args = parser.parse_args(arguments)
    every: list[Row] = []
    for folder in args.repositories:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        worker = multiprocessing.Process(target=examine, args=(folder.resolve(), sender))
        worker.start()
        sender.close()
        try:
            if not receiver.poll(args.limit):
                print(f"{folder.name}: not done in {args.limit:.0f} s", file=sys.stderr)
                continue
            every += receiver.recv()
        except EOFError:
            print(f"{folder.name}: crashed", file=sys.stderr)
        finally:
            worker.kill()
            worker.join()
    if args.table:
        with args.table.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(field.name for field in fields(Row))
            out.writerows(map(astuple, every))
    print(shares(every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
