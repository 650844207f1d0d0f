"""The classes of mixed precision and offloading, of FSDP1 and of FSDP2.

Source: torch.distributed.fsdp.api and ._fully_shard._fsdp_api, torch 2.4 to 2.15.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.knowledge.torch_range import Release

MIXED_PRECISION = "torch.distributed.fsdp.MixedPrecision"
MIXED_PRECISION_POLICY = "torch.distributed.fsdp.MixedPrecisionPolicy"
MIXED_PRECISIONS = frozenset({MIXED_PRECISION, MIXED_PRECISION_POLICY})
CPU_OFFLOAD = "torch.distributed.fsdp.CPUOffload"
CPU_OFFLOAD_POLICY = "torch.distributed.fsdp.CPUOffloadPolicy"
OFFLOAD_POLICY = "torch.distributed.fsdp.OffloadPolicy"

# The field of `CPUOffload` that moves parameters; without it nothing is offloaded.
OFFLOAD_PARAMS = "offload_params"

# In the order of the positional arguments.
MIXED_PRECISION_FIELDS = (
    "param_dtype",
    "reduce_dtype",
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_forward_inputs",
    "cast_root_forward_inputs",
    "_module_classes_to_ignore",
)
MIXED_PRECISION_POLICY_FIELDS = (
    "param_dtype",
    "reduce_dtype",
    "output_dtype",
    "cast_forward_inputs",
)
DTYPE_FIELDS = frozenset({"param_dtype", "reduce_dtype", "output_dtype", "buffer_dtype"})

FLOATS = frozenset({"float", "float16", "float32", "float64", "bfloat16", "half", "double"})


@dataclass(frozen=True, slots=True)
class PolicyArgument:
    """An argument of a sharding call that takes a policy.

    Attributes:
        position: where it is taken without its keyword, -1 for nowhere.
        own: the class that it takes.
        foreign: the class of the other FSDP, which is not it.
        ignored: what is no policy is taken for none; if not, it fails.
    """

    generation: str
    keyword: str
    position: int
    own: str
    foreign: str
    ignored: bool = False


ARGUMENTS = (
    PolicyArgument("FSDP2", "mp_policy", -1, MIXED_PRECISION_POLICY, MIXED_PRECISION),
    PolicyArgument("FSDP2", "offload_policy", -1, CPU_OFFLOAD_POLICY, CPU_OFFLOAD, ignored=True),
    PolicyArgument("FSDP1", "mixed_precision", 6, MIXED_PRECISION, MIXED_PRECISION_POLICY),
    PolicyArgument("FSDP1", "cpu_offload", 3, CPU_OFFLOAD, CPU_OFFLOAD_POLICY),
)

FULL_PRECISION = "torch.float32"
BFLOAT16, FLOAT16 = "torch.bfloat16", "torch.float16"
# Layers that raise an error where an input is of another dtype than their weight.
MULTIPLIES = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Linear", "Bilinear", "MultiheadAttention"),
        *("Conv1d", "Conv2d", "Conv3d"),
        *("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    )
)
# Layers whose output has the dtype of their weight, whatever they are given.
STARTS_FLOATS = frozenset({"torch.nn.Embedding", "torch.nn.EmbeddingBag"})
LOW_PRECISIONS = frozenset({BFLOAT16, FLOAT16, "torch.half"})
# Functions and methods whose result has the higher dtype of their operands, as arithmetic has.
PROMOTES = frozenset(
    {
        *("add", "sub", "mul", "div", "lerp", "where", "addcmul", "addcdiv"),
        *("cat", "concat", "concatenate", "stack", "hstack", "vstack"),
    }
)
# The first release in which `fully_shard` copies its `mp_policy`, which raises for other objects.
# Run on 2.14 and 2.15.
COPIES_POLICY: Release = (2, 15, 0)
# The first release in which FSDP2 reduces in the dtype of the parameters where `reduce_dtype` is
# None; before, and in FSDP1, it is that of the computation. Run on 2.13 and 2.15.
REDUCES_BY_PARAMETER: Release = (2, 15, 0)

# FSDP1 with a wrap policy and mixed precision wraps each module of this class apart, in float32.
# Source: `MixedPrecision._module_classes_to_ignore`, torch 2.13.
BATCH_NORM = "torch.nn.modules.batchnorm._BatchNorm"
# A program with such modules has one of these in its text, or gets them from another library.
BATCH_NORM_WORDS = ("BatchNorm", "resnet", "timm.")
