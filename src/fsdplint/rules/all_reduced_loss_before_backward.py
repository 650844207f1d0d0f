"""Losses that are averaged over ranks before their backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Call, Divided, Sharding, Trace
from fsdplint.engine.interpreter.ranks import is_size
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Symbol, Value, contained
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import BACKWARDS, Generation
from fsdplint.knowledge.collectives import ALL_REDUCE
from fsdplint.knowledge.tensors import NO_GRADIENT, RESCALES_GRADIENTS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD309",
    summary="the loss is averaged over ranks before backward, and FSDP averages again",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


_INIT = "init_process_group"


@dataclass(frozen=True, slots=True)
class ReducedLoss:
    """A ``backward`` of a loss that ``reduction`` and ``division`` averaged over ranks.

    Attributes:
        division: None if the reduction itself takes the mean.
    """

    backward: Call
    reduction: Call
    division: Divided | None
    shard: Sharding


def reduced_losses(program: Program) -> Iterator[ReducedLoss]:
    """Yield backward passes whose gradients are divided by the number of ranks twice."""
    found = list(_found(program))
    if found and not any(
        _named(node) in RESCALES_GRADIENTS for node in _nodes(program, *RESCALES_GRADIENTS)
    ):
        yield from found


def _found(program: Program) -> Iterator[ReducedLoss]:
    for trace in program.traces:
        reductions = trace.calls(ALL_REDUCE)
        for backward in trace.calls(*BACKWARDS) if reductions else ():
            fact = _reduced(program, trace, reductions, backward)
            if fact is not None:
                yield fact


def _reduced(
    program: Program, trace: Trace, reductions: list[Call], backward: Call
) -> ReducedLoss | None:
    """Return the reduction that averages a backward's loss, if all of it surely happens."""
    objects, divisions = _history(trace, backward)
    for reduction in reductions:
        given = reduction.argument(0, "tensor")
        if reduction.time > backward.time or given not in objects or not _of_all(reduction):
            continue
        operation = _operation(reduction)
        division = next((d for d in divisions if is_size(d.by)), None)
        if operation == "AVG" and _uses_gloo(program):
            division = None
        elif operation != "SUM" or division is None:
            continue
        scaled = (reduction if division is None else division).site
        shard = _sharding(trace, reduction)
        if shard is None or _without_gradients(program, scaled):
            continue
        sites = [backward.site, reduction.site, scaled]
        if _exclude(sites) or not all(program.together(site, shard.site) for site in sites):
            continue
        return ReducedLoss(backward, reduction, division, shard)
    return None


def _history(trace: Trace, backward: Call) -> tuple[set[Value], list[Divided]]:
    """Return the loss with its values before divisions, and those divisions."""
    roots = [backward.receiver, *backward.arguments.args[:1]]
    objects: set[Value] = {
        item
        for root in roots
        if root is not None
        for item in contained(root)
        if isinstance(item, Object)
    }
    divisions = []
    for division in reversed(trace.of(Divided)):
        in_place = isinstance(division.site.node, ir.AugAssign) and division.value in objects
        if division.time < backward.time and (in_place or division.result in objects):
            objects.add(division.value)
            divisions.append(division)
    return objects, divisions


def _of_all(reduction: Call) -> bool:
    """True if the reduction seems to cover all ranks."""
    group = reduction.argument(2, "group")
    plain = group is None or (isinstance(group, Const) and group.value is None)
    world = isinstance(group, Symbol) and group.name.endswith(".WORLD")
    return not reduction.arguments.open and (plain or world)


def _operation(reduction: Call) -> str:
    operation = reduction.argument(1, "op")
    if operation is None:
        return "SUM"
    return operation.name.rpartition(".")[2] if isinstance(operation, Symbol) else ""


def _sharding(trace: Trace, reduction: Call) -> Sharding | None:
    """Return the sharding of the model whose forward was the last before ``reduction``."""
    for forward in reversed(trace.calls("forward")):
        module = forward.receiver
        if forward.time > reduction.time or not isinstance(module, Object):
            continue
        for generation in Generation:
            shard = unit_of(trace, module, generation)
            if shard is not None and shard.time < forward.time:
                return shard
    return None


def _exclude(sites: list[Site]) -> bool:
    """True if the places are on different branches, or only some ranks reach one of them."""
    guards = [guard for site in sites for guard in site.guards]
    taken = {(guard.key, guard.taken) for guard in guards}
    return any(guard.divergent or (guard.key, not guard.taken) in taken for guard in guards)


def _without_gradients(program: Program, site: Site) -> bool:
    """True if no gradient is recorded there, so in-place changes leave the graph alone."""
    for path, node in site.frames():
        tree = program.tree(path)
        for above in tree.ancestors(node):
            marks: list[ir.Expr] = []
            if isinstance(above, ir.With):
                marks = tree.contexts(above)
            elif isinstance(above, ir.Function):
                marks = list(above.decorators)
            if any(_named(inner) in NO_GRADIENT for mark in marks for inner in ir.walk(mark)):
                return True
    return False


def _uses_gloo(program: Program) -> bool:
    """True if every process group is surely gloo's, whose division autograd records."""
    found = [
        node.args[0].value
        if node.args and node.args[0].keyword in (None, "backend") and not node.args[0].star
        else None
        for node in _nodes(program, _INIT)
        if isinstance(node, ir.Call) and _named(node.func) == _INIT
    ]
    return bool(found) and all(
        isinstance(backend, ir.Constant) and backend.value == "gloo" for backend in found
    )


def _nodes(program: Program, *words: str) -> Iterator[ir.Node]:
    """Yield the nodes of all files where one of ``words`` may be."""
    for tree in program.trees_with(*words):
        yield from tree.walk(*words)


def _named(node: ir.Node) -> str:
    if isinstance(node, ir.Attribute):
        return node.attr
    return node.id if isinstance(node, ir.Name) else ""


def reports(program: Program) -> Iterator[Report]:
    for fact in reduced_losses(program):
        site, reduction, division = fact.backward.site, fact.reduction.site, fact.division
        divided = [] if division is None else [division.site]
        mean = [program.evidence(place, "divided by the number of ranks here") for place in divided]
        yield Report(
            program.span(site),
            f"{_loss(program, fact)} is already averaged over ranks "
            f"{program.where(reduction, site)}, and FSDP averages the gradients again: they come "
            "out too small by a factor of the world size",
            "gradients too small by the world size",
            (
                program.evidence(
                    reduction, "summed over ranks here" if mean else "averaged over ranks here"
                ),
                *mean,
                program.evidence(fact.shard.site, "FSDP averages the gradients over ranks"),
                *program.conditions(site, reduction, fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _loss(program: Program, fact: ReducedLoss) -> str:
    """Return the loss by its name at the backward, if the same function reduces it."""
    site, reduction = fact.backward.site, fact.reduction.site
    given = reduction.node.args if isinstance(reduction.node, ir.Call) else ()
    if (reduction.path, reduction.calls) == (site.path, site.calls) and given:
        return f"`{program.text(site.path, given[0].value)}`"
    return f"the loss of `{program.text(site.path, site.node)}`"


def _fix(program: Program, fact: ReducedLoss) -> Fix | Declined:
    site, reduction, division = fact.backward.site, fact.reduction.site, fact.division
    places = [reduction, *([] if division is None else [division.site])]
    if any((place.path, place.calls) != (site.path, site.calls) for place in places):
        return Declined(f"the reduction and the backward are in different functions; {_BY_HAND}")
    nodes = [place.node for place in places]
    return backward_first(Code.of(program.tree(site.path)), site.node, nodes)


_BY_HAND = "run the backward before the reduction by hand"


@builder
def backward_first(code: Code, backward: ir.Node, scalings: Sequence[ir.Node]) -> Fix:
    """Move the statement of ``backward`` above those that average the loss.

    Args:
        scalings: the call of ``all_reduce``, and the division if there is one.
    """
    reduction = scalings[0]
    assert isinstance(reduction, ir.Call)
    loss = dotted(reduction.args[0].value) if reduction.args else None
    moved = code.statement(backward)
    if not isinstance(moved, ir.Expression) or moved.value is not backward:
        raise NoFixError(f"`{code.short(backward)}` is part of a larger statement; {_BY_HAND}")
    if loss is None or not any(dotted(node) == loss for node in ir.walk(backward)):
        raise NoFixError(f"`{code.short(backward)}` does not name the reduced loss; {_BY_HAND}")
    statements = {code.statement(node) for node in scalings}
    block = code.block(moved).statements
    end = block.index(moved)
    start = end
    while start and statements and _inside(block[start - 1]) <= statements:
        start -= 1
        statements -= _inside(block[start])
    if statements:
        raise NoFixError(f"other code is between the reduction and the backward; {_BY_HAND}")
    for node in scalings:
        if not _only_scales(code.statement(node), loss):
            raise NoFixError(
                f"`{code.short(code.statement(node))}` may do more than scale the loss; {_BY_HAND}"
            )
    at, _ = code.extent(block[start])
    first, last = code.extent(moved)
    text = code.text[first:last]
    line = text if text.endswith(("\n", "\r")) else text + code.newline
    edits = (code.insert_lines(at, line), code.edit(first, last, ""))
    title = f"run `{code.short(moved)}` before the loss is reduced"
    return Fix(title, Safety.UNSAFE, edits)


def _inside(statement: ir.Stmt) -> set[ir.Stmt]:
    """Return the body of an if statement without another arm; of any other, the statement."""
    if isinstance(statement, ir.If) and not statement.orelse:
        return set(statement.body)
    return {statement}


def _only_scales(statement: ir.Stmt, loss: str) -> bool:
    """True if a statement changes nothing but ``loss``."""
    if isinstance(statement, ir.Expression):
        return isinstance(statement.value, ir.Call)
    if isinstance(statement, ir.AugAssign):
        return dotted(statement.target) == loss
    if isinstance(statement, ir.Assign):
        return [dotted(target) for target in statement.targets] == [loss]
    return False
