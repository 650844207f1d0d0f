"""The settings of FSDP in axolotl's files: what has an effect, and when.

The table is measured: `scripts/axolotl_settings.py` has each release read a file and notes with
what FSDP is called. `fsdp_` in front of a name counts in the first releases, so both are there.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fsdplint.knowledge.accelerate_settings import Settings, read
from fsdplint.knowledge.torch_range import TorchRange

_TABLE = Path(__file__).with_name("axolotl_settings.csv")

PACKAGE = "axolotl"
SECTION = "fsdp_config"
FINAL_BESIDE = "fsdp_final_state_dict_type"
FINAL, STATES = "final_state_dict_type", "state_dict_type"
POLICY, CLASSES, SIZE = "auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params"
STRATEGY = "sharding_strategy"
GRADIENT_CHECKPOINTING = "gradient_checkpointing"
OTHER_CHECKPOINTING = ("activation_offloading", "layer_offloading")
# What decides where nothing is turned on, and what each file has.
DEEPSPEED = "deepspeed"
MODEL = "base_model"
REQUIRED = frozenset(
    {
        "dataset_prepared_path",
        "evals_per_epoch",
        "flash_attention",
        "micro_batch_size",
        "num_epochs",
        "pad_to_sequence_len",
        "sample_packing",
        "sequence_len",
        "val_set_size",
    }
)
# Before this release, trainers for `rl` get no arguments of FSDP, only the environment, which is
# not measured. Source: `core/builders/rl.py`.
RL, RL_AS_OTHERS = "rl", (0, 12)
# Names of the table that are no settings, see the script.
DEFAULT, VERSION_COUNTS, VERSION_SHARDS = "(default)", "(version)", "(version alone)"
SECTION_SHARDS, LIST_SHARDS, TEXT = "(section)", "(list)", "(text)"
STRATEGY_BY_WORD, BESIDE, FINAL_COUNTS = "(strategy)", "(beside)", "(final)"
BOTH_CHECKPOINTINGS, SIZE_ALONE, CLASSES_LISTED = "(checkpointing)", "(size)", "(classes)"

# What users call a setting that axolotl has under another name.
OTHER_NAMES = {
    "cpu_offload": "offload_params",
    "transformer_cls_names_to_wrap": CLASSES,
    "transformer_layer_cls": CLASSES,
}
PRECISION = frozenset({"mixed_precision", "mixed_precision_policy"})
# Done anyway, in every release: all-gathers are limited, and with FSDP2 parameters are broadcast
# from rank 0, kept as they are, and prefetched in the backward.
DONE = frozenset({"limit_all_gathers"})
DONE_WITH_2 = frozenset({"backward_prefetch", "sync_module_states", "use_orig_params"})


@cache
def settings() -> tuple[Settings, ...]:
    """Return the settings of each release, the oldest first."""
    return read(_TABLE)


def admitted(found: TorchRange | None) -> tuple[Settings, ...]:
    """Return what the releases do that requirements admit: the newest if they say nothing."""
    if found is None:
        return settings()[-1:]
    return tuple(each for each in settings() if found.overlaps(*each.releases))
