"""What is left of FSDP1 in a program after the migration."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.names import FSDP1
from fsdplint.migrate.fsdp2.accelerate import still_apart
from fsdplint.migrate.parameter_uses import parameter_uses
from fsdplint.migrate.rules import findings_of, within
from fsdplint.migrate.step import Change, Context, Found, Kept
from fsdplint.migrate.unreached import unreached

_NAMES = (FSDP1, FSDP1.rpartition(".")[2])
# Mistakes of the program that no step corrects, by their rules.
_AS_BEFORE = {
    "collective-under-rank-guard": "only some ranks get there, and the job hangs, as under FSDP1",
    "optimizer-state-saved-raw": "it saves or loads one rank's part of the optimizer's state, as "
    "under FSDP1",
}
_LONG = 60
_DERIVED = (
    "FSDP2 shards a model in place and has no wrapper to derive from; move the methods to the "
    "model's class and shard it with `fully_shard`"
)


def leftovers(context: Context) -> Iterator[Found]:
    """Yield each use of FSDP1's class, each text that is its name, and models prepared alone.

    What stays wrong as it was is said.
    """
    yield from still_apart(context)
    yield from within(unreached)(context)
    yield from within(parameter_uses)(context)
    for rule, reason in _AS_BEFORE.items():
        for finding in findings_of(rule, context):
            code = Code.of(context.program.tree(finding.span.path))
            text = " ".join(code.text[finding.span.start : finding.span.end].split())
            text = text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."
            yield Change(finding.span, f"keep `{text}`", (), differs=reason)
    for code in context.codes("FullyShardedDataParallel", "FSDP"):
        for node in ir.walk(code.module):
            named = isinstance(node, ir.Constant) and node.value in _NAMES
            if named or (
                isinstance(node, (ir.Name, ir.Attribute)) and context.name(code, node) == FSDP1
            ):
                statement = code.statement(node)
                derived = isinstance(statement, ir.ClassDef) and node in statement.bases
                reason = _DERIVED if derived else "no step knows how to change this use; change it"
                text = f"`{code.short(statement)}`"
                yield Kept(code.span(node), text, f"{reason} by hand")
