"""The order in which frameworks call the methods of the classes that users write for them.

Source: Lightning 2.2 to 2.6 (`LightningModule`, hooks in order), torchtune 0.2 to 0.6 (`recipes`).
"""

from __future__ import annotations

# By package and class, the methods that run before all others, in their order.
_FIRST: dict[tuple[str, str], tuple[str, ...]] = {
    ("lightning", "LightningModule"): ("prepare_data", "setup", "configure_model"),
    ("pytorch_lightning", "LightningModule"): ("prepare_data", "setup", "configure_model"),
    ("torchtune", "EvalRecipeInterface"): ("setup",),
    ("torchtune", "FTRecipeInterface"): ("setup",),
}
CALLED_FIRST = frozenset(name for names in _FIRST.values() for name in names)


def called_first(cls: str) -> tuple[str, ...]:
    """Return what a framework calls before all else on an object of a class, by canonical name."""
    package, _, name = cls.partition(".")
    return _FIRST.get((package, name.rpartition(".")[2]), ())
