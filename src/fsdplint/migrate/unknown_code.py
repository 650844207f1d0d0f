"""What the analysis does not see of a model that is to be sharded, and of its optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import BuildOptimizer, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Span
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import Generation
from fsdplint.migrate.helpers import SHARD_BY_POLICY
from fsdplint.migrate.step import Context, Found, Kept, kept

_MODEL = (
    "this code is not known, and may do with the model what only a whole one allows; replace the "
    "call by hand, or call it before the model is sharded"
)
_OPTIMIZER = (
    "this code is not known, and may replace the model or the optimizer before the model is "
    "sharded; build the optimizer below the sharding, without this call, by hand"
)


def unknown_code(context: Context) -> Iterator[Found]:
    """Yield calls of unknown code on what is sharded, and entries that are not read to the end.

    Code that makes the groups of an optimizer only sorts the parameters.
    """
    program = context.program
    found: dict[Site, str] = {}
    for trace in program.traces:
        shards = [each for each in trace.of(Shard) if each.generation is Generation.FSDP2]
        models = {part for s in shards for part in (s.module, *s.module.ancestors())}
        last = max((each.time for each in shards), default=0)
        for escape in trace.escapes:
            if escape.time > last and not models.isdisjoint(escape.objects):
                if _makes_groups(program, trace, escape.site):
                    continue
                found[escape.site] = _MODEL
            elif escape.time < last and any(item.captures for item in escape.objects):
                found[escape.site] = _OPTIMIZER
    for site, why in found.items():
        code = Code.of(program.tree(site.path))
        function = code.function(site.node)
        if function is None or function.name != SHARD_BY_POLICY:
            yield kept(code, site.node, why)
    for path in sorted(context.files):
        for stop in program.project.stopped_early(path):
            reason = f"the analysis of it ended early ({stop.reason}); migrate it by hand"
            yield Kept(Span(path, 0, 0), f"`{stop.entry}`", reason)


def _makes_groups(program: Program, trace: Trace, site: Site) -> bool:
    tree = program.tree(site.path)
    statement = tree.statement(site.node)
    built = {b.site.node for b in trace.of(BuildOptimizer) if b.site.path == site.path}
    if isinstance(statement, ir.Assign):
        names = {tree.slice(target) for target in statement.targets}
        given = (arg.value for b in built if isinstance(b, ir.Call) for arg in b.args)
        if any(tree.slice(each) in names for each in given if isinstance(each, ir.Name)):
            return True
    return not built.isdisjoint(ir.walk(statement))
