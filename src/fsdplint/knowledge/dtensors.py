"""What DTensors that are divided over ranks cannot do, run on two ranks of torch 2.13.

What is not listed here works on them, as far as it is known: other arithmetic, reductions, clipping
of norms, changes in place by numbers and by tensors with the same shards, and most optimizers.
"""

from __future__ import annotations

from fsdplint.knowledge.collectives import C10D_CALLS

# Methods of a tensor that are errors on a DTensor, or that give one rank's address. Flattening is
# an error where the first dimension does not divide by the number of ranks.
WHOLE_METHODS = frozenset({"numpy", "tolist", "unbind", "flatten", "ravel", "data_ptr"})
# Flattening too, by -1 alone.
RESHAPES = frozenset({"view", "reshape"})
# Functions that are errors if one of their arguments is a DTensor, for the same reasons, or that
# print each rank's own shard.
WHOLE_FUNCTIONS = frozenset(
    {
        *("numpy.array", "numpy.asarray", "numpy.linalg.norm", "numpy.save"),
        *("torch.save", "torch.allclose", "torch.flatten", "torch.ravel", "torch.unbind"),
        *("builtins.print", "builtins.repr", "builtins.str"),
    }
)
# Methods of writers for metrics, which take numpy's arrays of what they get.
WRITES_ARRAYS = frozenset({"add_histogram", "add_embedding", "add_image", "add_images"})
# Functions that fail on DTensors, or leave them as they are.
UNSUPPORTED = frozenset(
    {
        *("torch._foreach_copy_", "torch.nn.init.eye_"),
        "torch.nn.utils.parameters_to_vector",
        "torch.nn.utils.vector_to_parameters",
        "torch.nn.utils.convert_parameters.parameters_to_vector",
        "torch.nn.utils.convert_parameters.vector_to_parameters",
        *("torch.func.functional_call", "torch.nn.utils.stateless.functional_call"),
        *("torch.optim.LBFGS", "torch.optim.Rprop", "torch.optim.Adafactor"),
    }
)
COLLECTIVES = frozenset(C10D_CALLS)
# What fills tensors with random numbers. CPU ranks with the same seed draw the same for each shard.
RANDOM_METHODS = frozenset(
    {
        *("normal_", "uniform_", "bernoulli_", "cauchy_", "exponential_", "geometric_"),
        *("log_normal_", "random_"),
    }
)
RANDOM_FUNCTIONS = frozenset(
    f"torch.nn.init.{name}"
    for name in (
        *("normal_", "uniform_", "trunc_normal_", "orthogonal_", "sparse_"),
        *("xavier_normal_", "xavier_uniform_", "kaiming_normal_", "kaiming_uniform_"),
    )
)
# Methods of a module that do so with its parameters.
RESETS = frozenset({"reset_parameters"})
# Hooks of parameters that FSDP2 does not run: it sets the gradients of shards itself.
HOOKS = frozenset({"register_post_accumulate_grad_hook"})
# Products, which take two DTensors or none.
PRODUCTS = frozenset(
    {
        *("MatrixMultiply", "matmul", "mm", "torch.matmul", "torch.mm"),
        *("torch.nn.functional.linear", "torch.addmm", "torch.einsum"),
    }
)
# Operations that take DTensors, or plain tensors of several numbers, but not both.
ARITHMETIC = frozenset(
    {
        *("Add", "Subtract", "Multiply", "Divide", "Power"),
        *("Add=", "Subtract=", "Multiply=", "Divide="),
        *("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "lerp", "lerp_", "copy_"),
        *("addcmul_", "addcdiv_", "torch.add", "torch.sub", "torch.mul", "torch.div"),
        *("torch.lerp", "torch.where", "torch.dist", "torch.nn.functional.mse_loss"),
        *("torch._foreach_add_", "torch._foreach_sub_", "torch._foreach_mul_"),
        *("torch._foreach_lerp_", "torch.nn.functional.cosine_similarity"),
    }
)
COPIES = frozenset({"copy_"})
# What computes gradients of a loss. A DTensor in it gives the gradients of plain tensors DTensors,
# which they do not mix with.
BACKWARD = frozenset({"backward", "scale"})
# What a rank may do alone with DTensors.
LOCAL = frozenset(
    {
        *("numel", "nelement", "size", "dim", "element_size", "stride", "requires_grad_"),
        *("is_floating_point", "is_contiguous", "detach", "append", "add", "get", "extend"),
        *("items", "keys", "values", "update", "torch.numel", "torch.is_tensor"),
        *(
            f"builtins.{name}"
            for name in (
                *("list", "tuple", "dict", "set", "zip", "enumerate", "filter", "map", "next"),
                *("iter", "len", "isinstance", "hasattr", "getattr", "id", "sum"),
            )
        ),
    }
)
# Methods that give the same numbers as another tensor, perhaps elsewhere.
MOVES = frozenset({"detach", "clone", "cpu", "cuda", "to", "float", "double", "contiguous"})
