"""Rendezvous files with a fixed name that nothing removes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.values import Const, Object, class_names
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.process_group import by_environment
from fsdplint.knowledge.launch import FILE_STORE, INIT
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD105",
    summary="processes rendezvous through a file that an earlier run may have left behind",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


_REMOVES = re.compile(r"unlink|remove\(|rmtree|\brm\b|tempfile|[tT]emporary|mkd?s?temp")


@dataclass(frozen=True, slots=True)
class MeetingFile:
    """A process group with a rendezvous file.

    Attributes:
        node: the argument that names the file, or the call if that is elsewhere.
        method: the argument, if it is the ``init_method``.
        name: the name of the file.
    """

    init: Call
    node: ir.Node
    method: ir.Expr | None
    name: str


def meeting_files(program: Program) -> Iterator[MeetingFile]:
    """Yield process groups with a file that an earlier run may have left behind."""
    for trace in program.traces:
        for init in trace.calls(INIT):
            by_method, by_store = _method(init), _store(init)
            name = by_method or by_store
            if name is None or _is_removed(program, trace, init):
                continue
            written = argument(init.site.node, 1, "init_method") if by_method else None
            method = None if written is None else written.value
            yield MeetingFile(init, method or init.site.node, method, name)


def _method(init: Call) -> str | None:
    value = init.arguments.get(1, "init_method")
    named = isinstance(value, Const) and str(value.value).startswith("file://")
    return str(value.value).removeprefix("file://") if isinstance(value, Const) and named else None


def _store(init: Call) -> str | None:
    """Return the name of the file behind a ``FileStore``."""
    store = init.argument(5, "store")
    if not isinstance(store, Object) or FILE_STORE not in class_names(store.cls):
        return None
    name = store.args[0] if store.args else store.keywords.get("file_name")
    return str(name.value) if isinstance(name, Const) else None


def _is_removed(program: Program, trace: Trace, init: Call) -> bool:
    paths = {trace.path, *(path for path, _ in init.site.frames())}
    return any(_REMOVES.search(program.tree(path).text) for path in paths)


def reports(program: Program) -> Iterator[Report]:
    for fact in meeting_files(program):
        site, node = fact.init.site, fact.node
        yield Report(
            Span(site.path, node.start, node.end),
            f"the rendezvous file `{fact.name}` is reused: a killed run leaves it behind, and the "
            "next run fails to connect to dead processes",
            "the same file in every run",
            program.conditions(site),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: MeetingFile) -> Fix | Declined:
    if fact.method is None:
        return Declined(
            "the file is not passed as `init_method` here; use `env://`, or a new file for each "
            "run, by hand"
        )
    return by_environment(Code.of(program.tree(fact.init.site.path)), fact.method)
