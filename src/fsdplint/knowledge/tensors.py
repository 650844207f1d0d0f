"""What operations leave of a DTensor that is divided over ranks, measured on torch 2.13.

A reduction gives every rank the reduction of its own shard, marked as partial. What is not listed
here combines the parts first (most arithmetic, comparisons, `std`), is an error, or is not known.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fsdplint.knowledge.torch_range import EVERY_RELEASE, UNBOUNDED, Release, TorchRange

# Functions and methods that give a shard of a shard, element by element; reshaping as far as it
# leaves the first dimension divided.
ELEMENTWISE = frozenset(
    {
        "abs",
        "square",
        "pow",
        "sqrt",
        "log",
        "exp",
        "neg",
        "mul",
        "div",
        "add",
        "sub",
        "isnan",
        "isinf",
        "isfinite",
        "eq",
        "ne",
        "gt",
        "ge",
        "lt",
        "le",
        "logical_not",
        "logical_and",
        "logical_or",
        "clamp",
        "detach",
        "clone",
        "float",
        "double",
        "half",
        "bfloat16",
        "to",
        "cpu",
        "cuda",
        "contiguous",
        "view",
        "reshape",
        "flatten",
    }
)

STACK = "torch.stack"
# Functions of a tensor whose result is none, apart from those that ask for its form.
GIVES_NO_TENSOR = frozenset({"torch.save", "torch.equal", "torch.allclose", "torch.load"})

TENSOR = "torch.Tensor"
# Functions whose result is a tensor of its own, no module's.
MAKES_TENSOR = frozenset(
    f"torch.{name}"
    for name in (
        *("arange", "empty", "eye", "from_numpy", "full", "linspace", "ones", "outer"),
        *("rand", "randint", "randn", "randperm", "tensor", "tril", "triu", "zeros"),
    )
)
# Names of what makes tensors DTensors that are no parameters, or has them go with plain tensors.
MAKES_DTENSORS: tuple[str, ...] = (
    "DTensor",
    "distribute_tensor",
    "distribute_module",
    "implicit_replication",
    "parallelize_module",
)
# Functions that draw random numbers begin with one of these.
DRAWS = ("random.", "numpy.random.", "torch.rand", "torch.bernoulli", "torch.multinomial")
# Those of Python and numpy, by what seeds them.
SEEDED = {"random.": "random.seed", "numpy.random.": "numpy.random.seed"}
# Methods whose result depends on the elements of a tensor; code that branches on it reads them.
READS_DATA = frozenset(
    {"all", "any", "item", "max", "min", "nonzero", "numel", "sum", "tolist", "unique"}
)

FOREACH_NORM = "torch._foreach_norm"

# Methods that set the values of a tensor.
IN_PLACE = frozenset(
    {"copy_", "zero_", "fill_", "mul_", "div_", "add_", "sub_", "normal_", "uniform_", "lerp_"}
)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction to one number.

    Attributes:
        kind: how the parts would have to be combined.
        options: its positional parameters but the tensor; one more asks for a dimension.
    """

    kind: str
    options: int = 0


REDUCTIONS: dict[str, Reduction] = {
    "norm": Reduction("norm", 1),
    "vector_norm": Reduction("norm", 1),
    "sum": Reduction("sum"),
    "nansum": Reduction("sum"),
    "count_nonzero": Reduction("sum"),
    "mean": Reduction("mean"),
    "max": Reduction("max"),
    "amax": Reduction("max"),
    "min": Reduction("min"),
    "amin": Reduction("min"),
    "any": Reduction("any"),
    "all": Reduction("all"),
}
REDUCING_FUNCTIONS: dict[str, Reduction] = {
    **{f"torch.{name}": r for name, r in REDUCTIONS.items() if name != "vector_norm"},
    "torch.linalg.norm": REDUCTIONS["norm"],
    "torch.linalg.vector_norm": REDUCTIONS["norm"],
}
ELEMENTWISE_FUNCTIONS = frozenset(f"torch.{name}" for name in ELEMENTWISE)
# Keywords of reductions that leave it one number.
OPTIONS = frozenset({"p", "ord", "dtype"})

# What leaves a partial number partial: views of it, and sums of sums; a norm is combined by both.
VIEWS = frozenset({"detach", "view", "reshape", "flatten", "squeeze", "unsqueeze"})
LINEAR = frozenset({"sum", "mean"})
# From these releases on a DTensor is asked as a whole. Run on 2.13.0, 2.14.1 and 2.15.0.
WHOLE_SINCE: Mapping[str, Release] = {"all": (2, 14, 0), "any": (2, 15, 0)}
IDEMPOTENT = frozenset({"sum", "mean", "max", "min", "any", "all"})

# Methods of a tensor whose result is no shard of it: what it is like, and what gathers it.
NUMBERS = frozenset(
    {
        "dim",
        "element_size",
        "full_tensor",
        "is_contiguous",
        "item",
        "ndimension",
        "nelement",
        "numel",
        "numpy",
        "redistribute",
        "size",
        "stride",
        "to_local",
        "tolist",
    }
)

# Functions that ask a tensor for its number, which a DTensor answers with this rank's part.
READING_FUNCTIONS = frozenset(
    {
        "builtins.float",
        "builtins.int",
        "builtins.bool",
        *(
            f"math.{name}"
            for name in ("sqrt", "isnan", "isinf", "isfinite", "log", "log10", "log2", "exp", "pow")
        ),
    }
)

# Methods whose result is a view of the tensor. `reshape` and `flatten` may copy.
GIVES_VIEW = frozenset(
    {
        "view",
        "view_as",
        "squeeze",
        "unsqueeze",
        "transpose",
        "permute",
        "t",
        "swapaxes",
        "movedim",
        "unflatten",
        "expand",
        "narrow",
        "select",
        "diagonal",
    }
)
# Methods of new tensors that with "_" do the same in place: with the same numbers, shape and dtype
# as long as their other arguments are numbers. Compared on torch 2.13, in fp32 and bf16.
# Most others have no such form (`exponential_`), or one that does something else (`bernoulli_`).
MAKES_NEW = frozenset(
    {
        *("abs", "absolute", "neg", "negative", "sign", "sgn", "square", "sqrt", "rsqrt"),
        *("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide"),
        *("floor_divide", "fmod", "remainder", "pow", "reciprocal", "lerp"),
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logit", "sigmoid"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc"),
        *("ceil", "floor", "round", "trunc", "frac", "clamp", "clamp_min", "clamp_max", "clip"),
        *("relu", "nan_to_num", "masked_fill", "tril", "triu", "cumsum", "cumprod"),
        *("index_add", "index_copy", "index_fill", "scatter", "scatter_add", "renorm"),
    }
)
# Operators that do in place what they do otherwise, if the other operand is a number.
CHANGES_IN_PLACE = frozenset({"+", "-", "*", "/", "//", "%", "**"})
# Methods that end in "_" and leave the numbers and the graph as they are.
CHANGES_NOTHING = frozenset({"requires_grad_", "share_memory_", "rename_"})

# Methods that divide by their first argument, with "_" in place.
DIVISIONS = frozenset({"div", "div_", "true_divide", "true_divide_"})

INFERENCE_MODE = "torch.inference_mode"
# Contexts and decorators under which no gradient is recorded.
NO_GRADIENT = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})
# What has gradients summed or scaled otherwise than by the mean over the ranks.
RESCALES_GRADIENTS = frozenset(
    {
        "set_gradient_divide_factor",
        "set_reduce_scatter_divide_factor",
        "set_force_sum_reduction_for_comms",
        "register_comm_hook",
        "gradient_predivide_factor",
        "gradient_postdivide_factor",
    }
)

_CLIPS_BY_WHOLE: Release = (2, 10, 0)


def clips_by_parts(torch: TorchRange) -> bool:
    """Whether code for these releases is to expect a part of the norm that clipping returns.

    Releases before 2.10 return one (run on 2.6.0). Code that is said to be for any release is
    taken to be for those of today, and so is that of a project whose requirements only say which is
    the oldest: that is seldom the one that is run.
    """
    if torch == EVERY_RELEASE or (torch.source and torch.upper == UNBOUNDED):
        return False
    return torch.overlaps(upper=_CLIPS_BY_WHOLE)


# The dtypes of floating point, each under one of its names; none is equal to any text.
DTYPES: dict[str, str] = {
    **{f"torch.{name}": f"torch.{name}" for name in ("bfloat16", "float16", "float32", "float64")},
    "torch.half": "torch.float16",
    "torch.float": "torch.float32",
    "torch.double": "torch.float64",
}

INFINITIES = frozenset({"math.inf", "torch.inf", "numpy.inf", "numpy.Inf"})

# What a tensor's attributes and methods say of its form, which is alike on all ranks.
DESCRIBES = frozenset(
    {"device", "dtype", "grad_fn", "is_cuda", "layout", "ndim", "requires_grad", "shape"}
)
COUNTS_OF = frozenset({"dim", "nelement", "ndimension", "numel", "size"})
# Methods of a tensor that compute on the numbers of this rank alone.
COMPUTING_METHODS = (
    ELEMENTWISE
    | REDUCTIONS.keys()
    | VIEWS
    | MAKES_NEW
    | {
        *("argmax", "argmin", "bool", "int", "item", "log_softmax", "logsumexp", "long"),
        *("median", "nanmean", "numpy", "prod", "quantile", "softmax", "std", "tolist", "type"),
        *("unbind", "var"),
    }
)
# Functions of a tensor that say where its numbers are numbers.
TESTS_FINITE = frozenset({"torch.isfinite", "torch.isinf", "torch.isnan"})
# The method by which a GradScaler multiplies its argument.
SCALE = "scale"
# Operators on numbers, and tests of numbers, by the names that keys of values have for them.
ARITHMETIC = frozenset(
    {
        *("Add", "Subtract", "Multiply", "Divide", "FloorDivide", "Modulo", "Power"),
        *("BitAnd", "BitOr", "BitXor", ">", "not", "and", "or"),
    }
)
_COMPUTES_ALONE = re.compile(
    r"torch\.\w+|torch\.(nn\.functional|special|linalg)\.\w+|(math|numpy)\.\w+"
    r"|builtins\.(abs|all|any|bool|float|int|max|min|round|sum)"
)
_ASKS_FOR_FORM = re.compile(r"torch\.(is_\w+|numel)")


def computes_alone(name: str) -> bool:
    """Whether a function, by canonical name, computes on the numbers of this rank alone."""
    computes = _COMPUTES_ALONE.fullmatch(name) is not None
    return computes and _ASKS_FOR_FORM.fullmatch(name) is None


_COMBINING = re.compile(r"reduce|gather|sync|average|aggregate|allmean|allsum", re.IGNORECASE)


@functools.cache
def means_combining(name: str) -> bool:
    """Whether the name of a function hints that it combines the numbers of all ranks."""
    return _COMBINING.search(name) is not None


_RECORDING = re.compile(r"log|print|record|append|write|info|warn|debug|scalar|meter|history", re.I)


def only_records(name: str) -> bool:
    """Whether the name of a function hints that it keeps or shows a number and changes nothing."""
    return _RECORDING.search(name) is not None and not means_combining(name)
