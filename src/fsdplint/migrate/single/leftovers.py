"""What keeps a program on one GPU after the migration."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.knowledge.ddp import CLASS, DATA_PARALLEL, REPLICATE
from fsdplint.knowledge.launch import INIT
from fsdplint.knowledge.names import FULLY_SHARD
from fsdplint.migrate.changed_in_forward import changed_in_forward
from fsdplint.migrate.copies import mixed
from fsdplint.migrate.parameter_uses import parameter_uses
from fsdplint.migrate.reshards import left_open
from fsdplint.migrate.rules import within
from fsdplint.migrate.single.own_choices import own_choices
from fsdplint.migrate.states import untaken
from fsdplint.migrate.step import Context, Found, Kept

_SHARD = FULLY_SHARD.rpartition(".")[2]


def leftovers(context: Context) -> Iterator[Found]:
    """Yield what still needs one GPU, and what a sharded model breaks."""
    reached = {shard.call for trace in context.program.traces for shard in trace.of(Shard)}
    shards = any(True for _ in context.codes(_SHARD))
    for code in context.codes("DataParallel", "replicate", _SHARD, "init_process_group"):
        for node in ir.walk(code.module):
            if not isinstance(node, ir.Call):
                continue
            span, text = code.span(node), f"`{code.short(node)}`"
            name = context.name(code, node.func)
            if name in (DATA_PARALLEL, REPLICATE):
                yield Kept(span, text, "it would copy a sharded model to other GPUs; remove it")
            elif name == CLASS:
                yield Kept(span, text, "the program trains with DDP; run `fsdplint migrate ddp`")
            elif name == INIT and not shards:
                reason = "the program starts ranks already; shard its model by hand"
                yield Kept(span, text, reason)
            if ir.last_name(node.func) == _SHARD and node not in reached:
                reason = "no analyzed path leads here, so the code around it is not adapted"
                yield Kept(span, text, f"{reason}; migrate it by hand")
    yield from within(mixed)(context)
    yield from within(parameter_uses)(context)
    yield from within(left_open)(context)
    yield from changed_in_forward(context)
    yield from own_choices(context)
    yield from untaken(context)
