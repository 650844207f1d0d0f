"""Averages over the dataset of what a rank sums up over its part of it."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.samplers import distributed_samplers, drawn_from
from fsdplint.engine.facts.training_loops import Training, trainings
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.migrate.step import Change, Context, Found

_WHAT = "divide by the number of samples of this rank, which it sums up over"


def averages(context: Context) -> Iterator[Found]:
    """Yield a change for each sum over a rank's batches divided by the size of the dataset."""
    program = context.program
    found: dict[ir.Node, Change] = {}
    for trace in program.traces:
        samplers = {made for _, made in distributed_samplers(trace)}
        for training in trainings(program, trace):
            if drawn_from(training.loader)[0] in samplers:
                for change, node in _divisions(context, training):
                    found[node] = change
    yield from found.values()


def _divisions(context: Context, training: Training) -> Iterator[tuple[Change, ir.Node]]:
    loop, path = training.body.node, training.body.path
    if path not in context.files or not isinstance(loop, ir.For):
        return
    code = Code.of(context.program.tree(path))
    inside = [node for each in loop.body for node in ir.walk(each)]
    sums = {dotted(node.target) for node in inside if isinstance(node, ir.AugAssign)}
    sizes = _sizes(code, training, loop)
    for node in code.nodes_of(code.scope(loop)):
        above, below = _division(node)
        text = None if below is None else code.slice(below)
        if above is None or below is None or sums.isdisjoint(map(dotted, ir.walk(above))):
            continue
        if text in sizes:
            edit = code.edit(below.start, below.end, f"len({sizes[text]}.sampler)")
            yield Change(code.span(below), _WHAT, (edit,)), below


def _sizes(code: Code, training: Training, loop: ir.For) -> dict[str, str]:
    """Return the expressions for the size of the dataset, with the loader's name."""
    names = [name for name in map(dotted, ir.walk(loop.iterable)) if name is not None]
    sizes = {f"len({name}.dataset)": name for name in names}
    made = training.loader.site
    given = argument_of(made.node, 0, "dataset") if isinstance(made.node, ir.Call) else None
    statement = code.statement(made.node) if made.path == code.path else None
    if given is not None and isinstance(statement, ir.Assign):
        loader = dotted(statement.targets[0])
        if loader in names and code.scope(statement) is code.scope(loop):
            sizes[f"len({code.slice(given.value)})"] = loader or ""
    return sizes


def _division(node: ir.Node) -> tuple[ir.Expr | None, ir.Expr | None]:
    if isinstance(node, ir.BinOp) and node.op == "Divide":
        return node.left, node.right
    if isinstance(node, ir.AugAssign) and node.op.startswith("Divide"):
        return node.target, node.value
    return None, None
