"""What gives a module its weights, and what leaves them as they are."""

from __future__ import annotations

from fsdplint.knowledge.calls import COMPILE, INERT_METHODS, STATE_HELPERS
from fsdplint.knowledge.checkpoints import LOAD, LOAD_STATE_DICT, SET_MODEL_STATE, SET_STATE
from fsdplint.knowledge.collectives import CLIP_GRAD_NORM, PARALLELIZE_MODULE
from fsdplint.knowledge.modules import AVERAGED_MODEL
from fsdplint.knowledge.names import (
    COMPOSABLE_CHECKPOINT,
    FSDP1,
    FULLY_SHARD,
    REGISTER_FORWARD,
    is_optimizer,
)

# Calls that set the seed PyTorch's initialisers draw by; the last two leave it to the caller.
SEEDS = frozenset(
    {
        "torch.manual_seed",
        "transformers.set_seed",
        "transformers.trainer_utils.set_seed",
        "accelerate.utils.set_seed",
        "lightning.seed_everything",
        "lightning.fabric.seed_everything",
        "pytorch_lightning.seed_everything",
        "torch.random.fork_rng",
        "torch.set_rng_state",
    }
)

# Contexts besides `torch.device("meta")` in which modules are built without storage.
META_CONTEXTS = frozenset(
    {
        "accelerate.init_empty_weights",
        "accelerate.big_modeling.init_empty_weights",
        "accelerate.utils.init_empty_weights",
    }
)

# Methods of a module, its parts and its parameters that give no parameter a value. Any other
# method, and one of unknown code, may.
_KEEPING_METHODS = frozenset(
    {
        "__init__",
        "add_module",
        "append",
        "bfloat16",
        "buffers",
        "children",
        "compile",
        "cpu",
        "cuda",
        "detach",
        "dim",
        "double",
        "element_size",
        "enable_input_require_grads",
        "eval",
        "extend",
        "extra_repr",
        "float",
        "forward",
        "get_input_embeddings",
        "get_output_embeddings",
        "get_parameter",
        "get_submodule",
        "gradient_checkpointing_disable",
        "gradient_checkpointing_enable",
        "half",
        "is_contiguous",
        "items",
        "keys",
        "modules",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "ndimension",
        "no_sync",
        "num_parameters",
        "numel",
        "parameters",
        "print_trainable_parameters",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
        "register_post_accumulate_grad_hook",
        "requires_grad_",
        "reshard",
        "resize_token_embeddings",  # each rank draws the new rows itself
        "size",
        "tie_weights",
        "to",
        "to_empty",
        "train",
        "type",
        "unshard",
        "values",
        "xpu",
        "zero_grad",
    }
)
# The same for functions: what measures, wraps, shards or prints.
_KEEPING_CALLS = frozenset(
    {
        FULLY_SHARD,
        FSDP1,
        REGISTER_FORWARD,
        "copy.copy",
        "copy.deepcopy",
        "dataclasses.dataclass",
        "functools.partial",
        "itertools.chain",
        COMPILE,
        COMPOSABLE_CHECKPOINT,
        "torch.distributed._composable.replicate",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.offload_wrapper",
        PARALLELIZE_MODULE,
        "torch.nn.parallel.DistributedDataParallel",
        CLIP_GRAD_NORM,
        AVERAGED_MODEL,
        "typing.cast",
        "wandb.watch",
    }
)
_KEEPING_PACKAGES = frozenset({"builtins", "logging", "tqdm", "typing", "warnings", "collections"})


def keeps_weights(name: str) -> bool:
    """Whether a method (``name`` without a dot) or a function leaves all parameters' values alone.

    ``setattr`` and stores do not, nor does anything that is not known.
    """
    if "." not in name:
        setter = name.startswith("set_") and name in INERT_METHODS - {"set_extra_state"}
        return setter or name in _KEEPING_METHODS
    if name == "builtins.setattr":
        return False
    package = name.split(".")[0]
    return name in _KEEPING_CALLS or package in _KEEPING_PACKAGES or is_optimizer(name)


# Loads that set parameters and persistent buffers, and nothing else.
LOADS_STATE = frozenset(
    {
        "load_state_dict",
        LOAD,
        LOAD_STATE_DICT,
        SET_MODEL_STATE,
        SET_STATE,
    }
)
READS_STATE = frozenset(STATE_HELPERS) | {"state_dict"}


# What draws weights at random: by a rank's own seed they differ still.
_DRAWING_METHODS = frozenset(
    {
        "apply",
        "init_weights",
        "normal_",
        "post_init",
        "reset_parameters",
        "trunc_normal_",
        "uniform_",
        "zero_",
        "fill_",
        "ones_",
    }
)


# What gives every rank the weights of one of them, although it is called for another reason.
SPREADS_WEIGHTS = frozenset(
    {
        PARALLELIZE_MODULE,
        "torch.distributed.tensor.distribute_module",
        "torch.distributed.tensor.distribute_tensor",
    }
)


def draws_weights(name: str) -> bool:
    """Whether a call gives parameters values by the seed of the process, or constants."""
    return name in _DRAWING_METHODS or name.startswith("torch.nn.init.")


# Layers that draw their weights when they are built; others start from ones, zeros or nothing.
DRAWN_LAYERS = frozenset(
    f"torch.nn.{name}"
    for name in (
        "Bilinear",
        "Conv1d",
        "Conv2d",
        "Conv3d",
        "ConvTranspose1d",
        "ConvTranspose2d",
        "ConvTranspose3d",
        "Embedding",
        "EmbeddingBag",
        "GRU",
        "LSTM",
        "Linear",
        "MultiheadAttention",
        "RNN",
        "Transformer",
        "TransformerDecoder",
        "TransformerDecoderLayer",
        "TransformerEncoder",
        "TransformerEncoderLayer",
    )
)
