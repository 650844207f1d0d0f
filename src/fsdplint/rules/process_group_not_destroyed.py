from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.teardown import LeftUp, left_up
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report
from fsdplint.source.lexing import NEWLINE


def process_group_not_destroyed(program: Program) -> Iterator[Report]:
    for fact in left_up(program):
        site = fact.start.site
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` makes a process group that is still up "
            f"when the program ends: {_why(program, fact)}",
            "the process group",
            tuple(_evidence(program, fact)),
            partial(_fix, program, fact),
        )


def _why(program: Program, fact: LeftUp) -> str:
    if fact.unused is None:
        return "nothing calls `destroy_process_group`"
    assert isinstance(fact.unused.node, ir.FunctionDef)
    name = fact.unused.node.function.name
    return f"nothing calls `{name}` {program.where(fact.unused, fact.start.site)}"


def _evidence(program: Program, fact: LeftUp) -> Iterator[Evidence]:
    end, text = fact.end, program.tree(fact.end.path).text
    first = NEWLINE.split(text[end.node.start : end.node.end])[0]
    yield Evidence(Span(end.path, end.node.start, end.node.start + len(first)), "the end")
    if fact.unused is not None:
        node = fact.unused.node
        line = text if fact.unused.path == end.path else program.tree(fact.unused.path).text
        head = NEWLINE.split(line[node.start : node.end])[0]
        span = Span(fact.unused.path, node.start, node.start + len(head))
        yield Evidence(span, "would destroy it, and is not called")
    yield from program.conditions(fact.start.site)


def _fix(program: Program, fact: LeftUp) -> Fix | Declined:
    if fact.saving:
        return Declined("a checkpoint may still be written when the function ends")
    same = fact.unused is not None and fact.unused.path == fact.end.path
    unused = fact.unused.node if same and fact.unused is not None else None
    assert unused is None or isinstance(unused, ir.FunctionDef)
    code = fixes.code.Code.of(program.tree(fact.end.path))
    perhaps = any(not guard.early for guard in fact.start.site.guards)
    return fixes.teardown.destroy_at_end(code, fact.end.node, unused, perhaps=perhaps)  # type: ignore[arg-type]  # a statement
