"""The settings in `fsdp_config` of transformers' `TrainingArguments`: what has an effect, and when.

The table is measured: `scripts/transformers_settings.py` has each release make its arguments and
notes with what FSDP is called. Names have no `fsdp_` in front here, which transformers takes away.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fsdplint.knowledge.accelerate_settings import Settings, read
from fsdplint.knowledge.torch_range import TorchRange

_TABLE = Path(__file__).with_name("transformers_settings.csv")

VERSION = "version"
POLICY = "auto_wrap_policy"
CLASSES = "transformer_layer_cls_to_wrap"
SIZE = "min_num_params"
RESHARD = "reshard_after_forward"
OFFLOAD = "cpu_offload"

CHECKPOINTING = "activation_checkpointing"
# Training arguments that a `Trainer` refuses beside settings of FSDP, in each release of the table:
# measured in 13 minor releases from 4.40 to 5.24. The first two are one argument in 5.24.
CHECKPOINTS = ("gradient_checkpointing", "activation_checkpointing")
ONLY_MODEL = "save_only_model"
LOADS_BEST = "load_best_model_at_end"

# Of the environment that `accelerate launch` sets, where `fsdp` is not given.
WITHOUT_FSDP = 0
# Names of the table that are no settings, see the script.
ARGUMENT = "fsdp"
_DEFAULT, STRATEGY_BY_WORD, WRAPS_WITHOUT_WORD, BOTH = "(default)", "(strategy)", "(wrap)", "(both)"
_STRIPS, REFUSES_IN_LIST = "(prefix)", "(list)"

# The first releases in which `version`, and `state_dict_type`, have an effect: see the table.
VERSION_SINCE, STATES_SINCE = (5, 0), (5, 10)

# What accelerate calls a setting that transformers has under another name.
OTHER_NAMES: Mapping[str, str] = {
    "backward_prefetch_policy": "backward_prefetch",
    "fsdp_version": VERSION,
    "offload_params": OFFLOAD,
    "transformer_cls_names_to_wrap": CLASSES,
}
# Settings for PyTorch/XLA, which shards in another way.
XLA = frozenset({"xla", "xla_fsdp_v2"})
# The words of `fsdp` that choose a strategy, source: accelerate 1.15, `FSDP_SHARDING_STRATEGY`.
STRATEGY_WORDS = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
# The word that wraps blocks.
AUTO_WRAP = "auto_wrap"


@cache
def settings() -> tuple[Settings, ...]:
    """Return the settings of each release, the oldest first."""
    return read(_TABLE)


def strips_prefix(release: Settings) -> bool:
    """Return whether a release takes `fsdp_` away from names that are not in a JSON file."""
    return release.has_effect(_STRIPS, 1)


def default_version(release: Settings) -> int:
    """Return the version of FSDP that a release uses if none is given."""
    return 2 if release.has_effect(_DEFAULT, 2) else 1


def accepts(release: Settings, words: tuple[str, ...], version: int) -> bool:
    """Return whether a release takes a text of these words as `fsdp`."""
    takes = release.takes(ARGUMENT, version)
    known = {word for value in takes for word in value.split("+")}
    if len(words) == 1:
        return words[0] in takes
    pairs = ((one, other) for index, one in enumerate(words) for other in words[index + 1 :])
    return known.issuperset(words) and all(a == b or f"{a}+{b}" in takes for a, b in pairs)


def admitted(found: TorchRange | None) -> tuple[Settings, ...]:
    """Return what the releases do that requirements admit: the newest if they say nothing.

    There are none if they admit only releases that were not measured.
    """
    if found is None:
        return settings()[-1:]
    return tuple(each for each in settings() if found.overlaps(*each.releases))
