"""What keeps a program on one GPU after the migration."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.knowledge.ddp import CLASS, DATA_PARALLEL, REPLICATE
from fsdplint.knowledge.launch import INIT
from fsdplint.migrate.changed_in_forward import changed_in_forward
from fsdplint.migrate.copies import mixed
from fsdplint.migrate.parameter_uses import parameter_uses
from fsdplint.migrate.reshards import left_open
from fsdplint.migrate.rules import within
from fsdplint.migrate.single.own_choices import own_choices
from fsdplint.migrate.states import untaken
from fsdplint.migrate.step import Context, Found, Kept
from fsdplint.migrate.unreached import SHARD, unreached


def leftovers(context: Context) -> Iterator[Found]:
    """Yield what still needs one GPU, and what a sharded model breaks."""
    shards = any(True for _ in context.codes(SHARD))
    for code in context.codes("DataParallel", "replicate", "init_process_group"):
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
    yield from unreached(context)
    yield from within(mixed)(context)
    yield from within(parameter_uses)(context)
    yield from within(left_open)(context)
    yield from changed_in_forward(context)
    yield from own_choices(context)
    yield from untaken(context)
