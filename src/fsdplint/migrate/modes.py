"""Programs in which DDP wraps the model instead of FSDP, or nothing does, by an option."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import NoSync, Sharding, Trace, Unwrap
from fsdplint.engine.program import Program
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import WRAPPED
from fsdplint.knowledge.fsdp import WRAPPERS
from fsdplint.migrate.step import Change, Context, Found


def wraps_by_ddp(context: Context) -> bool:
    """True if the program wraps a model with DDP somewhere."""
    return any(
        isinstance(node, ir.Call) and context.name(code, node.func) in WRAPPERS
        for code in context.codes("DataParallel")
        for node in code.walk("DataParallel", "DDP")
    )


def may_be_ddp(context: Context, trace: Trace, use: Unwrap | NoSync) -> bool:
    """True if a use of FSDP2's model gets DDP's in another mode of the program."""
    shard = unit_of(trace, use.module)
    depends = shard is not None and context.program.sometimes_without(use.site, shard.site)
    return depends and wraps_by_ddp(context)


def may_stay_whole(program: Program, shard: Sharding) -> bool:
    """True if a branch decides whether a model is sharded, such as whether there are ranks."""
    frames = ((program.tree(path), node) for path, node in shard.site.frames())
    above = (each for tree, node in frames for each in tree.ancestors(node))
    return any(isinstance(each, ir.If) and not ir.is_main_guard(each) for each in above)


def unwraps(context: Context) -> Iterator[Found]:
    """Yield a change for each `model.module` that reads the module in DDP's wrapper, too."""
    found = {
        use.site.node: use
        for trace in (*context.program.traces, *context.program.method_traces)
        for use in trace.of(Unwrap)
        if use.name in WRAPPED and may_be_ddp(context, trace, use)
    }
    for node, use in found.items():
        if isinstance(node, ir.Attribute) and use.site.path in context.files:
            code = Code.of(context.program.tree(use.site.path))
            model = code.slice(node.value)
            text = f'getattr({model}, "{node.attr}", {model})'
            edit = code.edit(node.start, node.end, text)
            yield Change(code.span(node), f"read `.{node.attr}` of DDP's wrapper alone", (edit,))
