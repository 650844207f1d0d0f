"""Programs that shard in ways that are not rewritten: by Lightning, or by other libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.configs.lightning import StrategySettings
from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.lightning_settings import CLI, is_fsdp
from fsdplint.knowledge.moved_names import COMPOSABLE
from fsdplint.migrate.step import Context, Found, Kept, kept

_MODEL = (
    "use `ModelParallelStrategy` by hand: move the model into `configure_model` of the "
    '`LightningModule`, call `fully_shard(block, mesh=self.device_mesh["data_parallel"])` there '
    "for each block and for the model, and remove FSDP1's arguments"
)
# What arguments of `FSDPStrategy` are for `fully_shard`, or for the new strategy.
_ARGUMENTS = {
    "activation_checkpointing": "call `checkpoint_wrapper` on the blocks",
    "activation_checkpointing_policy": "call `checkpoint_wrapper` on the blocks",
    "auto_wrap_policy": "call `fully_shard` on the modules that it wraps",
    "cpu_offload": "pass `offload_policy=CPUOffloadPolicy()` to `fully_shard`",
    "device_mesh": "pass `data_parallel_size` and `tensor_parallel_size` to the strategy",
    "ignored_modules": "pass their parameters as `ignored_params` to `fully_shard`",
    "mixed_precision": "pass `mp_policy=MixedPrecisionPolicy(…)` to `fully_shard`",
    "sharding_strategy": "pass `reshard_after_forward` to `fully_shard`",
    "state_dict_type": "pass `save_distributed_checkpoint` to the strategy",
}
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


def config_files(context: Context) -> Iterator[Found]:
    """Yield each config file that has Lightning use FSDP1, with what to do by hand."""
    by_files = any(True for _ in context.codes(CLI))
    for path, value in context.configs.items():
        ours = by_files or path in context.given
        if ours and isinstance(value, StrategySettings) and is_fsdp(value.kind):
            yield Kept(value.place, f"`{value.name}`", _by_hand(list(value.strategy.given)))


def _by_hand(arguments: list[str]) -> str:
    parts = [f"for `{name}` {_ARGUMENTS[name]}" for name in arguments if name in _ARGUMENTS]
    return "; ".join([_MODEL, *parts])


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
