"""Programs that shard with other libraries than PyTorch, which are not rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.moved_names import COMPOSABLE
from fsdplint.migrate.step import Context, Found, Kept, kept

_OTHER_LIBRARIES = {
    "fairscale": "it is fairscale's own FSDP; move the program to PyTorch's FSDP1 first",
    "deepspeed": "it shards with DeepSpeed, not with FSDP1; there is no migration from it",
    "torchtnt": "torchtnt shards the model with FSDP1; call `fully_shard` by hand instead",
}
_LIBRARY_CALLS = re.compile(
    r"(fairscale\..*(FullyShardedDataParallel|auto_wrap|wrap)"
    r"|deepspeed\.(initialize|zero\.Init)"
    r"|torchtnt\..*(FSDPStrategy|prepare_fsdp))"
)
_OF_FSDP = re.compile(r"fsdp|fully_?shard", re.IGNORECASE)


def libraries(context: Context) -> Iterator[Found]:
    """Yield calls that shard with FSDP1's composable form, or with another library.

    A program with FSDP may have DeepSpeed as another choice.
    """
    texts = (code.text for code in context.codes(""))
    has_fsdp = any(_OF_FSDP.search(text) for text in texts)
    for code in context.codes("fairscale", "deepspeed", "torchtnt", "_composable"):
        for node in ir.walk(code.module):
            name = context.name(code, node.func) if isinstance(node, ir.Call) else ""
            library = name.partition(".")[0]
            if name == COMPOSABLE:
                reason = (
                    "it is FSDP1's composable API; call `torch.distributed.fsdp.fully_shard` on "
                    "each block and on the model by hand"
                )
                yield _kept(code, node, reason)
            elif _LIBRARY_CALLS.fullmatch(name) and not (has_fsdp and library == "deepspeed"):
                yield _kept(code, node, _OTHER_LIBRARIES[library])


def _kept(code: Code, node: ir.Node, reason: str) -> Kept:
    return kept(code, node, reason)
