"""All blocks stay gathered from the forward to the backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import on_every_path
from fsdplint.engine.facts.loops import loops
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.values import Const
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.fixes.arguments import drop_argument
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.suspicious_words import means_pipeline
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD404",
    summary="every block stays gathered from forward to backward",
    severity=Severity.NOTE,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it is a choice between memory and communication.",
)


def kept_blocks(program: Program) -> Iterator[tuple[Shard, Shard]]:
    """Blocks that stay gathered from forward to backward, with the call on the model around."""
    kept = on_every_path(
        (shard.call, (trace, shard) if _keeps(shard) else None)
        for trace in program.traces
        for shard in trace.of(Shard)
    )
    for trace, shard in kept:
        one = shard.generation is Generation.FSDP2 and not shard.listed
        if one and shard.module.step == "[]":
            root = _root(trace, shard)
            if root is None or _may_be_stage(program, root):
                continue
            looped = _around(program, shard) - _around(program, root)
            if looped and not any(map(_chooses, looped)):
                yield shard, root


def _around(program: Program, shard: Shard) -> set[ir.Node]:
    """The loops around a call: one that the model's has not runs it for block after block."""
    frames = shard.site.frames()
    return {loop for path, node in frames for loop in loops(program.tree(path), node)}


def _chooses(loop: ir.Node) -> bool:
    """True if a loop may leave blocks out: it is over a slice."""
    nodes = ir.walk(loop.iterable) if isinstance(loop, (ir.For, ir.Clause)) else ()
    return any(
        (isinstance(node, ir.Subscript) and isinstance(node.index, ir.Opaque))
        or (isinstance(node, ir.Call) and ir.last_name(node.func) == "islice")
        for node in nodes
    )


def _may_be_stage(program: Program, root: Shard) -> bool:
    """True if the model may be a stage of a pipeline, whose blocks are often kept on purpose."""
    paths = {path for path, _ in root.site.frames()}
    return any(means_pipeline(program.tree(path).text) for path in paths)


def _keeps(shard: Shard) -> bool:
    value = shard.keywords.get("reshard_after_forward")
    return isinstance(value, Const) and value.value is False


def _root(trace: Trace, block: Shard) -> Shard | None:
    """The call on the model around a block, if blocks are not told apart."""
    if any(guard.progress for guard in block.site.guards):
        return None
    others = [s for s in trace.of(Shard) if s.module is block.module and s is not block]
    roots = [s for s in trace.of(Shard) if s.module in block.module.ancestors()]
    return roots[-1] if roots and not others else None


def reports(program: Program) -> Iterator[Report]:
    for shard, root in kept_blocks(program):
        code = Code.of(program.tree(shard.site.path))
        yield Report(
            program.span(shard.site),
            "`reshard_after_forward=False` on every block keeps all these blocks gathered on every "
            "rank from forward to backward: this takes the memory that sharding saves",
            "stays gathered",
            (program.evidence(root.site, "root of the blocks"),),
            partial(drop_argument, code, shard.call, "reshard_after_forward"),
        )
