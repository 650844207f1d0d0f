"""Code that was not analyzed: imports, calls of unknown code, entries, broken files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine.inspection.outline import written
from fsdplint.engine.interpreter.events import Escape, Shard, Trace
from fsdplint.engine.program import Program
from fsdplint.engine.project.relevance import modules_meant
from fsdplint.finding import Span
from fsdplint.knowledge.packages import is_known_package


@dataclass(frozen=True, slots=True)
class Import:
    """An import that resolves to no file and no library that the engine knows; its first place."""

    module: str
    span: Span


@dataclass(frozen=True, slots=True)
class UnknownCall:
    """A call of unknown code that gets the "model", the "optimizer" or both (``given``)."""

    text: str
    given: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """An entry whose analysis stopped early or was skipped, with the reason."""

    entry: str
    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that does not parse."""

    span: Span
    reason: str


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Everything that was not analyzed for one script."""

    imports: tuple[Import, ...]
    calls: tuple[UnknownCall, ...]
    entries: tuple[Unfollowed, ...]
    files: tuple[Broken, ...]


def unresolved(
    program: Program, script: str, files: Iterable[str], traces: Iterable[Trace]
) -> Unresolved:
    """Return what was not analyzed in ``files`` and on the paths ``traces``."""
    imports: dict[str, Import] = {}
    for path in sorted(files, key=lambda path: (path != script, path)):
        for found in _imports(program, path):
            imports.setdefault(found.module, found)
    calls: dict[tuple[Span, tuple[str, ...]], UnknownCall] = {}
    for trace in traces:
        for call in _calls(program, trace):
            calls.setdefault((call.span, call.given), call)
    return Unresolved(
        tuple(imports.values()),
        tuple(calls.values()),
        tuple(_entries(program, script)),
        tuple(_broken(program)),
    )


# Imports


def _imports(program: Program, path: str) -> Iterator[Import]:
    for node in program.tree(path).imports:
        for modules, level in modules_meant(node):
            if not _leads_somewhere(program, path, modules, level):
                name = modules[0] or ", ".join(modules[1:])
                name = "." * level + name if level else name.split(".")[0]
                yield Import(name, Span(path, node.start, node.end))


def _leads_somewhere(program: Program, path: str, modules: list[str], level: int) -> bool:
    unit = program.project.unit(Path(path))
    if not level and is_known_package(modules[0].split(".")[0]):
        return True
    assert unit is not None
    found = [program.project.find(module, level, unit) for module in modules]
    for file in found:
        if file is not None:
            program.project.unit(file)  # a file that was not needed may be broken all the same
    return any(found)


# Calls of unknown code


def _calls(program: Program, trace: Trace) -> Iterator[UnknownCall]:
    """Yield the calls of unknown code that get a sharded model or an optimizer."""
    models = {
        part
        for event in trace.events
        if isinstance(event, Shard)
        for part in (event.module, *event.module.ancestors())
    }
    for escape in trace.escapes:
        given = [
            name
            for name, held in (
                ("model", not models.isdisjoint(escape.objects)),
                ("optimizer", any(item.captures for item in escape.objects)),
            )
            if held
        ]
        if given:
            yield UnknownCall(_text(program, escape), tuple(given), program.span(escape.site))


def _text(program: Program, escape: Escape) -> str:
    return written(program, escape.site.path, escape.site.node)


# Entries and files


def _entries(program: Program, script: str) -> Iterator[Unfollowed]:
    for stop in program.project.stopped_early(script):
        yield Unfollowed(stop.entry, stop.reason)
    for (path, entry), reason in program.project.left_out.items():
        if path == script:
            yield Unfollowed(entry, reason)


def _broken(program: Program) -> Iterator[Broken]:
    for path, error in program.project.failures.items():
        yield Broken(Span(path, error.offset, error.offset + 1), error.message)
