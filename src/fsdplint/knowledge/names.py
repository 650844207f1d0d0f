"""Qualified names: the many import paths of one object, brought to the one it is known by.

Source: import paths tried one by one on torch 2.13 and, by reading, in the wheels 2.4 to 2.15.
"""

from __future__ import annotations

import functools

# The position of a parameter that calls give by its keyword.
KEYWORD_ONLY = -1

DISTRIBUTED = "torch.distributed"
TENSOR = "torch.distributed.tensor"
FSDP_PACKAGE = "torch.distributed.fsdp"
# What FSDP2 is imported from up to torch 2.5.
COMPOSABLE_FSDP = "torch.distributed._composable.fsdp"
DEVICE_MESH_PACKAGE = "torch.distributed.device_mesh"
NN = "torch.nn"
OPTIM = "torch.optim"

COMPOSABLE_CHECKPOINT = "torch.distributed._composable.checkpoint"
FULLY_SHARD = "torch.distributed.fsdp.fully_shard"
FSDP1 = "torch.distributed.fsdp.FullyShardedDataParallel"
FSDP1_UNITS = f"{FSDP1}.fsdp_modules"
FSDP2_MODULE = "torch.distributed.fsdp.FSDPModule"
# `fully_shard` refuses parameters in these (torch 2.13).
MEMORY_FORMATS = frozenset({"torch.channels_last", "torch.channels_last_3d"})
REGISTER_FORWARD = "torch.distributed.fsdp.register_fsdp_forward_method"
MODULE = "torch.nn.Module"
DTENSOR = f"{TENSOR}.DTensor"
AUTOGRAD_FUNCTIONS = frozenset({"torch.autograd.Function", "torch.autograd.function.Function"})
OPTIMIZER = "torch.optim.Optimizer"
SGD = "torch.optim.SGD"

# Longest prefix first. `torch.distributed._composable.fully_shard` (up to 2.5) is another function,
# FSDP1's composable form, and is left unknown on purpose.
_SAME_OBJECT: tuple[tuple[str, str], ...] = (
    ("torch.distributed._composable.fsdp.fully_shard.fully_shard", FULLY_SHARD),
    (COMPOSABLE_FSDP, "torch.distributed.fsdp"),
    ("torch.distributed.fsdp._fully_shard._fully_shard", "torch.distributed.fsdp"),
    ("torch.distributed.fsdp._fully_shard._fsdp_api", "torch.distributed.fsdp"),
    ("torch.distributed.fsdp._fully_shard", "torch.distributed.fsdp"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "torch.distributed.fsdp"),
    ("torch.distributed.fsdp.api", "torch.distributed.fsdp"),
    *(
        (f"{package}.{name}", f"{DISTRIBUTED}.{name}")
        for package in (DEVICE_MESH_PACKAGE, TENSOR, "torch.distributed._tensor")
        for name in ("DeviceMesh", "init_device_mesh")
    ),
    ("torch.distributed._tensor.api", "torch.distributed.tensor"),
    ("torch.distributed._tensor.placement_types", "torch.distributed.tensor"),
    ("torch.distributed._tensor", "torch.distributed.tensor"),
    ("torch.distributed.distributed_c10d", "torch.distributed"),
    ("torch.distributed.checkpoint.state_dict_saver", "torch.distributed.checkpoint"),
    ("torch.distributed.checkpoint.state_dict_loader", "torch.distributed.checkpoint"),
    ("torch.nn.modules.container", "torch.nn"),
    ("torch.nn.parallel.DataParallel", "torch.nn.DataParallel"),
    ("torch.nn.parallel.data_parallel.DataParallel", "torch.nn.DataParallel"),
    ("torch.nn.parallel.distributed", "torch.nn.parallel"),
    ("torch.nn.parameter", "torch.nn"),
    ("torch.nn.modules.transformer", "torch.nn"),
    ("torch.nn.modules.module", "torch.nn"),
    ("torch.nn.utils.clip_grad", "torch.nn.utils"),
    ("torch.nn.modules", "torch.nn"),
    ("torch.utils.data.distributed", "torch.utils.data"),
    ("torch.utils.data.dataloader", "torch.utils.data"),
    ("torch.utils.data.dataset", "torch.utils.data"),
    ("torch.random.manual_seed", "torch.manual_seed"),
    ("torch.random.set_rng_state", "torch.set_rng_state"),
    ("torch.optim.adamw", "torch.optim"),
    ("torch.optim.adam", "torch.optim"),
    ("torch.optim.sgd", "torch.optim"),
    ("torch.optim.optimizer", "torch.optim"),
    ("torch.serialization.save", "torch.save"),
)


@functools.cache
def canonical(name: str) -> str:
    """The qualified name an object is known by here, whatever path it was imported from."""
    for prefix, target in _SAME_OBJECT:
        if name == prefix:
            return target
        if name.startswith(prefix + "."):
            return target + name[len(prefix) :]
    return name


def is_optimizer(name: str) -> bool:
    """Whether a canonical name is an optimizer class, one picked from ``torch.optim`` included."""
    package, _, attribute = name.rpartition(".")
    if attribute in ("Optimizer", "lr_scheduler", "swa_utils", "LRScheduler"):
        return False
    if package in _OPTIMIZER_PACKAGES:
        return attribute[:1].isupper() or attribute == "?"
    return name in _OPTIMIZERS


def names_optimizer(name: str) -> bool:
    """Whether a canonical name is an optimizer class, or the one that they all derive from."""
    return is_optimizer(name) or name == OPTIMIZER


def is_schedule(name: str) -> bool:
    """Whether a canonical name is a class that refuses a first argument but an optimizer.

    Source: torch 2.0 to 2.15, `optim/lr_scheduler.py`; `SequentialLR` compares it with that of its
    schedules, and `ChainedScheduler` takes these first.
    """
    package, _, attribute = name.rpartition(".")
    return package == f"{OPTIM}.lr_scheduler" and attribute.endswith(("LR", "Plateau", "Restarts"))


def of_torch(name: str) -> bool:
    """Whether something is PyTorch's, by its canonical name."""
    return name.split(".")[0] == "torch"


def offers_optimizers(package: str) -> bool:
    """Whether some optimizer is known by a name of the top-level ``package``."""
    return any(name.split(".")[0] == package for name in (*_OPTIMIZER_PACKAGES, *_OPTIMIZERS))


_OPTIMIZER_PACKAGES = frozenset(
    {
        OPTIM,
        "bitsandbytes.optim",
        "torchao.optim",
        "torch_optimizer",
        "apex.optimizers",
        "transformer_engine.pytorch.optimizers",
    }
)
_OPTIMIZERS = frozenset(
    {
        "lion_pytorch.Lion",
        "transformers.optimization.AdamW",
        "transformers.AdamW",
        "transformers.Adafactor",
        "transformers.optimization.Adafactor",
    }
)
