"""The settings in `fsdp_config` of accelerate's config files: what has an effect, and when.

The table is measured: `scripts/accelerate_settings.py` has each release read config files and
notes with what it calls FSDP. `FIELDS` and `EQUIVALENTS` are compared with accelerate in a test.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Release = tuple[int, int]

_TABLE = Path(__file__).with_name("accelerate_settings.csv")

# Of `fsdp_config` in other places, and of the plugin, where a setting has another name.
OTHER_NAMES: Mapping[str, str] = {
    "fsdp_backward_prefetch_policy": "fsdp_backward_prefetch",
    "fsdp_cpu_offload": "fsdp_offload_params",
    "fsdp_transformer_cls_names_to_wrap": "fsdp_transformer_layer_cls_to_wrap",
}
# Of a config file, source: accelerate 0.26 to 1.15, `ClusterConfig` and `process_config`.
FIELDS = frozenset(
    {
        "command_file",
        "commands",
        "compute_environment",
        "debug",
        "deepspeed_config",
        "distributed_type",
        "downcast_bf16",
        "dynamo_backend",
        "dynamo_config",
        "enable_cpu_affinity",
        "fp16",
        "fp8_config",
        "fsdp_config",
        "gpu_ids",
        "ipex_config",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "main_training_function",
        "megatron_lm_config",
        "mixed_precision",
        "mpirun_config",
        "num_machines",
        "num_processes",
        "parallelism_config",
        "rdzv_backend",
        "same_network",
        "tpu_env",
        "tpu_name",
        "tpu_use_cluster",
        "tpu_use_sudo",
        "tpu_vm",
        "tpu_zone",
        "use_cpu",
    }
)
# In code or options what counts more than the policy of a config file. transformers' `Trainer` sets
# it for models of PEFT, source: transformers 4.57 `trainer.py`, 5.24 `distributed/fsdp.py`.
SETS_WRAP_POLICY = (
    rb"\.auto_wrap_policy\s*=(?!=)|\bfsdp[_-]auto[_-]wrap[_-]policy\b|\bauto_wrap\b"
    rb"|\bFullyShardedDataParallelPlugin\b|\bpeft\b"
)
STRATEGY = "fsdp_sharding_strategy"
POLICY = "fsdp_auto_wrap_policy"
CLASSES = "fsdp_transformer_layer_cls_to_wrap"
SIZE = "fsdp_min_num_params"
PLUGIN_CLASSES = "transformer_cls_names_to_wrap"
SYNC = "fsdp_sync_module_states"
STATES = "fsdp_state_dict_type"
VERSION = "fsdp_version"
PARALLELISM = "parallelism_config"
RAM_EFFICIENT = "fsdp_cpu_ram_efficient_loading"
CHECKPOINTING = "fsdp_activation_checkpointing"
OFFLOAD_ACTIVATIONS = "fsdp_activation_checkpointing_offload"
WRAPS_CLASSES = "TRANSFORMER_BASED_WRAP"
WRAPS_BY_SIZE = "SIZE_BASED_WRAP"
BOOLEANS = frozenset({"TRUE", "FALSE"})

# The strategies of FSDP1, by name and number.
STRATEGIES: Mapping[str, str] = {
    word: name
    for number, name in enumerate(
        ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"), 1
    )
    for word in (name, str(number))
}
# The types of states, by name and number, and that of FSDP2 if none is given.
STATE_TYPES: Mapping[str, str] = {
    word: name
    for number, name in enumerate(("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"), 1)
    for word in (name, str(number))
}
WHOLE_STATES, DEFAULT_STATE_2 = "FULL_STATE_DICT", "SHARDED_STATE_DICT"
# Source: accelerate 1.7 to 1.15, `fsdp2_prepare_auto_wrap_policy`, and a run.
BY_SIZE_WITH_2 = (
    "accelerate has FSDP2 shard every module above the size, also a `ModuleList`, which fails"
)
# What `accelerate to-fsdp2` removes, and the types of states that it may keep.
GONE_WITH_2 = frozenset(
    {
        "fsdp_backward_prefetch",
        "fsdp_forward_prefetch",
        "fsdp_sync_module_states",
        "fsdp_use_orig_params",
    }
)
CONVERTED = frozenset({"FULL_STATE_DICT", "SHARDED_STATE_DICT", "1", "3"})
# Arguments of the plugin that it also takes with FSDP2, and has no use for.
# Source: accelerate 1.15, `fsdp2_prepare_model`.
UNUSED_WITH_2 = frozenset({"limit_all_gathers"})
NO_FSDP2 = (
    "accelerate has FSDP2 since 1.6, and the project admits older releases; require "
    "`accelerate>=1.6`, then migrate again"
)
# What FSDP2 does with the weights of rank 0. Source: accelerate 1.15, `fsdp2_load_full_state_dict`,
# and a run.
NOT_HANDED_OUT = "rank 0's weights are not handed out: all ranks need the same before `prepare`"
BUFFERS_REFUSED = "with `{name}`, which hands out rank 0's weights, persistent buffers fail"
# Source: accelerate 1.15, `set_mixed_precision`; losses of a run differ by 1 %.
PRECISION_WITH_2 = "FSDP2 does not cast buffers, and every unit casts its inputs and outputs"
# Source: accelerate 1.15, `FullyShardedDataParallelPlugin.__post_init__`, and a run.
RESHARD_APPLIES_WITH_2 = (
    "`reshard_after_forward` takes effect, which accelerate ignores with FSDP1: more memory"
)
# Whether FSDP2 reshards where it does what a strategy of FSDP1 does.
RESHARDS: Mapping[str, bool] = {"FULL_SHARD": True, "SHARD_GRAD_OP": False}


@dataclass(frozen=True, slots=True)
class _Row:
    """What releases from ``since`` to before ``until`` do with a setting."""

    since: Release
    until: Release | None
    effect: bool
    takes: frozenset[str]

    def holds(self, release: Release) -> bool:
        return self.since <= release and (self.until is None or release < self.until)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a release of accelerate, or of transformers, does with each setting.

    Attributes:
        release: the release as users name it.
    """

    release: Release
    rows: Mapping[tuple[str, int], tuple[_Row, ...]]

    @property
    def releases(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The first patch release, and that of the next minor release."""
        major, minor = self.release
        return (major, minor, 0), (major, minor + 1, 0)

    def is_known(self, name: str) -> bool:
        """Return whether a setting has an effect with one version of FSDP at least."""
        return self.has_effect(name, 1) or self.has_effect(name, 2)

    def has_effect(self, name: str, version: int) -> bool:
        """Return whether a setting has an effect with a version of FSDP."""
        row = self._row(name, version)
        return row is not None and row.effect

    def takes(self, name: str, version: int) -> frozenset[str]:
        """Return the words that a setting takes, in capitals; none if it takes any."""
        row = self._row(name, version)
        return row.takes if row else frozenset()

    def names(self, version: int) -> list[str]:
        """Return the settings that have an effect with a version of FSDP."""
        return [name for name, of in self.rows if of == version and self.has_effect(name, version)]

    def _row(self, name: str, version: int) -> _Row | None:
        rows = self.rows.get((name, version), ())
        return next((row for row in rows if row.holds(self.release)), None)


def has_fsdp2(releases: Iterable[Settings]) -> bool:
    """Return whether all of these releases have FSDP2."""
    return all(release.has_effect(VERSION, 2) for release in releases)


@cache
def settings() -> tuple[Settings, ...]:
    """Return the settings of each release, the oldest first."""
    return read(_TABLE)


def read(table: Path) -> tuple[Settings, ...]:
    """Return the settings of each release that a table has, the oldest first."""
    with table.open(encoding="utf-8", newline="") as file:
        first, *others = csv.DictReader(file)
    rows: dict[tuple[str, int], tuple[_Row, ...]] = {}
    for row in others:
        until = _release(row["until"]) if row["until"] else None
        takes = frozenset(row["takes"].split())
        made = _Row(_release(row["since"]), until, row["effect"] == "yes", takes)
        key = row["name"], int(row["fsdp_version"])
        rows[key] = (*rows.get(key, ()), made)
    releases = sorted(map(_release, first["takes"].split()))
    return tuple(Settings(release, rows) for release in releases)


def _release(text: str) -> Release:
    major, minor = text.split(".")
    return int(major), int(minor)
