"""Misspelt classes to wrap are found wherever they are named, and only where nobody has them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.knowledge.transformers_layers import layers, misspelt, releases
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from transformers_layers import defined

RULE = "unknown-wrap-class"
CONFIG = """\
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: {}
"""


def found(folder: Path) -> list[str]:
    """The names that are reported, in the order of the files."""
    outcome = check([folder], defaults(EVERYTHING))
    assert not outcome.failures
    texts = ((outcome.sources[f.span.path].text, f) for f in outcome.findings if f.rule == RULE)
    return [text[f.span.start : f.span.end] for text, f in texts]


def in_config(folder: Path, name: str, config: str = CONFIG) -> list[str]:
    (folder / "pyproject.toml").touch()
    (folder / "fsdp.yaml").write_text(config.format(name))
    return found(folder)


def test_the_table_has_the_layers_of_the_installed_release() -> None:
    spec = find_spec("transformers")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "models"
    named = {name for file in folder.glob("**/modeling_*.py") for name in defined(file.read_text())}
    assert len(named) > 500
    assert named <= layers()
    version = (Path(spec.origin).read_text().split('__version__ = "')[1]).split('"')[0]
    assert version.startswith(f"{releases()[1]}.")


def test_no_layer_is_taken_for_a_misspelling() -> None:
    assert not [name for name in layers() if misspelt(name)]
    for name in layers():
        made = misspelt(name.upper())
        assert (made and made.name) == (None if name.upper() in layers() else name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LLaMADecoderLayer", "LlamaDecoderLayer"),
        ("qwen2decoderlayer", "Qwen2DecoderLayer"),
        ("MistalDecoderLayer", "MistralDecoderLayer"),
        ("MixtralDecodrLayer", "MixtralDecoderLayer"),
        ("LlammaDecoderLayer", "LlamaDecoderLayer"),
        ("BertLyaer", "BertLayer"),
    ],
)
def test_a_name_with_one_slip_is_meant_for_a_layer(name: str, meant: str) -> None:
    made = misspelt(name)
    assert made and (made.name, made.is_sure) == (meant, False)


@pytest.mark.parametrize(
    "name",
    [
        *("MPTBlock", "QWenBlock", "QwenDecoderLayer", "Qwen9DecoderLayer", "LlamaLayer", "Block"),
        *("LlamaDecoderLayers", "XLlamaDecoderLayer", "GPTBlock", "LlamaMLP", "DecoderLayer"),
        *("LlavaDecoderLayer", "Llama-DecoderLayer", ""),
    ],
)
def test_other_names_may_be_those_of_other_packages(name: str) -> None:
    assert misspelt(name) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("LlamaDecoderlayer", ["LlamaDecoderlayer"]),
        ("LlamaDecoderLayer", []),
        ("'LlamaMLP,Qwen2Decoderlayer,GPT2block'", ["Qwen2Decoderlayer", "GPT2block"]),
        ("[LlamaDecoderLayer, Qwen2Decoderlayer]", ["Qwen2Decoderlayer"]),
        ("${layer}", []),
        ("{a: LlamaDecoderlayer}", []),
        ("null", []),
    ],
)
def test_names_in_a_config_file(tmp_path: Path, value: str, expected: list[str]) -> None:
    assert in_config(tmp_path, value) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP"),
        ("TRANSFORMER_BASED_WRAP", "NO_WRAP"),
        ("TRANSFORMER_BASED_WRAP", "${policy}"),
        ("type: FSDP", "type: MULTI_GPU"),
    ],
)
def test_names_count_only_with_a_policy_that_wraps_by_class(
    tmp_path: Path, old: str, new: str
) -> None:
    text = CONFIG.replace(old, new).replace("wrap: {}", "wrap: LlamaDecoderlayer")
    (tmp_path / "fsdp.yaml").write_text(text)
    assert found(tmp_path) == []


def test_a_class_of_the_project_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text('LAYER = "MistralDecoderlayer"\n')
    assert in_config(tmp_path, "MistralDecoderlayer") == ["MistralDecoderlayer"]
    for line in (
        "class MistralDecoderlayer(Module):\n    pass",
        "from ours import MistralDecoderlayer",
    ):
        (tmp_path / "model.py").write_text(line + "\n")
        assert in_config(tmp_path, "MistralDecoderlayer") == []


def test_a_model_with_its_own_code_may_have_what_is_close(tmp_path: Path) -> None:
    assert in_config(tmp_path, "LLaMADecoderLayer") == ["LLaMADecoderLayer"]
    # Not in one word, since this file is in a project, too.
    (tmp_path / "train.sh").write_text("python train.py --trust_remote" + "_code True\n")
    assert in_config(tmp_path, "LLaMADecoderLayer") == []
    assert in_config(tmp_path, "LlamaDecoderlayer") == ["LlamaDecoderlayer"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("accelerate launch {policy} {classes} train.py", 1),
        ("accelerate launch {classes} train.py", 0),
        ("accelerate launch --fsdp_auto_wrap_policy NO_WRAP {classes} train.py", 0),
        ("accelerate launch {policy} --fsdp-transformer-layer-cls-to-wrap={name} train.py", 1),
        ("torchrun train.py --fsdp 'full_shard auto_wrap' {classes}", 1),
        ("torchrun train.py --fsdp 'full_shard auto_wrap' \\\n    {classes} --bf16", 1),
        ("torchrun train.py --fsdp full_shard {classes}", 0),
        ("torchrun train.py {classes}", 0),
        ("torchrun train.py --fsdp 'full_shard auto_wrap' --layer {name}", 0),
        ("accelerate launch {policy} train.py --fsdp 'full_shard auto_wrap' {classes}", 1),
    ],
)
def test_names_on_launch_lines(tmp_path: Path, line: str, expected: int) -> None:
    name = "LlamaDecoderlayer"
    policy = "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP"
    classes = f"--fsdp_transformer_layer_cls_to_wrap {name}"
    text = line.format(name=name, policy=policy, classes=classes)
    (tmp_path / "train.sh").write_text(f"#!/bin/bash\n{text}\n")
    assert found(tmp_path) == [name] * expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("fsdp='full_shard auto_wrap', fsdp_config={{classes}}", 1),
        ("fsdp=True, fsdp_config={{classes}}", 1),
        ("fsdp='', fsdp_config={{classes}}", 0),
        ("fsdp=True, fsdp_config={{classes}, 'auto_wrap_policy': 'NO_WRAP'}", 0),
        ("fsdp=True, fsdp_config={{classes}, 'auto_wrap_policy': policy}", 0),
        ("fsdp=True, fsdp_config={{classes}, 'xla': True}", 0),
        ("fsdp=True, fsdp_config={{classes}, 'auto_wrap_policy': 'TRANSFORMER_BASED_WRAP'}", 1),
    ],
)
def test_names_in_training_arguments(tmp_path: Path, arguments: str, expected: int) -> None:
    classes = "'transformer_layer_cls_to_wrap': ['LlamaDecoderlayer']"
    text = arguments.replace("{classes}", classes)
    (tmp_path / "train.py").write_text(
        f"from transformers import TrainingArguments\nargs = TrainingArguments('out', {text})\n"
    )
    assert found(tmp_path) == ["LlamaDecoderlayer"] * expected


def test_before_5_10_names_count_only_with_the_word(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.57.0\n")
    script = tmp_path / "train.py"
    config = "{'transformer_layer_cls_to_wrap': 'T5block'}"
    text = (
        "from transformers import TrainingArguments\n"
        f"args = TrainingArguments('out', fsdp='full_shard', fsdp_config={config})\n"
    )
    script.write_text(text)
    assert found(tmp_path) == []
    script.write_text(text.replace("full_shard", "full_shard auto_wrap"))
    assert found(tmp_path) == ["T5block"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("auto_wrap_policy='transformer_based_wrap', transformer_cls_names_to_wrap=['T5block']", 1),
        ("auto_wrap_policy='TRANSFORMER_BASED_WRAP', transformer_cls_names_to_wrap='T5block'", 1),
        ("auto_wrap_policy=policy, transformer_cls_names_to_wrap=['T5block']", 0),
        ("transformer_cls_names_to_wrap=['T5block']", 0),
        ("auto_wrap_policy='transformer_based_wrap', transformer_cls_names_to_wrap=[name]", 0),
    ],
)
def test_names_in_a_plugin(tmp_path: Path, arguments: str, expected: int) -> None:
    (tmp_path / "train.py").write_text(
        "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
        f"plugin = FullyShardedDataParallelPlugin({arguments})\n"
        "accelerator = Accelerator(fsdp_plugin=plugin)\n"
    )
    assert found(tmp_path) == ["T5block"] * expected
