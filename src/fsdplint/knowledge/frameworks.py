"""Objects of frameworks that shard a model by their settings, and what all ranks call on them.

Source: transformers 4.57 and 5.23 (`trainer.py`, `training_args.py`), trl 1.16, accelerate 1.10 and
1.15 (`accelerator.py`, `state.py`), lightning 2.6 (`fabric/fabric.py`, `pytorch/trainer`, and the
strategies of both).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

from fsdplint.knowledge.collectives import ACCELERATOR_METHODS


@dataclass(frozen=True, slots=True, eq=False)
class Framework:
    """Objects that shard the model that they are given, if their settings say so.

    Attributes:
        classes: the canonical names of their classes.
        setting: the keyword of what says so.
        shards: the methods that shard, which takes all ranks.
        together: the methods that all ranks have to call from then on.
        gathers: those that they have to call where whole states are saved.
        parts: the classes of attributes.
        roles: what methods do to the state of a model: "save" or "load".
        launches: the methods that call their first argument with the object and all the others.
    """

    classes: re.Pattern[str]
    setting: str
    shards: frozenset[str]
    together: frozenset[str]
    gathers: frozenset[str] = frozenset()
    parts: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    launches: frozenset[str] = frozenset()


_ACCELERATE = Framework(
    re.compile(r"accelerate\.(\w+\.)*Accelerator"),
    "fsdp_plugin",
    frozenset({"prepare", "prepare_model"}),
    ACCELERATOR_METHODS,
    roles={"save_state": "save", "save_model": "save", "load_state": "load"},
)
_TRANSFORMERS = Framework(
    re.compile(r"(transformers|trl)\.(\w+\.)*\w*Trainer"),
    "args",
    frozenset({"train"}),
    frozenset({"evaluate", "predict"}),
    frozenset({"save_model", "push_to_hub"}),
    {"accelerator": "accelerate.Accelerator", "args": "transformers.TrainingArguments"},
    {"save_model": "save"},
)
_FABRIC = Framework(
    re.compile(r"(lightning|lightning_fabric)\.(\w+\.)*Fabric"),
    "strategy",
    frozenset({"setup", "setup_module"}),
    frozenset({"save", "load", "barrier", "all_gather", "all_reduce", "clip_gradients"}),
    roles={"save": "save", "load": "load"},
    launches=frozenset({"launch"}),
)
_LIGHTNING = Framework(
    re.compile(r"(pytorch_)?lightning\.(\w+\.)*Trainer"),
    "strategy",
    frozenset({"fit"}),
    frozenset({"validate", "test", "predict", "save_checkpoint"}),
    roles={"save_checkpoint": "save"},
)
_LIGHTNING_MODULE = Framework(
    re.compile(r"(pytorch_)?lightning\.(\w+\.)*LightningModule"),
    "",
    frozenset(),
    frozenset(),
    parts={"trainer": "lightning.pytorch.Trainer"},
)
_FRAMEWORKS = (_ACCELERATE, _TRANSFORMERS, _FABRIC, _LIGHTNING, _LIGHTNING_MODULE)
SHARDING_METHODS = frozenset().union(*(each.shards for each in _FRAMEWORKS))
LAUNCHING_METHODS = frozenset().union(*(each.launches for each in _FRAMEWORKS))


@functools.cache
def framework(cls: str) -> Framework | None:
    """The framework that a class belongs to, by its canonical name."""
    return next((each for each in _FRAMEWORKS if each.classes.fullmatch(cls)), None)


# What says that a framework shards with FSDP, as an object or by a name.
STRATEGY_NAMES = frozenset({"fsdp", "fsdp_cpu_offload"})
_STRATEGIES = (
    r"(lightning|lightning_fabric|pytorch_lightning)\.(\w+\.)*(FSDP|ModelParallel)Strategy"
)
_PLUGINS = r"accelerate\.(\w+\.)*FullyShardedDataParallelPlugin"
_OBJECTS = re.compile(rf"{_STRATEGIES}|{_PLUGINS}")
_PLUGIN_OBJECTS = re.compile(_PLUGINS)
PLUGIN_CLASS = "FullyShardedDataParallelPlugin"
_ARGUMENTS = re.compile(r"(transformers|trl)\.(\w+\.)*\w*(TrainingArguments|Config)")

# Of `TrainingArguments`: `fsdp` is a text or a list with one of these words, or True.
SHARDING_WORDS = frozenset({"full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"})
# Keywords with which a framework stays on the CPU, where it does not shard.
OFF = frozenset({"cpu", "no_cuda", "use_cpu"})
# Keywords of a kind of sharding or of states.
KINDS = frozenset({"sharding_strategy", "reshard_after_forward", "state_dict_type"})
WITHOUT_SHARDING = re.compile(r"NO_SHARD|LOCAL_STATE_DICT", re.IGNORECASE)
# Of accelerate's plugin, and of `fsdp_config`, where "fsdp_" may stand before each.
PLUGIN = "fsdp_plugin"
STATE_TYPE = "state_dict_type"
WHOLE_STATE, SHARDED_STATE = "FULL_STATE_DICT", "SHARDED_STATE_DICT"
# In code that chooses another type later, or has transformers save in another way.
CHANGES_STATE_TYPE = re.compile(
    r"\bset_state_dict_type\b|\.state_dict_type\s*=(?!=)|\btp_plan\b|\bparallelism_config\b"
)
OTHER_BACKENDS = frozenset({"xla", "xla_fsdp_v2"})


def is_strategy(cls: str) -> bool:
    """Whether an object of a class has a framework shard, whatever else it says."""
    return _OBJECTS.fullmatch(cls) is not None


def is_plugin(cls: str) -> bool:
    """Whether a class is accelerate's plugin for FSDP."""
    return _PLUGIN_OBJECTS.fullmatch(cls) is not None


def is_trainer(cls: str) -> bool:
    """Whether a class is transformers' or trl's `Trainer`, which makes an `Accelerator`."""
    return _TRANSFORMERS.classes.fullmatch(cls) is not None


def is_training_arguments(cls: str) -> bool:
    return _ARGUMENTS.fullmatch(cls) is not None


# Whether a file may have a framework shard, by its text.
_PACKAGES = ("lightning", "transformers", "trl")
_SETTINGS = re.compile(
    r"(FSDP|ModelParallel)Strategy\b|[\"']fsdp(_cpu_offload)?[\"']|\bfsdp\s*=\s*[\"'\[T]"
    r"|\bfsdp_config\s*="
    r"|\b(full|hybrid)_shard\b|\bshard_grad_op\b"
)

# Of which each match has one: to look for them takes a tenth of the time.
_PARTS = ("FSDPStrategy", "ModelParallelStrategy", "_shard", "fsdp", "shard_grad_op")


def sets_sharding(text: str) -> bool:
    """Whether a file may hold settings by which a framework shards, or makes such an object."""
    named = any(package in text for package in _PACKAGES) and any(map(text.__contains__, _PARTS))
    return named and _SETTINGS.search(text) is not None


def uses_launcher(text: str) -> bool:
    """Whether a file may use what shards by the settings of its launch."""
    own = "Accelerator" in text and "accelerate" in text
    return own or ("Trainer" in text and ("transformers" in text or "trl" in text))


LAUNCHED_NAMES = frozenset({"Accelerator", "Trainer"})
# What the classes are called that are used as attributes of their packages.
FRAMEWORK_NAMES = frozenset(
    {"FSDPStrategy", "Fabric", "ModelParallelStrategy", "Trainer", "TrainingArguments"}
)


def is_setting(name: str) -> bool:
    """Whether a class, by its canonical name, is of a framework or of the settings of one."""
    found = framework(name)
    own = found is not None and bool(found.setting)
    return own or is_strategy(name) or is_training_arguments(name)
