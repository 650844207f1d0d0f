"""Models that are sharded where no optimizer can follow: shard them where it is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import replaces
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Shard, Trace
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.gather_state import receiver
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import clash, dotted, names_in, written_between
from fsdplint.knowledge.launch import INIT, MOVES, SET_DEVICE
from fsdplint.migrate.sharding import sharding_lines
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.optimizer_before_sharding import StaleOptimizer, moved_below, stale_optimizers


def early_optimizers(context: Context) -> Iterator[Found]:
    """Yield changes that build an optimizer after its model is sharded, or shard the model before.

    The latter, if the optimizer is built in another function, or used before the sharding.
    """
    program = context.program
    seen: set[ir.Node] = set()
    for fact in stale_optimizers(program):
        # Of several in one block, each has a pass of its own, so that an empty block goes, too.
        tree = program.tree(fact.shard.site.path)
        block = tree.parent(tree.statement(fact.shard.call))
        if block in seen:
            continue
        seen.add(block)
        fix = moved_below(program, fact)
        if isinstance(fix, Fix):
            yield Change(program.span(fact.build.site), fix.title, fix.edits)
            continue
        try:
            yield _sharded_earlier(program, fact)
        except NoFixError:
            continue  # the rule reports it


def _sharded_earlier(program: Program, fact: StaleOptimizer) -> Change:
    trace = next(t for t in program.traces if fact.build in t.of(BuildOptimizer))
    _check(trace, fact)
    path, node, model = _outermost(program, fact)
    code = Code.of(program.tree(path))
    statement = _above_branches(program, code, fact, node, model)
    imports = Imports(code, node)
    lines = _moved(code, imports, trace, fact, model)
    old = Code.of(program.tree(fact.shard.site.path))
    removed = _removed(old, fact.shard)
    here = code.function(fact.shard.call) is code.function(node) if old is code else False
    lines += sharding_lines(code, imports, model, variable=removed.variable if here else "")
    if removed.owner is not None and old is not code:
        raise NoFixError("the sharding is all that its block does")
    tests = set(ir.walk(removed.owner.test)) if removed.owner is not None else set()
    if any(g.test not in tests for g in program.own_branches(fact.shard.site, fact.build.site)):
        raise NoFixError("only some programs shard the model")
    lines = _under(code, removed, statement, lines)
    at, _ = code.extent(statement)
    indent = code.indentation(statement)
    added = code.insert_lines(at, "".join(indent + line + code.newline for line in lines))
    what = f"shard `{model}` with `fully_shard` before its optimizer is built"
    edits = (removed.edit, added)
    return Change(program.span(fact.shard.site), what, edits, (imports,))


def _check(trace: Trace, fact: StaleOptimizer) -> None:
    shard = fact.shard
    inits = [call.time for call in trace.calls(INIT)]
    if shard is not fact.last or sum(replaces(s, fact.capture) for s in trace.of(Shard)) > 1:
        raise NoFixError("several calls shard the model")
    if not inits or inits[0] > fact.capture.time:
        raise NoFixError("the process group is created after the optimizer")
    devices = [call.time for call in trace.calls(SET_DEVICE)]
    if devices and devices[0] > fact.capture.time:
        raise NoFixError("the device of the rank is set after the optimizer is built")


def _outermost(program: Program, fact: StaleOptimizer) -> tuple[str, ir.Node, str]:
    """Return the outermost call that leads to the capture and is given the model by a name."""
    frames = fact.capture.source.frames()
    path, node = frames[-1]
    taken = receiver(node)
    name = dotted(taken) if taken is not None else None
    if name is None:
        raise NoFixError("the model has no name where the optimizer is built")
    for index in range(len(frames) - 1, 0, -1):
        caller, call = frames[index - 1]
        outer = _given(program, (path, node), call, name)
        if outer is None:
            break
        path, node, name = caller, call, outer
    return path, node, name


def _above_branches(
    program: Program, code: Code, fact: StaleOptimizer, node: ir.Node, model: str
) -> ir.Stmt:
    """Return the statement before which the model is sharded whichever optimizer is built."""
    statement = place = code.statement(node)
    frames = fact.capture.source.frames()
    below = [
        program.tree(path).function(n) for path, n in frames[frames.index((code.path, node)) :]
    ]
    for guard in program.own_branches(fact.capture.source, fact.shard.site):
        tree = program.tree(guard.path)
        branch = tree.statement(guard.test)
        if branch in code.ancestors(statement):
            place = min(place, branch, key=lambda each: each.start)
        elif tree.function(branch) not in below:
            raise NoFixError("only some programs build the optimizer")
    between = written_between(code, node, place.start, statement.start)
    if clash({model}, between) is not None:
        raise NoFixError("each branch has a model of its own")
    return place


def _given(program: Program, frame: tuple[str, ir.Node], call: ir.Node, name: str) -> str | None:
    """Return what the caller passes as the parameter ``name`` of the function of ``frame``."""
    function = program.tree(frame[0]).function(frame[1])
    if function is None or not isinstance(call, ir.Call):
        return None
    positional = [each.name for each in function.parameters if each.kind == "positional"]
    if name not in positional:
        return None
    named = next((a.value for a in call.args if a.keyword == name), None)
    plain = [a.value for a in call.args if a.keyword is None and not a.star]
    bound = isinstance(call.func, ir.Attribute) and positional[0] == "self"
    values = [call.func.value, *plain] if bound and isinstance(call.func, ir.Attribute) else plain
    index = positional.index(name)
    value = named or (values[index] if index < len(values) else None)
    return None if value is None else dotted(value)


def _moved(
    code: Code, imports: Imports, trace: Trace, fact: StaleOptimizer, model: str
) -> list[str]:
    """Return lines that move the model to the GPU, where its code does so later."""
    start, end = fact.capture.time, fact.shard.time
    moves = (call for call in trace.calls(*MOVES) if start < call.time < end)
    if not any(isinstance(c, Call) and c.receiver is fact.capture.module for c in moves):
        return []
    torch = imports.module("torch", "torch")
    return [f"if {torch}.cuda.is_available():", f"{code.unit}{model}.cuda()"]


@dataclass(frozen=True, slots=True)
class _Removed:
    """A sharding call that is removed, with the loop before it that broadcasts the weights.

    Attributes:
        owner: the if statement around it, which is removed as well if it does nothing else.
        variable: that of the loop.
    """

    edit: Edit
    owner: ir.If | None
    variable: str


def _removed(code: Code, shard: Shard) -> _Removed:
    statement = code.statement(shard.call)
    block = code.block(statement)
    if not isinstance(statement, ir.Expression) or statement.value is not shard.call:
        raise NoFixError("the sharding call is part of a larger statement")
    index = block.statements.index(statement)
    above = block.statements[index - 1] if index else statement
    if not (isinstance(above, ir.For) and ".broadcast(" in code.slice(above)):
        above = statement
    variable = code.slice(above.target) if isinstance(above, ir.For) else ""
    owner = block.owner if isinstance(block.owner, ir.If) else None
    first: ir.Stmt = above
    if len(block.statements) == 1 + (above is not statement):
        if owner is None or owner.orelse:
            raise NoFixError("the sharding is all that its block does")
        first = statement = owner
    elif owner is not None and statement not in owner.body:
        raise NoFixError("the sharding is on the other arm of a test")
    start, end = code.extent(first)[0], code.extent(statement)[1]
    return _Removed(code.delete_lines(start, end), owner, variable)


def _under(code: Code, removed: _Removed, place: ir.Stmt, lines: Sequence[str]) -> list[str]:
    """Return ``lines`` under the test of the removed if statement, if there is one."""
    owner = removed.owner
    if owner is None:
        return list(lines)
    needed = names_in(owner.test).reads
    between = written_between(code, place, place.start, owner.start)
    if code.function(owner) is not code.function(place) or clash(needed, between) is not None:
        raise NoFixError("the test around the sharding cannot move to where the optimizer is built")
    return [f"if {code.slice(owner.test)}:", *(code.unit + line for line in lines)]
