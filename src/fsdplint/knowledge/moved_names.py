"""Names of torch.distributed that moved or were removed, with the releases.

Source: the wheels of torch 2.4 to 2.15, read; each path was imported on 2.6, 2.13 and 2.15. Names
that were gone by 2.6, in an unknown release, are listed with 2.6.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.knowledge.names import COMPOSABLE_FSDP as _OLD_FSDP
from fsdplint.knowledge.names import DISTRIBUTED as _DIST
from fsdplint.knowledge.names import FSDP_PACKAGE as _FSDP
from fsdplint.knowledge.names import TENSOR as _TENSOR
from fsdplint.knowledge.torch_range import EARLIEST, Release

_OLD_TENSOR = f"{_DIST}._tensor"
_WRAPPER = f"{_DIST}.algorithms._checkpoint.checkpoint_wrapper"


@dataclass(frozen=True, slots=True)
class Moved:
    """A module or a name that some releases lack.

    Attributes:
        gone: the first release that is known to lack it.
        new: the name with the same content, "" if there is none.
        since: the first release that has ``new``.
        instead: why there is no fix and what to do by hand, if there is no ``new``.
    """

    old: str
    gone: Release
    new: str = ""
    since: Release = EARLIEST
    instead: str = ""


# FSDP1's composable form.
COMPOSABLE = f"{_DIST}._composable.fully_shard"
GONE: tuple[Moved, ...] = (
    Moved(
        COMPOSABLE,
        (2, 6, 0),
        instead="it was FSDP1's composable API; port the code by hand to FSDP2's "
        "`torch.distributed.fsdp.fully_shard`, which takes other arguments",
    ),
    Moved(f"{_OLD_FSDP}._fsdp_api", (2, 6, 0), f"{_FSDP}._fully_shard._fsdp_api", (2, 6, 0)),
    Moved(f"{_OLD_FSDP}._fsdp_param", (2, 6, 0), f"{_FSDP}._fully_shard._fsdp_param", (2, 6, 0)),
    Moved(f"{_OLD_FSDP}._fsdp_state", (2, 6, 0), f"{_FSDP}._fully_shard._fsdp_state", (2, 6, 0)),
    Moved(
        f"{_OLD_FSDP}._fsdp_param_group",
        (2, 6, 0),
        f"{_FSDP}._fully_shard._fsdp_param_group",
        (2, 6, 0),
    ),
    Moved(f"{_OLD_FSDP}._fsdp_common", (2, 6, 0), f"{_FSDP}._fully_shard._fsdp_common", (2, 6, 0)),
    Moved(
        f"{_OLD_FSDP}._fsdp_collectives",
        (2, 6, 0),
        f"{_FSDP}._fully_shard._fsdp_collectives",
        (2, 6, 0),
    ),
    Moved(f"{_OLD_FSDP}._fsdp_init", (2, 6, 0), f"{_FSDP}._fully_shard._fsdp_init", (2, 6, 0)),
    Moved(f"{_OLD_TENSOR}.debug", (2, 5, 0), f"{_TENSOR}.debug", (2, 5, 0)),
    Moved(f"{_OLD_TENSOR}.random", (2, 5, 0), f"{_TENSOR}._random", (2, 5, 0)),
    Moved(f"{_OLD_TENSOR}.ops", (2, 5, 0), f"{_TENSOR}._ops", (2, 5, 0)),
    Moved(f"{_OLD_TENSOR}._collective_utils", (2, 5, 0), f"{_TENSOR}._collective_utils", (2, 5, 0)),
    Moved(
        f"{_OLD_TENSOR}.experimental.attention",
        (2, 6, 0),
        f"{_TENSOR}.experimental._attention",
        (2, 6, 0),
    ),
    Moved(f"{_OLD_TENSOR}._Partial", (2, 6, 0), f"{_TENSOR}.Partial", (2, 6, 0)),
    Moved(f"{_OLD_TENSOR}.placement_types._Partial", (2, 6, 0), f"{_TENSOR}.Partial", (2, 6, 0)),
    Moved(
        f"{_TENSOR}.parallel.PairwiseParallel",
        (2, 6, 0),
        instead="it has no replacement; use `ColwiseParallel` and `RowwiseParallel` by hand",
    ),
    Moved(
        f"{_TENSOR}.parallel.make_input_replicate_1d",
        (2, 6, 0),
        instead="it has no replacement; pass `input_layouts` to the style by hand",
    ),
    Moved(
        f"{_TENSOR}.parallel.make_output_tensor",
        (2, 6, 0),
        instead="it has no replacement; pass `output_layouts` to the style by hand",
    ),
    Moved(
        f"{_DIST}._spmd",
        (2, 5, 0),
        instead="this prototype was removed without replacement; rewrite the code by hand",
    ),
    Moved(
        f"{_DIST}.pipeline.sync",
        (2, 6, 0),
        instead="`torch.distributed.pipelining` replaces it, with another API; port it by hand",
    ),
    Moved(
        f"{_DIST}.pipelining.ManualPipelineStage",
        (2, 6, 0),
        instead="`PipelineStage` replaces it with other arguments; port the code by hand",
    ),
    Moved(
        f"{_DIST}.checkpoint.fsspec",
        (2, 6, 0),
        f"{_DIST}.checkpoint._fsspec_filesystem",
        (2, 6, 0),
    ),
    Moved(
        f"{_DIST}.checkpoint.state_dict.DistributedStateDictOptions",
        (2, 6, 0),
        f"{_DIST}.checkpoint.state_dict.StateDictOptions",
        (2, 6, 0),
    ),
    Moved(
        f"{_DIST}.checkpoint.state_dict.load_state_dict",
        (2, 6, 0),
        instead="`set_state_dict` replaces it with other arguments; port the call by hand",
    ),
    Moved(
        f"{_WRAPPER}.apply_activation_checkpointing_wrapper",
        (2, 6, 0),
        f"{_WRAPPER}.apply_activation_checkpointing",
        (2, 6, 0),
    ),
    Moved(f"{_FSDP}.flat_param", (2, 6, 0), f"{_FSDP}._flat_param", (2, 6, 0)),
    Moved(
        f"{_FSDP}.flatten_params_wrapper",
        (2, 6, 0),
        instead="FSDP1 has no such wrapper any more; rewrite the code by hand",
    ),
    Moved(
        f"{_FSDP}.ShardedGradScaler",
        (2, 6, 0),
        f"{_FSDP}.sharded_grad_scaler.ShardedGradScaler",
        (2, 6, 0),
    ),
    Moved(
        f"{_FSDP}.wrap.default_auto_wrap_policy",
        (2, 6, 0),
        f"{_FSDP}.wrap.size_based_auto_wrap_policy",
        (2, 6, 0),
    ),
    Moved(
        f"{_FSDP}.wrap.ParamExecOrderWrapPolicy",
        (2, 6, 0),
        instead="this prototype was removed without replacement; choose another policy by hand",
    ),
    Moved(
        "torch.nn.parallel.FullyShardedDataParallel",
        (2, 6, 0),
        f"{_FSDP}.FullyShardedDataParallel",
        (2, 6, 0),
    ),
)

# The module of a name in the releases that do not have it here yet.
BEFORE: dict[str, str] = {
    **dict.fromkeys(
        (
            f"{_FSDP}.fully_shard",
            f"{_FSDP}.FSDPModule",
            f"{_FSDP}.MixedPrecisionPolicy",
            f"{_FSDP}.OffloadPolicy",
            f"{_FSDP}.CPUOffloadPolicy",
            f"{_FSDP}.register_fsdp_forward_method",
        ),
        _OLD_FSDP,
    ),
    **dict.fromkeys(
        (
            f"{_TENSOR}.DTensor",
            f"{_TENSOR}.Shard",
            f"{_TENSOR}.Replicate",
            f"{_TENSOR}.distribute_tensor",
            f"{_TENSOR}.distribute_module",
        ),
        _OLD_TENSOR,
    ),
}


def moved(name: str) -> Moved | None:
    """Return what is known of an imported name that is, or is inside, a removed one."""
    return next((m for m in GONE if name == m.old or name.startswith(m.old + ".")), None)
