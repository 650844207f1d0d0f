"""What is found in files for axolotl, and what the table of its settings says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.fixes.edits import apply
from fsdplint.knowledge.axolotl_settings import (
    DEFAULT,
    FINAL_BESIDE,
    FINAL_COUNTS,
    OTHER_NAMES,
    SECTION_SHARDS,
    STRATEGY_BY_WORD,
    admitted,
    settings,
)
from fsdplint.knowledge.torch_range import TorchRange
from fsdplint.knowledge.transformers_settings import ARGUMENT
from fsdplint.outcome import Outcome
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import OptIn

NEWEST = settings()[-1]
BASE = "base_model: a/b\nsequence_len: 512\nmicro_batch_size: 1\nnum_epochs: 1\n"
LIST_ON = "fsdp:\n  - full_shard\n  - auto_wrap\n"
RULES = {"FSD951", "FSD952", "FSD953"}


def outcome(folder: Path, files: dict[str, str]) -> Outcome:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in {"model.py": "import torch\n", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="")
    return check([folder], defaults(OptIn(preview=True)))


def found(folder: Path, text: str, others: dict[str, str] | None = None) -> list[tuple[str, str]]:
    """Return the codes of findings in a file for axolotl, each with the text of its place."""
    made = outcome(folder, {"train.yaml": BASE + text, **(others or {})})
    assert not made.failures
    spans = [(each.code, each.span) for each in made.findings if each.code in RULES]
    return [(code, (BASE + text)[span.start : span.end]) for code, span in spans]


FINDINGS = {
    "unknown": (
        "fsdp_config:\n  cpu_offload: true\n  offload_param: yes\n",
        [("FSD951", "cpu_offload: true"), ("FSD951", "offload_param: yes")],
    ),
    "strategies of FSDP1": (
        "fsdp_config:\n  fsdp_sharding_strategy: 2\n  fsdp_backward_prefetch: BACKWARD_POST\n",
        [
            ("FSD951", "fsdp_sharding_strategy: 2"),
            ("FSD951", "fsdp_backward_prefetch: BACKWARD_POST"),
        ],
    ),
    "a strategy in the list": (
        "fsdp: [shard_grad_op, auto_wrap]\nfsdp_config: {offload_params: true}\n",
        [("FSD951", "fsdp: [shard_grad_op, auto_wrap]")],
    ),
    "a size": (
        "fsdp_version: 2\nfsdp_config:\n  min_num_params: 1000\n",
        [("FSD951", "min_num_params: 1000")],
    ),
    "the last state dict": (
        "fsdp_version: 2\nfsdp_final_state_dict_type: SHARDED_STATE_DICT\n"
        "fsdp_config:\n  offload_params: false\n",
        [("FSD951", "fsdp_final_state_dict_type: SHARDED_STATE_DICT")],
    ),
    "beside the section": (
        "fsdp_version: 2\nfsdp_offload_params: true\nfsdp_config:\n  state_dict_type: null\n",
        [("FSD951", "fsdp_offload_params: true")],
    ),
    "precision": (
        "fp16: true\nfsdp_config:\n  mixed_precision_policy: bf16\n",
        [("FSD951", "mixed_precision_policy: bf16")],
    ),
    "a text": (
        "fsdp: full_shard\nfsdp_config:\n  offload_params: true\n",
        [("FSD953", "fsdp: full_shard")],
    ),
    "a list alone": (LIST_ON, [("FSD953", LIST_ON.strip())]),
    "an unknown word": (
        "fsdp: [full]\nfsdp_config:\n  offload_params: true\n",
        [("FSD953", "fsdp: [full]")],
    ),
    "a value": (
        "fsdp_config:\n  fsdp_state_dict_type: sharded\n  reshard_after_forward: false\n",
        [("FSD953", "fsdp_state_dict_type: sharded"), ("FSD953", "reshard_after_forward: false")],
    ),
    "classes": (
        "fsdp_config:\n  transformer_layer_cls_to_wrap:\n    - Block\n",
        [("FSD953", "transformer_layer_cls_to_wrap:\n    - Block")],
    ),
    "checkpointing twice": (
        "gradient_checkpointing: true\nfsdp_config: {fsdp_activation_checkpointing: true}\n",
        [("FSD953", "gradient_checkpointing: true")],
    ),
}


@pytest.mark.parametrize(("text", "expected"), FINDINGS.values(), ids=FINDINGS.keys())
def test_findings(tmp_path: Path, text: str, expected: list[tuple[str, str]]) -> None:
    assert sorted(found(tmp_path, text)) == sorted(expected)


CLEAN = {
    "done anyway": f"{LIST_ON}fsdp_config:\n  fsdp_limit_all_gathers: true\n"
    "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_forward_prefetch: false\n",
    "done with FSDP2": "fsdp_version: 2\nfsdp_config:\n  use_orig_params: true\n"
    "  sync_module_states: true\n  backward_prefetch: BACKWARD_PRE\n",
    "no value": "fsdp_config:\n  mixed_precision:\n  cpu_offload: false\n  offload_params: false\n",
    "a template": "fsdp_config:\n  sharding_strategy: ${strategy}\n  offload_params: true\n",
    "merged": "x: &x\n  a: 1\nfsdp_config:\n  <<: *x\n  cpu_offload: true\n",
    "the same precision": "bf16: auto\nfsdp_config:\n  mixed_precision_policy: bf16\n",
    "the same state dict": "fsdp_final_state_dict_type: FULL_STATE_DICT\n"
    "fsdp_config:\n  state_dict_type: FULL_STATE_DICT\n",
    "a size by size": "fsdp_config:\n  auto_wrap_policy: SIZE_BASED_WRAP\n  min_num_params: 9\n",
    "off": "fsdp:\nfsdp_config:\n",
    "empty": "fsdp: []\nfsdp_config: {}\n",
    "two versions": "fsdp_version: 1\nfsdp_config:\n  version: 2\n  forward_prefetch: true\n",
    "an unknown version": "fsdp_version: 3\nfsdp_config:\n  forward_prefetch: true\n",
    "the same strategy as a word": "fsdp: [shard_grad_op]\nfsdp_version: 2\n"
    "fsdp_config: {sharding_strategy: SHARD_GRAD_OP}\n",
    "the words of FSDP2": "fsdp: [shard_grad_op]\nfsdp_version: 2\nfsdp_config: {version: 2}\n",
    "activations are offloaded": "gradient_checkpointing: true\nactivation_offloading: true\n"
    "fsdp_config:\n  activation_checkpointing: true\n",
    "a version alone": "fsdp_config:\n  version: 2\n",
    "words that YAML reads as bool": "fsdp_config:\n  offload_params: 'yes'\n",
    "no mapping": "fsdp_config: settings.json\n",
}


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN.keys())
def test_clean_files(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


OTHER_FILES = {
    "few keys": "base_model: a\nnum_epochs: 1\nfsdp_config:\n  cpu_offload: true\n",
    "no model": BASE.partition("\n")[2] + "fsdp_config:\n  cpu_offload: true\n",
    "no FSDP": BASE,
    "a list": "- base_model: a\n",
}


@pytest.mark.parametrize("text", OTHER_FILES.values(), ids=OTHER_FILES.keys())
def test_other_files(tmp_path: Path, text: str) -> None:
    assert outcome(tmp_path, {"train.yaml": text}).findings == ()


DROPPED = "fsdp_version: 2\nfsdp_config:\n  cpu_offload: true\n"


def test_a_checkout_of_axolotl_is_judged_by_its_own_release(tmp_path: Path) -> None:
    package = {"src/axolotl/__init__.py": ""}
    assert found(tmp_path / "unknown", DROPPED, package) == []
    newest = ".".join(map(str, NEWEST.release))
    own = found(tmp_path / "newest", DROPPED, {**package, "VERSION": f"{newest}.1\n"})
    assert own == [("FSD951", "cpu_offload: true")]
    assert found(tmp_path / "later", DROPPED, {**package, "VERSION": "9.1.0.dev0\n"}) == []


def unused(folder: Path, text: str, others: dict[str, str] | None = None) -> list[str]:
    made = outcome(folder, {"train.yaml": text, **(others or {})})
    return [each.message for each in made.findings if each.code == "FSD952"]


def test_before_0_12_a_section_alone_shards_nothing(tmp_path: Path) -> None:
    old = {"requirements.txt": "axolotl==0.9.2\n"}
    text = "fsdp_config:\n  fsdp_offload_params: true\n"
    (finding,) = unused(tmp_path / "old", BASE + text, old)
    assert finding.startswith("axolotl 0.9 does not shard with `fsdp_config` without `fsdp`")
    assert unused(tmp_path / "off", f"{BASE}fsdp:\n{text}", old) == []
    assert unused(tmp_path / "new", BASE + text) == []


def test_a_version_alone_shards_nothing(tmp_path: Path) -> None:
    (finding,) = unused(tmp_path / "alone", f"{BASE}fsdp_version: 2\n")
    assert "does not shard with `fsdp_version: 2` without settings" in finding
    other = f"{BASE}fsdp_version: 2\ndeepspeed: zero3.json\n"
    assert unused(tmp_path / "deepspeed", other) == []


FIXES = {
    "rename": ("  cpu_offload: true  # big\r\n  version: 2\r\n", "offload_params: true  # big\r\n"),
    "strategy": ("  fsdp_sharding_strategy: SHARD_GRAD_OP\n  version: 2\n", "forward: false\n"),
    "remove": ("  forward_prefetch: true\n  version: 2\n", "fsdp_config:\n  version: 2\n"),
}


@pytest.mark.parametrize(("before", "after"), FIXES.values(), ids=FIXES.keys())
def test_a_fix_keeps_every_other_byte(tmp_path: Path, before: str, after: str) -> None:
    text = f"{BASE}# all\nfsdp_config:\n{before}val_set_size: 0\n"
    (finding,) = outcome(tmp_path, {"train.yaml": text}).findings
    assert finding.fix is not None
    made = apply(text, list(finding.fix.edits))
    assert after in made
    lines = set(text.splitlines())
    assert len([line for line in made.splitlines() if line not in lines]) <= 1


def test_a_setting_is_moved_into_the_section(tmp_path: Path) -> None:
    text = f"{BASE}{FINAL_BESIDE}: SHARDED_STATE_DICT\nfsdp_config:\n  offload_params: true\n"
    (finding,) = outcome(tmp_path, {"train.yaml": text}).findings
    assert finding.fix is not None
    expected = "fsdp_config:\n  final_state_dict_type: SHARDED_STATE_DICT\n  offload_params: true\n"
    assert apply(text, list(finding.fix.edits)) == BASE + expected


def test_releases_are_in_order_and_the_newest_counts() -> None:
    releases = [each.release for each in settings()]
    assert releases == sorted(set(releases))
    assert admitted(None) == (NEWEST,)
    assert admitted(TorchRange.parse("==0.4.0")) == ()


def test_the_table_has_what_changed() -> None:
    for each in settings():
        alone = each.release >= (0, 12)
        assert each.has_effect(SECTION_SHARDS, 1) is alone
        assert each.has_effect(FINAL_COUNTS, 1) is not alone
        assert each.has_effect(DEFAULT, 1) is not each.has_effect(DEFAULT, 2)
        assert {"full_shard", "full_shard+auto_wrap"} <= each.takes(ARGUMENT, 1)
    assert not NEWEST.has_effect(STRATEGY_BY_WORD, 1)
    assert set(OTHER_NAMES.values()) <= set(NEWEST.names(1))
    assert not OTHER_NAMES.keys() & set(NEWEST.names(1))
