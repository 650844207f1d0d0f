"""What calls do, as far as the engine cares: which shard, save, gather, return an argument.

Names are canonical (see `names`). A call that is listed nowhere is unknown code: what it was given
may have been changed by it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum

from fsdplint.knowledge import collectives, launch
from fsdplint.knowledge.checkpoints import (
    ASYNC_SAVE,
    GET_MODEL_STATE,
    GET_OPTIMIZER_STATE,
    GET_STATE,
    LOAD,
    LOAD_STATE_DICT,
    SAVE,
    SAVE_STATE_DICT,
    SET_MODEL_STATE,
    SET_OPTIMIZER_STATE,
    SET_STATE,
)
from fsdplint.knowledge.collectives import (
    GRADIENT_HOOKS,
    KEEPS_REPLICAS_EQUAL,
    PARALLELIZE_MODULE,
    TENSOR_COLLECTIVES,
)
from fsdplint.knowledge.fsdp import FSDP1_ARGUMENTS, FSDP1_STATICS, WRAPPERS
from fsdplint.knowledge.modules import (
    ADDS_ADAPTERS,
    AVERAGED_MODEL,
    CHECKPOINTING,
    POLICY_FUNCTIONS,
    TAKES_WEIGHTS,
)
from fsdplint.knowledge.names import COMPOSABLE_CHECKPOINT, FSDP1, FSDP2_MODULE, FULLY_SHARD
from fsdplint.knowledge.policies import BFLOAT16, FULL_PRECISION
from fsdplint.knowledge.scaling import AUTOCASTS
from fsdplint.knowledge.tensors import IN_PLACE


class Generation(Enum):
    """The two ways of PyTorch to shard a model."""

    FSDP1 = "FSDP1"
    FSDP2 = "FSDP2"


SHARDING_CALLS: dict[str, Generation] = {
    FULLY_SHARD: Generation.FSDP2,
    FSDP1: Generation.FSDP1,
}
# What says that a library is to shard.
SHARDING_SETTINGS = frozenset(
    {
        "accelerate.FullyShardedDataParallelPlugin",
        "accelerate.utils.FullyShardedDataParallelPlugin",
        "accelerate.utils.dataclasses.FullyShardedDataParallelPlugin",
    }
)
# The classes of units: FSDP1's wrapper, and what `fully_shard` adds to a module's class.
UNIT_CLASSES: dict[str, Generation] = {
    FSDP1: Generation.FSDP1,
    FSDP2_MODULE: Generation.FSDP2,
}
# What they are called where they are not imported under another name.
SHARDING_NAMES = frozenset(name.rpartition(".")[2] for name in SHARDING_CALLS)
UNIT_NAMES = frozenset(name.rpartition(".")[2] for name in UNIT_CLASSES)
SETTING_NAMES = frozenset(name.rpartition(".")[2] for name in SHARDING_SETTINGS)


# FullyShardedDataParallel's parameters, torch 2.0 to 2.15. Another keyword belongs to another
# version, where it may have named the wrap policy.
FSDP1_KEYWORDS = frozenset({"module", *FSDP1_ARGUMENTS})


@dataclass(frozen=True, slots=True)
class Signature:
    """Where a call takes what: a position and the keyword of the same parameter."""

    position: int
    keyword: str


# Calls that write `value` to `target` as it is; DTensors are written as this rank's slice.
# Proof: rules/sharded-state-saved.md.
PLAIN_WRITES: dict[str, tuple[Signature, Signature]] = {
    "torch.save": (Signature(0, "obj"), Signature(1, "f")),
    "pickle.dump": (Signature(0, "obj"), Signature(1, "file")),
    "cloudpickle.dump": (Signature(0, "obj"), Signature(1, "file")),
    "safetensors.torch.save_file": (Signature(0, "tensors"), Signature(1, "filename")),
}

# Of these, the ones that stop at a DTensor, whose memory they cannot read (safetensors 0.8).
REFUSES_DTENSORS = frozenset({"safetensors.torch.save_file"})

# Calls that give what a file holds, with where they take it from.
PLAIN_READS: dict[str, Signature] = {
    "torch.load": Signature(0, "f"),
    "pickle.load": Signature(0, "file"),
    "safetensors.torch.load_file": Signature(0, "filename"),
    "torch.hub.load_state_dict_from_url": Signature(0, "url"),
    "torch.utils.model_zoo.load_url": Signature(0, "url"),
}

# Of these, the ones whose files hold no DTensor.
READS_NO_DTENSORS = frozenset({"safetensors.torch.load_file"})

# Their arguments that say where the contents are put, and not which.
PLACEMENT = frozenset({"device", "map_location"})

# Calls whose result is the very object that they are given, at this place. Source: torch 2.13.
RETURNS_THE_SAME: dict[str, int] = {
    FULLY_SHARD: 0,
    PARALLELIZE_MODULE: 0,
    "typing.cast": 1,
}

COMPILE = "torch.compile"
SCRIPT = "torch.jit.script"
# What holds the module that it was given.
COMPILED = "_orig_mod"
# Calls whose result is (for identity, sharding and parameters) the given argument.
RETURNS_ARGUMENT: dict[str, int] = {
    COMPILE: 0,
    SCRIPT: 0,
    PARALLELIZE_MODULE: 0,
    "torch.distributed.tensor.distribute_module": 0,
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper": 0,
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.offload_wrapper": 0,
    COMPOSABLE_CHECKPOINT: 0,
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": 0,
    "torch.nn.parallel.DistributedDataParallel": 0,
    "torch.nn.DataParallel": 0,
    "typing.cast": 1,
    "copy.copy": 0,
}

# Joint preparation re-points an optimizer at the parameters it shards (accelerate, Fabric).
REPOINTING_METHODS = frozenset({"prepare", "prepare_optimizer", "setup", "setup_optimizers"})
REPOINTING_CALLS = frozenset(
    {
        "accelerate.Accelerator.prepare",
        "lightning.Fabric.setup",
        "lightning.fabric.Fabric.setup",
        "deepspeed.initialize",
        "megatron_fsdp.fully_shard",
        "megatron_fsdp.fully_shard_optimizer",
    }
)

# Calls that copy a module deeply, with the keyword of what they copy, and the attribute of the
# result that holds the copy, "" if it is the copy itself.
COPIES_MODULE: dict[str, tuple[str, str]] = {
    "copy.deepcopy": ("x", ""),
    AVERAGED_MODEL: ("model", "module"),
}

# Methods after which a unit's parameters are, or may be, no shards.
GATHERING_METHODS = frozenset({"unshard", "reshard"})

AUTOGRAD_BACKWARD = "torch.autograd.backward"
BACKWARDS = ("backward", AUTOGRAD_BACKWARD)
# Methods of an FSDP2 root since torch 2.15: with the first called, a program calls the second after
# each backward.
MANUAL_FINALIZATION = "set_manual_backward_finalization"
FINALIZE = "finalize_backward"

# Calls that make another program of a module, their first argument. All of them fail on one that is
# sharded with FSDP2 (torch 2.13; `torch.onnx.export` exports as `torch.export` does).
EXPORTS = (
    "torch.export.export",
    SCRIPT,
    "torch.jit.trace",
    "torch.onnx.export",
)

# Calls that rules or readers of the training program look for, with the role that `inspect` shows;
# "" for those that are no line of its own there.
WATCHED_CALLS: dict[str, str] = {
    **dict.fromkeys(sorted(collectives.CALLS), ""),
    **dict.fromkeys(sorted(launch.CALLS), ""),
    **dict.fromkeys((launch.INIT_DEVICE_MESH, launch.DEVICE_MESH), "mesh"),
    SAVE: "save",
    ASYNC_SAVE: "save",
    LOAD: "load",
    SAVE_STATE_DICT: "save",
    LOAD_STATE_DICT: "load",
    GET_MODEL_STATE: "state",
    GET_OPTIMIZER_STATE: "state",
    GET_STATE: "state",
    SET_MODEL_STATE: "load",
    SET_OPTIMIZER_STATE: "load",
    SET_STATE: "load",
    **dict.fromkeys(
        (*REPOINTING_CALLS, *KEEPS_REPLICAS_EQUAL, *TENSOR_COLLECTIVES, *TAKES_WEIGHTS), ""
    ),
    **dict.fromkeys(ADDS_ADAPTERS, ""),
    **dict.fromkeys((*FSDP1_STATICS, *WRAPPERS), ""),
    **dict.fromkeys((*COPIES_MODULE, *EXPORTS), ""),
    launch.TORCH_DEVICE: "",
    launch.NEW_GROUP: "",
    **dict.fromkeys(POLICY_FUNCTIONS, ""),
    AUTOGRAD_BACKWARD: "backward",
    **dict.fromkeys(AUTOCASTS, ""),
    CHECKPOINTING: "",
    **dict.fromkeys(collectives.CLIPPING, "clip"),
    collectives.GET_TOTAL_NORM: "",
    PARALLELIZE_MODULE: "",
    "torch.utils.data.DataLoader": "",
    "torch.utils.data.DistributedSampler": "",
    "torch.utils.data.random_split": "",
    "torch.manual_seed": "",
    "torch.random.fork_rng": "",
    "torch.set_rng_state": "",
    "transformers.set_seed": "",
    "transformers.trainer_utils.set_seed": "",
    "accelerate.utils.set_seed": "",
    "lightning.seed_everything": "",
    "lightning.fabric.seed_everything": "",
    "pytorch_lightning.seed_everything": "",
}
# The same for methods, by their name alone.
WATCHED_METHODS: dict[str, str] = {
    **dict.fromkeys(sorted(collectives.METHODS), ""),
    **dict.fromkeys(sorted(launch.METHODS), ""),
    **dict.fromkeys((*launch.OF_ONE_DIMENSION, launch.FLATTEN), ""),
    "step": "step",
    "backward": "backward",
    "zero_grad": "zero_grad",
    "load_state_dict": "load",
    "state_dict": "state",
    "clip_grad_norm_": "clip",
    "summon_full_params": "",
    "state_dict_type": "",
    "save_pretrained": "save",
    "prepare_model": "",
    "unwrap_model": "",
    **dict.fromkeys(
        (*REPOINTING_METHODS, *GRADIENT_HOOKS, *GATHERING_METHODS, "requires_grad_"), ""
    ),
    "set_requires_gradient_sync": "",
    "set_requires_all_reduce": "",
    MANUAL_FINALIZATION: "",
    "set_reshard_after_forward": "",
    "reshard": "",
    "unshard": "",
    "to_empty": "",
    "resize_token_embeddings": "",
    **dict.fromkeys(sorted(IN_PLACE), ""),
    "set_epoch": "",
    "iterate": "",
    "next batch": "",
}

# Methods that change the dtype of a module, noted for modules only. The value is the dtype,
# None where an argument says so.
CASTS: dict[str, str | None] = {
    "half": "torch.float16",
    "bfloat16": BFLOAT16,
    "float": FULL_PRECISION,
    "double": "torch.float64",
    "to": None,
    "type": None,
}

# Of these, the ones that take or give the state of a model or an optimizer, or change it.
STATE_CALLS = frozenset(
    {
        "step",
        "zero_grad",
        "state_dict",
        "load_state_dict",
        SAVE,
        ASYNC_SAVE,
        LOAD,
        SAVE_STATE_DICT,
        LOAD_STATE_DICT,
        GET_MODEL_STATE,
        GET_OPTIMIZER_STATE,
        GET_STATE,
    }
)

ACTIVATION_CHECKPOINT = "torch.utils.checkpoint.checkpoint"
# `checkpoint(function, *args)` calls its first argument.
CALLS_FIRST_ARGUMENT = frozenset(
    {
        ACTIVATION_CHECKPOINT,
        "torch.utils.checkpoint.CheckpointFunction.apply",
        "deepspeed.checkpointing.checkpoint",
    }
)

# torch.distributed.checkpoint.state_dict: sharded DTensors unless options say full_state_dict=True.
# The value is the position of the optimizer argument, or None where only the model's state is read.
STATE_HELPERS: dict[str, int | None] = {
    GET_MODEL_STATE: None,
    GET_OPTIMIZER_STATE: 1,
    GET_STATE: 1,
}

# Calls that have every unit reshard, by hooks of `state_dict` and `load_state_dict` (torch 2.13).
RESHARDS = frozenset(
    {
        SET_MODEL_STATE,
        SET_STATE,
    }
)

# Methods of a DTensor that give a DTensor again, and dict methods or functions that copy one.
KEEPS_SHARDED = frozenset(
    {
        "cpu",
        "cuda",
        "to",
        "detach",
        "clone",
        "contiguous",
        "float",
        "half",
        "bfloat16",
        "requires_grad_",
    }
)
# Those of them that surely share the memory.
KEEPS_MEMORY = frozenset({"detach", "requires_grad_"})
COPIES_CONTAINER = frozenset(
    {
        "builtins.dict",
        "builtins.list",
        "builtins.tuple",
        "collections.OrderedDict",
        "copy.copy",
        "copy.deepcopy",
        "copy",
    }
)

# Results that differ between ranks. Methods of a device mesh and a process group included.
RANK_CALLS = frozenset(
    {
        launch.GET_RANK,
        launch.GET_NODE_LOCAL_RANK,
        "torch.distributed.get_group_rank",
        "torch.distributed.get_global_rank",
        "torch.cuda.current_device",
        "accelerate.utils.is_main_process",
    }
)
RANK_ATTRIBUTES = frozenset(
    {
        "rank",
        "local_rank",
        "global_rank",
        "node_rank",
        "get_rank",
        "get_local_rank",
        "get_coordinate",
        "process_index",
        "local_process_index",
        "is_main_process",
        "is_local_main_process",
        "is_global_zero",
        "is_world_process_zero",
        "is_rank_zero",
        "is_rank0",
        "is_master",
        "master_process",
        "main_process",
    }
)
RANK_VARIABLES = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "NODE_RANK",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "OMPI_COMM_WORLD_RANK",
    }
)

# What holds wherever sharding runs at all.
PRESUMED: dict[str, bool] = {
    "torch.distributed.is_available": True,
    launch.IS_UP: True,
    "torch.distributed.is_torchelastic_launched": True,
}

# nn.Module methods that return the module itself, or that neither shard nor replace parameters.
RETURNS_SELF = frozenset(
    {
        "to",
        "cuda",
        "cpu",
        "train",
        "eval",
        "half",
        "float",
        "double",
        "bfloat16",
        "type",
        "to_empty",
        "requires_grad_",
        "share_memory",
        "xpu",
        "npu",
    }
)
INERT_METHODS = frozenset(
    {
        "step",
        "backward",
        "zero_grad",
        "load_state_dict",
        "clip_grad_norm_",
        "register_buffer",
        "register_parameter",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "compile",
        "buffers",
        "named_buffers",
        "init_weights",
        "reset_parameters",
        "gradient_checkpointing_enable",
        "gradient_checkpointing_disable",
        "enable_input_require_grads",
        "resize_token_embeddings",
        "tie_weights",
        "get_input_embeddings",
        "get_output_embeddings",
        "set_requires_gradient_sync",
        "set_requires_all_reduce",
        MANUAL_FINALIZATION,
        FINALIZE,
        "set_reshard_after_forward",
        "set_reshard_after_backward",
        "set_modules_to_forward_prefetch",
        "set_modules_to_backward_prefetch",
        "set_is_last_backward",
        "set_unshard_in_backward",
        "set_post_optim_event",
        "set_all_reduce_hook",
        "set_custom_all_gather",
        "set_custom_reduce_scatter",
        "set_allocate_memory_from_process_group_for_comm",
        "set_force_sum_reduction_for_comms",
        "set_separate_reduce_scatter_group",
        "set_symm_mem_for_comm",
        "set_reduce_scatter_max_input_buffers",
        "set_reduce_scatter_unused_params",
        "reset_iter_state",
        "set_gradient_divide_factor",
        "set_reduce_scatter_divide_factor",
        "unshard",
        "reshard",
        "print_trainable_parameters",
        "num_parameters",
        "save_pretrained",
        "extra_repr",
        "add_module",
        "set_extra_state",
        "get_extra_state",
    }
)
# Views of a module: iterating them gives submodules, the first two with the module itself.
SUBMODULE_VIEWS = frozenset({"modules", "named_modules", "children", "named_children"})
PARAMETER_VIEWS = frozenset({"parameters", "named_parameters"})

# Packages that never shard what they are given, like the standard library; all of torch but the
# calls above is such code.
HARMLESS_PACKAGES = frozenset(
    {
        "torch",
        "numpy",
        "tqdm",
        "wandb",
        "transformers",
        "datasets",
        "tokenizers",
        "peft",
        "torchvision",
        "torchaudio",
        "torchinfo",
        "torchsummary",
        "fvcore",
        "thop",
        "safetensors",
        "einops",
        "loguru",
        "rich",
        "timm",
        "pytest",
        "huggingface_hub",
        "evaluate",
        "psutil",
    }
)
# Such functions of packages that also have others. Source: accelerate 1.15 (development).
_HARMLESS = frozenset({"accelerate.utils.fsdp_utils.get_parameters_from_modules"})


def is_harmless(name: str) -> bool:
    """Whether code of a library, by canonical name, never shards or re-points what it is given."""
    package = name.split(".")[0]
    known = package in HARMLESS_PACKAGES or package in sys.stdlib_module_names
    return known or name in _HARMLESS


# FSDP1 surface that an FSDP2 module lacks (torch 2.4 to 2.15): AttributeError.
WRAPPED = frozenset({"module", "_fsdp_wrapped_module"})
FLAT_PARAMETER = frozenset({"_handle"})
ABSENT_FROM_FSDP2 = frozenset(
    {
        "no_sync",
        "clip_grad_norm_",
        "summon_full_params",
        "state_dict_type",
        *FLAT_PARAMETER,
        *WRAPPED,
    }
)

# Methods that every FSDP2 module has, whatever the release (torch 2.4 to 2.15).
METHODS_OF_FSDP2 = frozenset(
    {
        "reshard",
        "set_is_last_backward",
        "set_requires_all_reduce",
        "set_requires_gradient_sync",
        "set_reshard_after_backward",
        "unshard",
    }
)
