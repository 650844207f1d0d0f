"""What Lightning's strategies for FSDP take, and what a trainer with one of them refuses.

The table is measured: `scripts/lightning_settings.py` has each release make its strategies and
shard a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fsdplint.knowledge.accelerate_settings import Settings, read
from fsdplint.knowledge.torch_range import TorchRange

_TABLE = Path(__file__).with_name("lightning_settings.csv")

# The strategies, as the table numbers them. Those of the Trainer come first, then Fabric's.
FSDP, MODEL_PARALLEL = 1, 2
_FABRIC = 2
PARALLEL_STRATEGY = "ModelParallelStrategy"
_NAMES = {"FSDPStrategy": FSDP, PARALLEL_STRATEGY: MODEL_PARALLEL}
NAMES = {number: name for name, number in _NAMES.items()}
_STRATEGY = re.compile(
    r"(?:lightning|lightning_fabric|pytorch_lightning)\.(?:\w+\.)*(FSDP|ModelParallel)Strategy"
)
_TRAINER = re.compile(r"(?:pytorch_)?lightning\.(?:\w+\.)*Trainer")
_FABRIC_OBJECT = re.compile(r"(?:lightning|lightning_fabric)\.(?:\w+\.)*Fabric")
_MODULE = re.compile(r"torch\.nn\.(?:modules\.(?:\w+\.)?)?[A-Z]\w*")
# Distributions that hold Lightning.
PACKAGES = ("lightning", "pytorch-lightning", "lightning-fabric")
# What is in each file that names one.
STRATEGY_NAMES = tuple(_NAMES)
OWNER_NAMES = ("Trainer", "Fabric")

# Names of the table that are no arguments of a strategy, see the script.
CLIP, PRECISIONS, WORDS = "(clip)", "(precision)", "(word)"
# Arguments of the strategies.
POLICY, CHECKPOINTING_POLICY = "auto_wrap_policy", "activation_checkpointing_policy"
STATES, SHARDING, MESH = "state_dict_type", "sharding_strategy", "device_mesh"
PREFETCH, MIXED_PRECISION, TIMEOUT = "backward_prefetch", "mixed_precision", "timeout"
DATA_SIZE, TENSOR_SIZE = "data_parallel_size", "tensor_parallel_size"
# Arguments of `Trainer`.
CLIP_VALUE, CLIP_ALGORITHM, BY_NORM = "gradient_clip_val", "gradient_clip_algorithm", "norm"
# What has a trainer accumulate gradients: an argument, or a callback.
ACCUMULATES, ACCUMULATOR = "accumulate_grad_batches", "GradientAccumulationScheduler"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Values of an argument that `ModelParallelStrategy` does not support.

    Attributes:
        words: matches the source of such a value.
        text: why, and what to do by hand.
    """

    words: str
    text: str


# Arguments of `Trainer` and `Fabric`. Source: `setup` of the strategies, Lightning 2.6.
UNSUPPORTED = {
    "plugins": Unsupported(
        "Precision", f"`{PARALLEL_STRATEGY}` takes no plugin for FSDP; pass `precision` by hand"
    ),
    "sync_batchnorm": Unsupported(
        "",
        f"`{PARALLEL_STRATEGY}` ignores it; call `torch.nn.SyncBatchNorm.convert_sync_batchnorm` "
        "by hand",
    ),
}
# The module and the name of an enumeration that a strategy hands on to FSDP.
BACKWARD_PREFETCH = ("torch.distributed.fsdp", "BackwardPrefetch")
# A module with this method clips by itself, and one with one of these shards by itself.
CLIPS = "configure_gradient_clipping"
WRAPS = re.compile(
    r"\bconfigure_(?:sharded_)?model\b|\bwrap\(|\bFullyShardedDataParallel\b|\bfully_shard\b"
)
MODULE = "LightningModule"
# The method in which it may.
CONFIGURES = "configure_model"
# The method that a trainer calls before each batch.
STARTS_BATCH = "on_train_batch_start"
# What reads files for a trainer.
CLI = "LightningCLI"

# The first release with `ModelParallelStrategy`.
PARALLEL_SINCE = (2, 3)
# Arguments that both strategies take.
OF_BOTH = ("process_group_backend", TIMEOUT)
SAVES_SHARDS = "save_distributed_checkpoint"
FULL = "32-true"
# The names that a trainer gives precisions, and what it takes for the same.
PRECISIONS_BY_NAME = {
    "32": FULL,
    "16": "16-mixed",
    "bf16": "bf16-mixed",
}
# The dtype of computation and of reduction that a precision gives FSDP1.
DTYPES = {
    FULL: "",
    "bf16-mixed": "bfloat16",
    "bf16-true": "bfloat16",
    "16-true": "float16",
}
# Methods of a `Fabric`, and of a model that it has set up.
SETS_UP, SETS_UP_MODULE, SETS_UP_OPTIMIZERS = "setup", "setup_module", "setup_optimizers"
MARKS = "mark_forward_method"
# The methods of a module that a trainer calls through the hooks of FSDP1.
STEPS = ("training_step", "validation_step", "test_step", "predict_step")
_LIGHTNING_MODULE = re.compile(rf"(?:pytorch_)?lightning\.(?:\w+\.)*{MODULE}")

# What users call an argument that has another name.
OTHER_NAMES = {
    "activation_checkpoint_policy": CHECKPOINTING_POLICY,
    "fsdp_auto_wrap_policy": POLICY,
    "offload_params": "cpu_offload",
    "wrap_policy": POLICY,
}
# Why an argument has no place in a strategy.
NEEDLESS = {
    "device_id": "Lightning passes it by itself",
    "module": "Lightning passes it by itself",
    "reshard_after_forward": f"`{SHARDING}` decides that for FSDP1",
}


def kind_of(cls: str) -> int:
    """Return the number of a strategy by its canonical name, 0 if it is none of Lightning's."""
    if _STRATEGY.fullmatch(cls) is None:
        return 0
    number = _NAMES[cls.rpartition(".")[2]]
    return number + _FABRIC if "fabric" in cls else number


def kind_of_word(word: str, is_trainer: bool) -> int:
    """Return the number of the strategy that a word chooses, 0 if it is another kind."""
    number = FSDP if is_trainer else FSDP + _FABRIC
    return number if word in settings()[-1].takes(WORDS, number) else 0


def is_module(name: str) -> bool:
    """Return whether a canonical name is that of a module's class in PyTorch."""
    return _MODULE.fullmatch(name) is not None


def is_fsdp(kind: int) -> bool:
    """Return whether a strategy is one for FSDP1."""
    return kind in (FSDP, FSDP + _FABRIC)


def is_trainer(cls: str) -> bool:
    """Return whether a class is Lightning's `Trainer`."""
    return _TRAINER.fullmatch(cls) is not None


def is_owner(cls: str) -> bool:
    """Return whether a class takes a strategy."""
    return is_trainer(cls) or _FABRIC_OBJECT.fullmatch(cls) is not None


def is_lightning_module(cls: str) -> bool:
    """Return whether a class is Lightning's `LightningModule`."""
    return _LIGHTNING_MODULE.fullmatch(cls) is not None


def package_of(cls: str) -> str:
    """Return the package that a strategy, a trainer or a `Fabric` is part of."""
    first, _, rest = cls.partition(".")
    if first != "lightning":
        return first
    return "lightning.fabric" if "fabric" in rest.lower() else "lightning.pytorch"


@cache
def settings() -> tuple[Settings, ...]:
    """Return what each release does, the oldest first."""
    return read(_TABLE)


def admitted(admits: Callable[[str], TorchRange | None]) -> tuple[Settings, ...]:
    """Return what the releases do that requirements admit: the newest if they say nothing.

    There are none if they admit only releases that were not measured.
    """
    found = next((each for name in PACKAGES if (each := admits(name)) is not None), None)
    if found is None:
        return settings()[-1:]
    return tuple(each for each in settings() if found.overlaps(*each.releases))
