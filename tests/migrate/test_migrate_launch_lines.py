"""Launch lines whose options shard with FSDP1 move to FSDP2."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from plans import migrated, planned
from ranks import Ranks, report

from fsdplint.knowledge.accelerate_settings import (
    BUFFERS_REFUSED,
    PRECISION_WITH_2,
    RAM_EFFICIENT,
    RESHARD_APPLIES_WITH_2,
)
from fsdplint.migrate.step import Change, Kept, Question

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from accelerate_effect import handed_on

PROGRAM = Path(__file__).parent / "programs" / "launched.py"
CODE = "from accelerate import Accelerator\n\naccelerator = Accelerator()\n"
WRAP = "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_transformer_layer_cls_to_wrap Block"

# The options of a line, and what they become.
_OPTIONS = {
    "none": ("", "--fsdp_version 2 --fsdp_state_dict_type FULL_STATE_DICT"),
    "shard_grad_op": (
        f"{WRAP} --fsdp_sharding_strategy SHARD_GRAD_OP --fsdp_state_dict_type SHARDED_STATE_DICT",
        f"--fsdp_version 2 {WRAP} --fsdp_reshard_after_forward false --fsdp_state_dict_type "
        "SHARDED_STATE_DICT",
    ),
    "number": (
        f'--fsdp_version=1 {WRAP} --fsdp_sharding_strategy="1" --fsdp_use_orig_params=true',
        f"--fsdp_state_dict_type=FULL_STATE_DICT --fsdp_version=2 {WRAP} "
        "--fsdp_reshard_after_forward=true",
    ),
    "gone": (
        "--fsdp_backward_prefetch BACKWARD_PRE --fsdp_forward_prefetch true --fsdp-use-orig-params "
        f"true {WRAP} --fsdp_offload_params false --fsdp_sync_module_states true "
        "--fsdp_state_dict_type 1",
        f"--fsdp_version 2 {WRAP} --fsdp_offload_params false --fsdp_state_dict_type 1",
    ),
    "reshard": (
        "--fsdp_reshard_after_forward FULL_SHARD --fsdp_state_dict_type FULL_STATE_DICT",
        "--fsdp_version 2 --fsdp_reshard_after_forward true --fsdp_state_dict_type FULL_STATE_DICT",
    ),
}


def line(options: str) -> str:
    return f"accelerate launch --num_processes 2 --use_fsdp {options}".rstrip() + " train.py --x\n"


def trained(ranks: Ranks, folder: Path, variables: Mapping[str, str]) -> list[dict[str, object]]:
    """Return what each rank reports that trains with variables of FSDP."""
    folder.mkdir()
    given = {name: value for name, value in variables.items() if name.startswith("FSDP_")}
    code = f"import os\nos.environ.update({given!r})\n{PROGRAM.read_text('utf-8')}"
    assert not report(ranks.run(code, arguments=[str(folder)], process_group=False))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("name", _OPTIONS)
def test_options(tmp_path: Path, ranks: Ranks, name: str) -> None:
    """The options become those of FSDP2, by which accelerate trains the same on two ranks."""
    before, after = _OPTIONS[name]
    files = {"train.py": CODE, "run.sh": line(before)}
    assert migrated(planned(tmp_path, files)) == {"run.sh": line(after)}
    assert not planned(tmp_path, {**files, "run.sh": line(after)}).entries
    found = []
    for version, options in ((1, before), (2, after)):
        variables = handed_on(("--use_fsdp", *options.replace('"', "").split()))
        assert variables["FSDP_VERSION"] == str(version)
        found.append(trained(ranks, tmp_path / str(version), variables))
    for old, new in zip(*found, strict=True):
        assert new == {**old, "losses": pytest.approx(old["losses"], rel=1e-6)}
        assert new["units"] == (["", "1", "2"] if WRAP in after else [""])
    assert found[0][0]["losses"] != found[0][1]["losses"]


def test_formatting_stays(tmp_path: Path) -> None:
    """Lines, arrays and comments stay, in a script and in files that hold commands."""
    script = """\
# accelerate launch --use_fsdp --fsdp_sharding_strategy 1 train.py
OPTIONS=(
  --use_fsdp  # shard
  --fsdp_sharding_strategy FULL_SHARD
  --fsdp_use_orig_params true
  --fsdp_forward_prefetch true --fsdp_state_dict_type FULL_STATE_DICT
)
accelerate launch \\
    --use_fsdp \\
    --fsdp_backward_prefetch BACKWARD_PRE \\
    --fsdp_offload_params=true \\
    -m train \\
    --lr "$1"  # train
accelerate launch "${OPTIONS[@]}" train.py
"""
    after = """\
# accelerate launch --use_fsdp --fsdp_sharding_strategy 1 train.py
OPTIONS=(
  --use_fsdp  # shard
  --fsdp_version 2
  --fsdp_reshard_after_forward true
  --fsdp_state_dict_type FULL_STATE_DICT
)
accelerate launch \\
    --use_fsdp \\
    --fsdp_version 2 \\
    --fsdp_state_dict_type FULL_STATE_DICT \\
    --fsdp_offload_params=true \\
    -m train \\
    --lr "$1"  # train
accelerate launch "${OPTIONS[@]}" train.py
"""
    make = "train:\n\t@accelerate launch --use_fsdp --fsdp_sharding_strategy 2 train.py\n"
    files = {"train.py": CODE, "run.sh": script, "Makefile": make}
    assert migrated(planned(tmp_path, files)) == {
        "run.sh": after,
        "Makefile": "train:\n\t@accelerate launch --use_fsdp --fsdp_version 2 "
        "--fsdp_state_dict_type FULL_STATE_DICT --fsdp_reshard_after_forward false train.py\n",
    }


_ANSWERS = {"launched-with": "yes", "fsdp-version": "1", "sharding-strategy": "another"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--fsdp_sharding_strategy HYBRID_SHARD", "FSDP2 has no strategy `HYBRID_SHARD`"),
        ("--fsdp_sharding_strategy $1", "the value of `fsdp_sharding_strategy` is not known"),
        ("--fsdp_sharding_strategy 3", "train with DDP instead"),
        ("--fsdp_sharding_strategy MOST", "`MOST` is no strategy"),
        ("--fsdp_auto_wrap_policy SIZE_BASED_WRAP", "also a `ModuleList`, which fails"),
        ("--fsdp_state_dict_type LOCAL_STATE_DICT", "FSDP2 does not take"),
        ("--fsdp_version 1 $OPTIONS", "not all of its options are known"),
        ("--fsdp_version 1 --config_file $CONFIG", "not all of its options are known"),
        (
            "--config_file fsdp.yaml --fsdp_version 1 $1",
            "not all of its options are known",
        ),
        ("--config_file ddp.yaml", "its config file has settings of FSDP, too"),
        ("'--fsdp_version' 1", "its options are quoted"),
        ('"${SHARED[@]}"', "`other.py` gets the same options"),
    ],
)
def test_options_that_stay(tmp_path: Path, options: str, reason: str) -> None:
    files = {"train.py": CODE, "other.py": CODE, "run.sh": line(options)}
    files["ddp.yaml"] = "distributed_type: MULTI_GPU\nfsdp_config:\n  fsdp_offload_params: true\n"
    files["fsdp.yaml"] = files["ddp.yaml"].replace("MULTI_GPU", "FSDP").replace("true", "false")
    if "fsdp.yaml" in options:
        files["run.sh"] = files["run.sh"].replace("--use_fsdp ", "")
    if "SHARED" in options:
        shared = "SHARED=(--fsdp_sharding_strategy 1)\n"
        other = 'accelerate launch --use_fsdp "${SHARED[@]}" other.py\n'
        files["run.sh"] = shared + line(options) + other
    (entry,) = planned(tmp_path, files, **_ANSWERS).of(Kept)
    assert isinstance(entry.found, Kept)
    assert reason in entry.found.reason


def test_unknown_strategy_is_asked(tmp_path: Path) -> None:
    options = '--fsdp_sharding_strategy "${STRATEGY:-FULL_SHARD}" --fsdp_state_dict_type 3'
    files = {"train.py": CODE, "run.sh": line(options)}
    (entry,) = planned(tmp_path, files).of(Question)
    assert entry.key == "run.sh:1:sharding-strategy"
    new = "--fsdp_version 2 --fsdp_reshard_after_forward false --fsdp_state_dict_type 3"
    plan = planned(tmp_path, files, **{"sharding-strategy": "shard-grad-op"})
    assert migrated(plan) == {"run.sh": line(new)}


@pytest.mark.parametrize(
    "script",
    [
        "srun bash -c 'accelerate launch --use_fsdp train.py'",
        'COMMAND=(accelerate launch)\nCOMMAND+=(--use_fsdp)\n"${COMMAND[@]}" train.py',
        'ARGS="--use_fsdp --fsdp_offload_params true"\naccelerate launch $ARGS train.py',
    ],
)
def test_options_that_are_not_read(tmp_path: Path, script: str) -> None:
    """Of options in no line that is understood the plan says so, if they are for the program."""
    files = {"train.py": CODE, "run.sh": f"{script}\necho accelerate launch --use_fsdp\n"}
    (kept,) = planned(tmp_path, files, **{"launched-with": "yes"}).of(Kept)
    assert isinstance(kept.found, Kept)
    assert "are in no line that fsdplint understands" in kept.found.reason
    assert not planned(tmp_path, files, **{"launched-with": "no"}).entries
    files["run.sh"] = files["run.sh"].replace("--use_fsdp", "--use_fsdp --fsdp_version 2")
    assert not planned(tmp_path, files, **{"launched-with": "yes"}).entries


def test_variable_that_names_accelerate(tmp_path: Path) -> None:
    head = "ACCELERATE_BIN=${ACCELERATE_BIN:-accelerate}\n"
    before, after = (
        head + line(options).replace("accelerate launch", '"${ACCELERATE_BIN}" launch')
        for options in _OPTIONS["none"]
    )
    assert migrated(planned(tmp_path, {"train.py": CODE, "run.sh": before})) == {"run.sh": after}


def test_option_of_older_releases_goes(tmp_path: Path) -> None:
    """accelerate 1.0 has renamed an option, which FSDP2 lacks."""
    options = "--fsdp_backward_prefetch_policy BACKWARD_PRE --fsdp_state_dict_type 1"
    after = "--fsdp_version 2 --fsdp_state_dict_type 1"
    plan = planned(tmp_path, {"train.py": CODE, "run.sh": line(options)})
    assert migrated(plan) == {"run.sh": line(after)}


def test_older_releases(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("accelerate>=1.2\n")
    (entry,) = planned(tmp_path, {"train.py": CODE, "run.sh": line("")}).of(Kept)
    assert isinstance(entry.found, Kept)
    assert "require `accelerate>=1.6`" in entry.found.reason


def test_what_is_different(tmp_path: Path) -> None:
    options = "--fsdp_reshard_after_forward SHARD_GRAD_OP --mixed_precision bf16"
    (change,) = planned(tmp_path, {"train.py": CODE, "run.sh": line(options)}).of(Change)
    assert isinstance(change.found, Change)
    assert change.found.differs == "; ".join(
        (
            BUFFERS_REFUSED.format(name=RAM_EFFICIENT),
            RESHARD_APPLIES_WITH_2,
            PRECISION_WITH_2,
        )
    )


def test_programs_of_lines(tmp_path: Path) -> None:
    """A line for another program stays, and of one that may be for any the plan asks."""
    files = {"train.py": CODE, "other.py": CODE, "run.sh": line("")}
    files["run.sh"] = line("").replace("train", "other")
    assert not planned(tmp_path, files).entries
    assert migrated(planned(tmp_path, files, "run.sh", **{"launched-with": "yes"}))
    files["run.sh"] = line("").replace("train.py", "-m package.train")
    (entry,) = planned(tmp_path, files).of(Question)
    assert entry.key == "run.sh:1:launched-with"
    assert migrated(planned(tmp_path, files, **{"launched-with": "yes"}))
    assert not planned(tmp_path, files, **{"launched-with": "no"}).entries
    files["run.sh"] = line("$OPTIONS")
    versions = {"launched-with": "yes", "fsdp-version": "2"}
    assert not planned(tmp_path, files, **versions).of(Kept)


def test_config_file_of_an_unknown_program(tmp_path: Path) -> None:
    """A line that names a config file may launch the program, and its options fit the file."""
    config = "distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: false\n"
    run = "accelerate launch --config_file c.yaml --fsdp_sharding_strategy 2 -m a\n"
    files = {"train.py": CODE, "c.yaml": config, "run.sh": run}
    assert migrated(planned(tmp_path, files, **{"launched-with": "yes"})) == {
        "c.yaml": config.replace(
            "  fsdp_off", "  fsdp_version: 2\n  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_off"
        ),
        "run.sh": run.replace("sharding_strategy 2", "reshard_after_forward false"),
    }


def test_model_is_prepared_with_its_optimizer(tmp_path: Path) -> None:
    """What a line says of a program counts for its code: FSDP2 needs both in one call."""
    code = f"""\
import torch
{CODE}model = torch.nn.Linear(2, 2)
model = accelerator.prepare(model)
optimizer = torch.optim.AdamW(model.parameters())
optimizer = accelerator.prepare(optimizer)
"""
    after = migrated(planned(tmp_path, {"train.py": code, "run.sh": line("")}))
    assert "model, optimizer = accelerator.prepare(model, optimizer)" in after["train.py"]


# What a script sets for ranks of torchrun, and what it becomes.
_VARIABLES = {
    "exported": (
        """\
export ACCELERATE_USE_FSDP="true"  # shard
export FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP
export FSDP_TRANSFORMER_CLS_TO_WRAP=Block
export FSDP_SHARDING_STRATEGY="SHARD_GRAD_OP"
export FSDP_BACKWARD_PREFETCH=BACKWARD_PRE
export FSDP_USE_ORIG_PARAMS=true OMP_NUM_THREADS=1
torchrun --nproc_per_node 2 train.py
""",
        """\
export ACCELERATE_USE_FSDP="true"
export FSDP_VERSION=2
export FSDP_STATE_DICT_TYPE=FULL_STATE_DICT  # shard
export FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP
export FSDP_TRANSFORMER_CLS_TO_WRAP=Block
export FSDP_RESHARD_AFTER_FORWARD=false
export OMP_NUM_THREADS=1
torchrun --nproc_per_node 2 train.py
""",
    ),
    "inline": (
        "ACCELERATE_USE_FSDP=true FSDP_USE_ORIG_PARAMS=1 \\\n"
        "FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT torchrun train.py\n",
        "ACCELERATE_USE_FSDP=true FSDP_VERSION=2 "
        "FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT torchrun train.py\n",
    ),
}


@pytest.mark.parametrize("name", _VARIABLES)
def test_variables(tmp_path: Path, ranks: Ranks, name: str) -> None:
    """The variables become those of FSDP2, by which accelerate trains the same on two ranks."""
    before, after = _VARIABLES[name]
    assert migrated(planned(tmp_path, {"train.py": CODE, "run.sh": before})) == {"run.sh": after}
    assert not planned(tmp_path, {"train.py": CODE, "run.sh": after}).entries
    found = []
    for script in before, after:
        given = dict(re.findall(r'(\w+)="?(\w+)', script))
        found.append(trained(ranks, tmp_path / given.get("FSDP_VERSION", "1"), given))
    for old, new in zip(*found, strict=True):
        assert new == {**old, "losses": pytest.approx(old["losses"], rel=1e-6)}
        assert new["units"] == (["", "1", "2"] if "Block" in after else [""])


@pytest.mark.parametrize(
    "script",
    [
        "FSDP_SHARDING_STRATEGY=1 torchrun train.py",
        "ACCELERATE_USE_FSDP=false torchrun train.py",
        "ACCELERATE_USE_FSDP=true torchrun other.py",
        "ACCELERATE_USE_FSDP=true FSDP_VERSION=2 torchrun train.py",
        "ACCELERATE_USE_FSDP=true accelerate launch train.py",
    ],
)
def test_variables_that_stay(tmp_path: Path, script: str) -> None:
    files = {"train.py": CODE, "other.py": CODE, "run.sh": f"{script}\n"}
    assert not planned(tmp_path, files).entries


def test_variables_that_are_left(tmp_path: Path) -> None:
    shared = "export ACCELERATE_USE_FSDP=true\ntorchrun train.py\ntorchrun other.py\n"
    strategy = "ACCELERATE_USE_FSDP=true FSDP_SHARDING_STRATEGY=NO_SHARD torchrun train.py\n"
    for script, reason in (
        (shared, "`other.py` gets the same variables"),
        (strategy, "train with DDP instead"),
    ):
        files = {"train.py": CODE, "other.py": CODE, "run.sh": script}
        (kept,) = planned(tmp_path, files).of(Kept)
        assert isinstance(kept.found, Kept)
        assert reason in kept.found.reason
