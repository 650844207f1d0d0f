"""Which calls and files hold settings of FSDP for transformers, and what is found in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.fixes.edits import apply
from fsdplint.outcome import Outcome
from fsdplint.settings.config import defaults

PARSES = "from transformers import HfArgumentParser\n"
ARGUMENTS = "output_dir: out\nlearning_rate: 1.0e-5\nnum_train_epochs: 3\n"
DROPPED = "fsdp: full_shard\nfsdp_config:\n  offload_params: true\n  state_dict_type: a\n"
CODES = ("FSD921", "FSD922", "FSD923", "FSD924")


def outcome(folder: Path, files: dict[str, str]) -> Outcome:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in {"model.py": "import torch\n", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="")
    return check([folder], defaults())


def found(folder: Path, files: dict[str, str]) -> list[tuple[str, str]]:
    """Return the codes of findings, each with the text of its place."""
    made = outcome(folder, files)
    assert not made.failures
    ours = [each for each in made.findings if each.code in CODES]
    spans = [(each.code, each.span) for each in ours]
    return [
        (code, files[str(Path(span.path).relative_to(folder))][span.start : span.end])
        for code, span in spans
    ]


def call(arguments: str, before: str = "") -> dict[str, str]:
    head = "from transformers import TrainingArguments\nimport transformers, trl\n"
    return {"train.py": f"{head}{before}args = TrainingArguments('out', {arguments})\n"}


CALLS = {
    "unknown": (
        "fsdp=True, fsdp_config={'offload_params': True, 'sharding_strategy': 'FULL_SHARD'}",
        [("FSD921", "'offload_params'"), ("FSD921", "'sharding_strategy'")],
    ),
    "misspelt": (
        "fsdp=True, fsdp_config={'activation_checkpointing ': True}",
        [("FSD921", "'activation_checkpointing '")],
    ),
    "unknown, of one arm": (
        "fsdp='full_shard' if x else '', fsdp_config={'mixed_precision': 'bf16'} if x else None",
        [("FSD921", "'mixed_precision'")],
    ),
    "unknown, spread": (
        "**({} if x else {'fsdp': 'full_shard', 'fsdp_config': {'offload_params': True}})",
        [("FSD921", "'offload_params'")],
    ),
    "forward prefetch": (
        "fsdp=True, fsdp_config={'forward_prefetch': 'true', 'backward_prefetch': 'backward_pre'}",
        [("FSD922", "'forward_prefetch': 'true'")],
    ),
    "strategy of FSDP1": (
        "fsdp='hybrid_shard', fsdp_config={'version': 1}",
        [("FSD922", "fsdp='hybrid_shard'")],
    ),
    "contradiction": (
        "fsdp='full_shard offload', fsdp_config={'cpu_offload': False}",
        [("FSD922", "fsdp='full_shard offload'")],
    ),
    "two strategies": (
        "fsdp='full_shard shard_grad_op'",
        [("FSD922", "fsdp='full_shard shard_grad_op'")],
    ),
    "unused": ("fsdp_config={'version': 2}", [("FSD923", "fsdp_config")]),
    "refused word": ("fsdp='full'", [("FSD924", "fsdp='full'")]),
    "refused words": (
        "fsdp=['full_shard auto_wrap']",
        [("FSD924", "fsdp=['full_shard auto_wrap']")],
    ),
    "refused value": (
        "fsdp=True, fsdp_config={'state_dict_type': 'LOCAL_STATE_DICT'}",
        [("FSD924", "'state_dict_type': 'LOCAL_STATE_DICT'")],
    ),
    "YAML as JSON": (
        "fsdp='full_shard', fsdp_config='fsdp.yaml'",
        [("FSD924", "fsdp_config='fsdp.yaml'")],
    ),
}


@pytest.mark.parametrize(("arguments", "expected"), CALLS.values(), ids=CALLS.keys())
def test_calls_with_findings(
    tmp_path: Path, arguments: str, expected: list[tuple[str, str]]
) -> None:
    assert sorted(found(tmp_path, call(arguments))) == sorted(expected)


CLEAN_CALLS = {
    "known": "fsdp=True, fsdp_config={'fsdp_cpu_offload': True, 'fsdp_version': '2'}",
    "of the TPU": "fsdp='full_shard', fsdp_config={'xla': True, 'xla_fsdp_settings': {}}",
    "unknown value": "fsdp=x, fsdp_config={'version': y, 'forward_prefetch': True}",
    "turned off": "fsdp='', fsdp_config={'offload_params': True}",
    "spread": "fsdp_config={'version': 2}, **more",
    "of another kind": "fsdp='full_shard', fsdp_config=make()",
    "true is any truth": "fsdp=True, fsdp_config={'activation_checkpointing': 'True'}",
    "an open dict": "fsdp=True, fsdp_config={**more, 'min_num_params': 5}",
    "a size by size": (
        "fsdp=True, fsdp_config={'min_num_params': 5, 'auto_wrap_policy': 'SIZE_BASED_WRAP'}"
    ),
}


@pytest.mark.parametrize("arguments", CLEAN_CALLS.values(), ids=CLEAN_CALLS.keys())
def test_calls_without_findings(tmp_path: Path, arguments: str) -> None:
    assert found(tmp_path, call(arguments)) == []


OTHER_CLASSES = {
    "of the project": "class TrainingArguments:\n    pass\n",
    "of another package": "from mine import TrainingArguments\n",
}


@pytest.mark.parametrize("before", OTHER_CLASSES.values(), ids=OTHER_CLASSES.keys())
def test_a_class_of_the_same_name_is_another(tmp_path: Path, before: str) -> None:
    text = f"{before}args = TrainingArguments(fsdp=True, fsdp_config={{'offload_params': 1}})\n"
    assert found(tmp_path, {"train.py": text}) == []


def test_a_key_is_only_reported_if_every_admitted_release_drops_it(tmp_path: Path) -> None:
    files = call("fsdp='full_shard auto_wrap', fsdp_config={'state_dict_type': 'FULL_STATE_DICT'}")
    assert found(tmp_path / "any", files) == []
    old = {**files, "requirements.txt": "transformers==4.57.1\n"}
    assert found(tmp_path / "old", old) == [("FSD921", "'state_dict_type'")]
    both = {**files, "requirements.txt": "transformers>=4.57\n"}
    assert found(tmp_path / "both", both) == []
    older = {**files, "requirements.txt": "transformers==4.31.0\n"}
    assert found(tmp_path / "older", older) == []


def test_releases_before_5_wrap_nothing_without_the_word(tmp_path: Path) -> None:
    files = call("fsdp='full_shard', fsdp_config={'transformer_layer_cls_to_wrap': ['Block']}")
    assert found(tmp_path / "new", files) == []
    old = {**files, "requirements.txt": "transformers==4.57.1\n"}
    reported = [("FSD922", "'transformer_layer_cls_to_wrap': ['Block']")]
    assert found(tmp_path / "old", old) == reported


def test_releases_before_5_refuse_a_size_together_with_classes(tmp_path: Path) -> None:
    config = "{'min_num_params': 5, 'transformer_layer_cls_to_wrap': 'Block'}"
    files = call(f"fsdp='full_shard auto_wrap', fsdp_config={config}")
    assert found(tmp_path / "new", files) == [("FSD922", "'min_num_params': 5")]
    old = {**files, "requirements.txt": "transformers==4.57.1\n"}
    assert found(tmp_path / "old", old) == [("FSD924", "'min_num_params': 5")]


FILES = {
    "parsed": {"parse.py": PARSES, "sft.yaml": ARGUMENTS + DROPPED},
    "parsed by trl": {
        "parse.py": "from trl import TrlParser\n",
        "recipes/sft.yaml": ARGUMENTS + DROPPED,
    },
    "of LLaMA-Factory": {"sft.yaml": f"stage: sft\nfinetuning_type: full\n{ARGUMENTS}{DROPPED}"},
}


@pytest.mark.parametrize("files", FILES.values(), ids=FILES.keys())
def test_files_of_training_arguments(tmp_path: Path, files: dict[str, str]) -> None:
    expected = [("FSD921", "offload_params"), ("FSD924", "state_dict_type: a")]
    assert found(tmp_path, files) == expected


OTHER_FILES = {
    "parsed by nobody": {"sft.yaml": ARGUMENTS + DROPPED},
    "of Axolotl": {"parse.py": PARSES, "sft.yaml": f"base_model: m\n{ARGUMENTS}{DROPPED}"},
    "few arguments": {"parse.py": PARSES, "sft.yaml": "output_dir: out\n" + DROPPED},
    "other names": {
        "parse.py": PARSES,
        "sft.yaml": f"{ARGUMENTS}fsdp: true\nfsdp_config:\n  wrap: block\n",
    },
    "a record of Weights & Biases": {
        "parse.py": PARSES,
        "config.yaml": "output_dir:\n  desc: null\n  value: out\nlearning_rate:\n  value: 1\n"
        "fsdp:\n  desc: null\n  value: ''\nfsdp_config:\n  desc: null\n  value:\n    version: 1\n",
    },
    "a template": {"parse.py": PARSES, "sft.yaml": f"{ARGUMENTS}{DROPPED}{{{{ more }}}}\n"},
    "empty": {"parse.py": PARSES, "sft.yaml": f"{ARGUMENTS}fsdp: ''\nfsdp_config:\n"},
    "JSON that nobody names": {"fsdp.json": '{"fsdp_offload_params": true, "fsdp_version": 2}'},
    "other JSON": {
        "train.sh": "--fsdp_config fsdp.json\n",
        "fsdp.json": '{"fsdp_offload_parms": true, "name": "a"}',
    },
}


@pytest.mark.parametrize("files", OTHER_FILES.values(), ids=OTHER_FILES.keys())
def test_files_of_another_kind(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) == []


NAMING = {
    "script": {"train.sh": 'torchrun train.py --fsdp_config "./configs/fsdp.json" \\\n'},
    "call": {"train.py": "args = TrainingArguments(fsdp_config='configs/fsdp.json')\n"},
    "settings": {"config.yaml": "model: m\nfsdp_config: ./configs/fsdp.json\n"},
}


@pytest.mark.parametrize("naming", NAMING.values(), ids=NAMING.keys())
def test_json_that_is_named_as_fsdp_config(tmp_path: Path, naming: dict[str, str]) -> None:
    text = '{\n  "fsdp_offload_params": "false",\n  "fsdp_state_dict_type": "FULL_STATE_DICT"\n}\n'
    files = {**naming, "configs/fsdp.json": text}
    assert found(tmp_path, files) == [("FSD921", '"fsdp_offload_params"')]


def test_a_file_that_cannot_be_parsed_is_reported(tmp_path: Path) -> None:
    broken = f"{ARGUMENTS}fsdp: full_shard\nfsdp_config: {{version: 2\n"
    made = outcome(tmp_path, {"parse.py": PARSES, "sft.yaml": broken})
    assert [finding.rule for finding in made.findings] == ["invalid-syntax"]


FIXES = {
    "rename": (
        "fsdp: full_shard\r\nfsdp_config:\r\n  fsdp_offload_params: true  # big\r\n",
        "fsdp: full_shard\r\nfsdp_config:\r\n  fsdp_cpu_offload: true  # big\r\n",
    ),
    "remove": (
        "fsdp: true\nfsdp_config:\n  sharding_strategy: FULL_SHARD\n  version: 2\nbf16: true\n",
        "fsdp: true\nfsdp_config:\n  version: 2\nbf16: true\n",
    ),
    "turn on": (
        "fsdp_config: {version: 2}\n",
        "fsdp: true\nfsdp_config: {version: 2}\n",
    ),
    "words": (
        "fsdp: 'full_shard, auto_wrap'  # both\n",
        "fsdp: 'full_shard auto_wrap'  # both\n",
    ),
    "size": (
        "fsdp: true\nfsdp_config:\n  fsdp_min_num_params: 2000\n",
        "fsdp: true\nfsdp_config:\n  auto_wrap_policy: SIZE_BASED_WRAP\n"
        "  fsdp_min_num_params: 2000\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), FIXES.values(), ids=FIXES.keys())
def test_a_fix_keeps_every_other_byte(tmp_path: Path, before: str, after: str) -> None:
    files = {"parse.py": PARSES, "sft.yaml": ARGUMENTS + before}
    (finding,) = outcome(tmp_path, files).findings
    assert finding.fix is not None
    assert apply(ARGUMENTS + before, list(finding.fix.edits)) == ARGUMENTS + after


@pytest.mark.parametrize(
    ("release", "arguments", "expected"),
    [
        # Before 4.52 the prefix is taken away from names in a JSON file alone.
        ("==4.51.*", "'fsdp_limit_all_gathers': True", [("FSD921", "'fsdp_limit_all_gathers'")]),
        (">=4.51", "'fsdp_limit_all_gathers': True", []),
        ("==4.52.*", "'fsdp_limit_all_gathers': True", []),
        ("==4.40.*", "'sync_module_states': 'true'", []),
        ("==4.40.*", "'sync_module_states': 1", [("FSD924", "'sync_module_states': 1")]),
    ],
)
def test_older_releases(
    tmp_path: Path, release: str, arguments: str, expected: list[tuple[str, str]]
) -> None:
    (tmp_path / "requirements.txt").write_text(f"transformers{release}\n")
    assert found(tmp_path, call(f"fsdp=True, fsdp_config={{{arguments}}}")) == expected


def test_older_releases_take_lists_with_any_words(tmp_path: Path) -> None:
    code = call("fsdp=['full_shard', 'ofload']")
    assert [code for code, _ in found(tmp_path, code)] == ["FSD924"]
    (tmp_path / "requirements.txt").write_text("transformers==5.9.*\n")
    assert found(tmp_path, code) == []
