"""Distributed checkpoints that each rank saves to a different folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import is_by_all
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.interpreter.differing import differing, is_made_up
from fsdplint.engine.interpreter.events import Call, Sharding, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Object, Value, class_names
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.knowledge.checkpoints import FILE_WRITERS, SAVE_STATE_DICT, SAVES
from fsdplint.knowledge.names import DISTRIBUTED, KEYWORD_ONLY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD507",
    summary="ranks save their parts of one checkpoint to different folders",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="no public code examined so far makes this mistake.",
)


@dataclass(frozen=True, slots=True)
class Scattered:
    """A save in which no two ranks have the same path.

    Attributes:
        node: the argument with the path, or the writer if the path is built elsewhere.
        path: the expression of the path, None if it is built elsewhere.
        source: the rank, or the value that each process makes up, that is in the path.
    """

    save: Call
    node: ir.Node
    path: ir.Expr | None
    source: Object
    shard: Sharding


def scattered_saves(program: Program) -> Iterator[Scattered]:
    """Yield saves of sharded state by all ranks, each to a different path."""
    for trace in program.traces:
        for save in trace.calls(*SAVES):
            shard = _sharded(program, trace, save)
            source = differing(_path(save)) if shard is not None and _is_of_all(save) else None
            if shard is None or source is None or not _is_own(program, source, save.site):
                continue
            yield Scattered(save, *_written(save.site.node), source, shard)


def _sharded(program: Program, trace: Trace, save: Call) -> Sharding | None:
    """Return what shards a model before the save: the job then has more than one rank."""
    before = (each for each in trace.units() if each.time < save.time)
    return next((each for each in before if program.together(save.site, each.site)), None)


def _is_of_all(save: Call) -> bool:
    """Whether all ranks certainly save one checkpoint together."""
    by_rank = any(guard.divergent for guard in save.site.guards)
    # Without collectives, each rank writes its own metadata.
    collective = "use_collectives" not in save.arguments.keywords
    return is_by_all(save) and collective and not by_rank


def _path(save: Call) -> Value | None:
    writer = save.argument(*_WRITER[save.name == SAVE_STATE_DICT])
    named = save.arguments.get(KEYWORD_ONLY, "checkpoint_id")
    if writer is None:
        return named
    if not isinstance(writer, Object) or FILE_WRITERS.isdisjoint(class_names(writer.cls)):
        return None
    if named is not None:
        return named
    return writer.args[0] if writer.args else writer.keywords.get("path")


# Where the writer is an argument, by whether it is the deprecated function's.
_WRITER = {False: (KEYWORD_ONLY, "storage_writer"), True: (1, "storage_writer")}


def _is_own(program: Program, source: Object, save: Site) -> bool:
    """Whether each saving process makes up the value, rather than one that starts the others.

    A value that only rank 0 makes up is sent to the others.
    """
    if not is_made_up(source):
        return True
    if source.site is None or any(guard.divergent for guard in source.site.guards):
        return False
    # If one path makes the value equal, a path that does not may be for a single process.
    if any(source.site.node in trace.agreed for trace in program.traces):
        return False
    calls = [call for call in save.calls if call not in source.site.calls]
    return not any(_starts_processes(program, *call) for call in calls)


def _starts_processes(program: Program, path: str, call: ir.Node) -> bool:
    """Whether a library, or unknown code, calls the function."""
    if not isinstance(call, ir.Call):
        return False
    library = program.project.library_name(path, call.func)
    return bool(library) or ir.last_name(call.func) in ("Process", "submit", "remote", "map")


def _written(call: ir.Node) -> tuple[ir.Node, ir.Expr | None]:
    """Return the argument of a save to report, and the path if the argument contains it."""
    named = argument(call, KEYWORD_ONLY, "checkpoint_id")
    if named is not None:
        return named.value, named.value
    writer = argument(call, 1, "storage_writer")
    if writer is None:
        return call, None
    path = argument(writer.value, 0, "path")
    return (writer.value, None) if path is None else (path.value, path.value)


def reports(program: Program) -> Iterator[Report]:
    for fact in scattered_saves(program):
        site, node = fact.save.site, fact.node
        yield Report(
            Span(site.path, node.start, node.end),
            _message(program, fact),
            "differs between ranks",
            (*_evidence(program, fact), *program.conditions(fact.shard.site, site)),
            partial(_fix, program, fact),
        )


def _message(program: Program, fact: Scattered) -> str:
    text, source = program.text(fact.save.site.path, fact.node), fact.source
    if is_made_up(source) and source.site is not None:
        made = program.text(source.site.path, source.site.node)
        where = program.where(source.site, fact.save.site)
        within = source.site.node.start >= fact.node.start and source.site.node.end <= fact.node.end
        return (
            f"every rank makes up its own path with `{made}`{'' if within else f' {where}'}: "
            "shards can end up in different folders, and the checkpoint then cannot be loaded"
        )
    return (
        f"`{text}` contains the rank: ranks save their shards to different folders, and the "
        "checkpoint cannot be loaded"
    )


def _evidence(program: Program, fact: Scattered) -> Iterator[Evidence]:
    if is_made_up(fact.source) and fact.source.site is not None:
        yield program.evidence(fact.source.site, "each rank gets its own value")
    yield program.evidence(fact.shard.site, "sharded across ranks")


def _fix(program: Program, fact: Scattered) -> Fix | Declined:
    if not is_made_up(fact.source):
        return Declined(
            "the code that loads the checkpoint has to change too; remove the rank from the path "
            "in both by hand"
        )
    if fact.path is None:
        return Declined("the path is built elsewhere; broadcast rank 0's path there by hand")
    code = Code.of(program.tree(fact.save.site.path))
    return broadcast_path(code, fact.save.site.node, fact.path)


@builder
def broadcast_path(code: Code, save: ir.Node, path: ir.Expr) -> Fix:
    """Broadcast the path of rank 0."""
    statement = code.statement(save)
    if not code.starts_line(statement) or not isinstance(statement, (ir.Expression, ir.Assign)):
        raise NoFixError(
            f"no statement fits in front of `{code.short(statement)}`; broadcast rank 0's path by "
            "hand"
        )
    imports = Imports(code, save)
    broadcast = imports.name(DISTRIBUTED, "broadcast_object_list")
    name = fresh(code, save, "paths")
    indent, newline = code.indentation(statement), code.newline
    lines = f"{indent}{name} = [{code.slice(path)}]{newline}{indent}{broadcast}({name}){newline}"
    edits = (
        code.insert_lines(code.line_start(statement.start), lines),
        code.edit(path.start, path.end, f"{name}[0]"),
    )
    return Fix("broadcast rank 0's path to all ranks", Safety.UNSAFE, (*imports.edits(), *edits))
