"""Errors of sharded programs that no rule can tell from the code, as data.

Source: the first three were raised with torch 2.13; the fourth is in accelerate 1.15
(`utils/dataclasses.py`), and older releases of Trainer say "class to wrap in the model".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownError:
    """An error with its cause and cure.

    Attributes:
        message: what is raised; ``…`` stands for what varies.
    """

    message: str
    cause: str
    cure: str


_DTYPES = "A unit has parameters of several dtypes, which do not fit into one flat parameter."
_CAST = (
    "Cast the model to one dtype before it is sharded, the adapters and quantized layers too, or "
    "make the parts of another dtype units of their own."
)
_NO_LAYER = "The model has no module of the class that the wrapping policy names."
_NAME_LAYER = (
    "Set `fsdp_transformer_layer_cls_to_wrap` to the class of this model's blocks, as "
    "`print(model)` shows it."
)
ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "KeyError: 'LOCAL_RANK'",
        "The script was started as a single process, by `python`: no launcher set the variable.",
        "Start it with `torchrun --nproc-per-node N SCRIPT`, or read the variable with a default.",
    ),
    KnownError("Must flatten tensors with uniform dtype but got …", _DTYPES, _CAST),
    KnownError(
        "FSDP expects uniform original parameter dtype but got …",
        "A unit has parameters of several dtypes, which are not all-gathered together.",
        _CAST,
    ),
    KnownError(
        "Could not find the transformer layer class … in the model.", _NO_LAYER, _NAME_LAYER
    ),
)
