"""The kinds of PyTorch's training objects, by the base class that ``isinstance`` is asked about.

Source: torch 2.0 to 2.15, `optim/`, `nn/modules/`, `utils/data/`. No class of torch has two. Every
class of transformers 5.23, diffusers 0.42 and peft 0.21 that a pattern matches was asked.
"""

from __future__ import annotations

import functools
import re

from fsdplint.knowledge.data import DATA_LOADERS
from fsdplint.knowledge.names import MODULE, NN, OPTIM, OPTIMIZER, is_optimizer, is_schedule

SCHEDULE = f"{OPTIM}.lr_scheduler.LRScheduler"
DATA_LOADER = "torch.utils.data.DataLoader"
_SCHEDULES = frozenset({SCHEDULE, f"{OPTIM}.lr_scheduler._LRScheduler"})
# Classes in torch.nn that are no modules.
_NO_MODULES = frozenset(
    {
        "Parameter",
        "Buffer",
        "UninitializedParameter",
        "UninitializedBuffer",
        "LinearCrossEntropyOptions",
    }
)
# Modules in torch.nn that derive from others in it (torch 2.13): those that fix some of the
# arguments, and kinds of recurrent ones. `Lazy…` do too, and turn into what they derive from.
_DERIVED = frozenset(
    {
        *("GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell", "NLLLoss2d", "ReLU6"),
        *("UpsamplingBilinear2d", "UpsamplingNearest2d"),
        *("ZeroPad1d", "ZeroPad2d", "ZeroPad3d"),
    }
)
# `SyncBatchNorm.convert_sync_batchnorm` puts others in the place of these.
_REPLACED = frozenset({"BatchNorm1d", "BatchNorm2d", "BatchNorm3d"})
# Model classes of other libraries, by package; an `AutoModel` is what makes one.
_MODELS = {
    "transformers": re.compile(r"(?!TF|Flax|DataCollator)\w*?(Model|For(?!Rope$)[A-Z]\w+)"),
    "diffusers": re.compile(r"(?!Flax|EMA|Onnx)\w+Model"),
    "peft": re.compile(r"Peft\w*Model\w*"),
}


@functools.cache
def kind_of(name: str) -> str | None:
    """Return the base class that makes the kind of a class, by canonical name; None if unknown."""
    package, _, attribute = name.rpartition(".")
    if name == OPTIMIZER or is_optimizer(name):
        return OPTIMIZER
    if name in _SCHEDULES or is_schedule(name):
        return SCHEDULE
    if name in DATA_LOADERS:
        return DATA_LOADER
    if package == NN and attribute[:1].isupper() and attribute not in _NO_MODULES:
        return MODULE
    models = _MODELS.get(name.split(".")[0])
    return MODULE if models is not None and models.fullmatch(attribute) else None


@functools.cache
def is_plain_layer(name: str) -> bool:
    """Whether a class is a module of torch.nn of which no other class there is a base.

    Its objects are of this one class of torch.nn, and stay so.
    """
    package, _, attribute = name.rpartition(".")
    other = attribute.startswith("Lazy") or attribute in _DERIVED | _REPLACED
    return package == NN and kind_of(name) == MODULE and not other


def asked_kind(name: str) -> str | None:
    """Return the kind that a class stands for as a whole; None if only some of the kind are it."""
    if name in _SCHEDULES:
        return SCHEDULE
    return name if name in (MODULE, OPTIMIZER, DATA_LOADER) else None
