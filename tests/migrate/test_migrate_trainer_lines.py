"""Launch lines that give transformers' `TrainingArguments` FSDP1 move to FSDP2."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from plans import migrated, planned

from fsdplint.migrate.step import Kept, Question

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from transformers_effect import effect

CODE = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
"""


def line(arguments: str) -> str:
    return f"torchrun --nproc_per_node 2 train.py --output_dir out {arguments} --bf16 True\n"


@pytest.mark.parametrize(
    ("before", "after", "reshards"),
    [
        (
            "--fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap 'Block'",
            "--fsdp 'full_shard auto_wrap' --fsdp_config "
            """'{"version": 2, "transformer_layer_cls_to_wrap": ["Block"]}'""",
            "True",
        ),
        (
            "--fsdp_transformer_layer_cls_to_wrap=Block,Linear --fsdp='shard_grad_op auto_wrap'",
            """--fsdp_config '{"version": 2, "reshard_after_forward": false, """
            """"transformer_layer_cls_to_wrap": ["Block", "Linear"]}' """
            "--fsdp='shard_grad_op auto_wrap'",
            "False",
        ),
    ],
)
def test_arguments(tmp_path: Path, before: str, after: str, reshards: str) -> None:
    """The class of the blocks goes to `fsdp_config`, which transformers reads from the line."""
    files = {"train.py": CODE, "run.sh": line(before)}
    assert migrated(planned(tmp_path, files)) == {"run.sh": line(after)}
    assert not planned(tmp_path, {**files, "run.sh": line(after)}).entries
    from transformers import HfArgumentParser, TrainingArguments

    given = shlex.split(f"--output_dir {tmp_path} {after}")
    (made,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(given)
    new: Any = effect(made.fsdp, made.fsdp_config)
    assert new["version"] == 2
    unit, settings = new["calls"][0]
    assert unit != [""]
    assert settings["reshard_after_forward"] == reshards


def test_lines_that_are_for_fsdp2(tmp_path: Path) -> None:
    """The newest transformers uses FSDP2, unless a file of settings says otherwise."""
    for arguments in ("--fsdp full_shard", "--fsdp ''", "--fsdp full_shard --fsdp_config c.json"):
        files = {"train.py": CODE, "run.sh": line(arguments)}
        assert not planned(tmp_path, files).entries
    other = "from argparse import ArgumentParser\n"
    files["run.sh"] = line("--fsdp full_shard --fsdp_transformer_layer_cls_to_wrap Block")
    assert not planned(tmp_path, {**files, "train.py": other}).entries


def test_releases_that_use_fsdp1(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers>=5.0,<5.10\n")
    files = {"train.py": CODE, "run.sh": line("--fsdp full_shard")}
    after = line("""--fsdp full_shard --fsdp_config '{"version": 2}'""")
    assert migrated(planned(tmp_path, files)) == {"run.sh": after}
    for older in ("transformers>=4.40", "transformers>=4.28,<4.29"):
        (tmp_path / "requirements.txt").write_text(f"{older}\n")
        (kept,) = planned(tmp_path, files).of(Kept)
        assert isinstance(kept.found, Kept)
        assert "require `transformers>=5.0`" in kept.found.reason


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--fsdp hybrid_shard --fsdp_transformer_layer_cls_to_wrap Block", "no such strategy"),
        ("--fsdp full_shard --fsdp_transformer_layer_cls_to_wrap $1", "not all known"),
        ("--fsdp $1 --fsdp_transformer_layer_cls_to_wrap Block", "not all known"),
        ("'--fsdp' full_shard --fsdp_transformer_layer_cls_to_wrap Block", "are quoted"),
        ("--fsdp full_shard --fsdp_min_num_params 100", "every module above the size"),
    ],
)
def test_arguments_that_stay(tmp_path: Path, arguments: str, reason: str) -> None:
    (kept,) = planned(tmp_path, {"train.py": CODE, "run.sh": line(arguments)}).of(Kept)
    assert isinstance(kept.found, Kept)
    assert reason in kept.found.reason


def test_program_that_is_not_known(tmp_path: Path) -> None:
    arguments = "--fsdp full_shard --fsdp_transformer_layer_cls_to_wrap Block"
    files = {"train.py": CODE, "run.sh": line(arguments).replace("train.py", "-m package.train")}
    (entry,) = planned(tmp_path, files).of(Question)
    assert entry.key == "run.sh:1:launched-with"
    assert migrated(planned(tmp_path, files, **{"launched-with": "yes"}))
