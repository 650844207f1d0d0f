"""What a config file says is known of the code that it launches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint import check as checking
from fsdplint import sources
from fsdplint.check import check, inspect
from fsdplint.files.discover import Patterns
from fsdplint.settings.config import Settings, defaults
from fsdplint.settings.rule_selection import EVERYTHING

SCRIPT = """\
import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator()
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(10):
    loss = model(torch.randn(4, 8)).sum()
    accelerator.backward(loss)
    optimizer.step()
    if accelerator.is_main_process:
        accelerator.save_state("checkpoint")
"""
APART = """\
import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator()
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
model = accelerator.prepare(model)
optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters()))
"""
CONFIG = """\
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
"""
HANG = ("train.py", "collective-under-rank-guard")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/fsdp.yaml").write_text(CONFIG)
    return tmp_path


def found(*paths: Path, settings: Settings | None = None) -> list[tuple[str, str]]:
    outcome = check(paths, settings or defaults())
    assert not outcome.failures and not outcome.partly
    return [(Path(f.span.path).name, f.rule) for f in outcome.findings]


def test_a_finding_shows_the_place_in_the_config_file(project: Path) -> None:
    outcome = check([project], defaults())
    (finding,) = outcome.findings
    (place,) = (e for e in finding.evidence if e.span.path.endswith(".yaml"))
    text = outcome.sources[place.span.path].text
    assert text[place.span.start : place.span.end] == "fsdp_config"
    assert place.note == "FSDP is chosen here"


def test_a_script_is_checked_with_the_config_files_of_its_project(project: Path) -> None:
    assert found(project / "train.py") == [HANG]
    inspection, _ = inspect(project / "train.py")
    assert "sharded by settings" in str(inspection)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("distributed_type: FSDP", "distributed_type: MULTI_GPU"),
        ("fsdp_version: 2", "fsdp_sharding_strategy: NO_SHARD"),
        ("fsdp_version: 2", "fsdp_sharding_strategy: OURS"),
        ("fsdp_version: 2", "fsdp_version: ${version}"),
    ],
)
def test_what_does_not_surely_shard_says_nothing(project: Path, old: str, new: str) -> None:
    file = project / "conf/fsdp.yaml"
    file.write_text(CONFIG.replace(old, new))
    assert HANG not in found(project)
    file.unlink()
    assert found(project) == []


def test_an_excluded_file_says_nothing(project: Path) -> None:
    exclude = (Patterns.of(project.as_posix(), ["*.yaml"]),)
    assert found(project, settings=Settings(exclude=exclude)) == []
    assert found(project / "train.py", settings=Settings(exclude=exclude)) == []


@pytest.mark.parametrize(
    "argument", ["deepspeed_plugin=plugin", "fsdp_plugin=None", "cpu=True", "**settings"]
)
def test_what_the_code_decides_counts(project: Path, argument: str) -> None:
    text = SCRIPT.replace("Accelerator()", f"Accelerator({argument})")
    names = "from settings import plugin, settings\n"
    (project / "train.py").write_text(names + text)
    assert found(project) == []


def test_only_what_all_config_files_say_is_known(project: Path) -> None:
    (project / "train.py").write_text(APART)
    assert found(project) == [("train.py", "prepare-called-apart")]
    other = CONFIG.replace("fsdp_version: 2", "fsdp_version: 1")
    (project / "conf/other.yaml").write_text(other)
    assert found(project) == []
    (project / "train.py").write_text(SCRIPT)
    assert found(project) == [HANG]


@pytest.mark.parametrize("kind", ["DEEPSPEED", "MULTI_GPU", "'NO'"])
def test_where_the_code_may_be_launched_otherwise_nothing_is_known(
    project: Path, kind: str
) -> None:
    (project / "other.yml").write_text(f"distributed_type: {kind}\nnum_processes: 2\n")
    assert found(project) == []
    assert found(project / "train.py") == []
    (project / "other.yml").write_text(f"kind: {kind}\n")
    assert found(project) == [HANG]


def test_with_fsdp1_the_optimizer_may_be_left_behind(project: Path) -> None:
    (project / "train.py").write_text(
        APART.replace(
            "model = accelerator",
            "optimizer = torch.optim.AdamW(model.parameters())\nmodel = accelerator",
        ).replace("torch.optim.AdamW(model.parameters()))", "optimizer)")
    )
    config = CONFIG.replace("fsdp_version: 2", "fsdp_use_orig_params: false")
    (project / "conf/fsdp.yaml").write_text(config)
    assert found(project) == [("train.py", "prepare-called-apart")]
    (project / "conf/fsdp.yaml").write_text(config.replace("false", "true"))
    assert found(project) == []


def test_a_script_that_is_not_launched_so_is_not_read(project: Path) -> None:
    text = SCRIPT.replace("from accelerate import Accelerator", "from ours import Accelerator")
    (project / "train.py").write_text(text)
    assert found(project) == []


def test_a_launch_line_says_which_script_is_launched_with_which_file(project: Path) -> None:
    (project / "other.yml").write_text("distributed_type: DEEPSPEED\nnum_processes: 2\n")
    (project / "evaluate.py").write_text(SCRIPT)
    launch = project / "scripts/train.sh"
    launch.parent.mkdir()
    for line, expected in {
        "accelerate launch --config_file conf/fsdp.yaml train.py": [HANG],
        "accelerate launch --config_file=conf/fsdp.yaml --num_processes 4 ./train.py --x": [HANG],
        "accelerate launch --config_file ../conf/fsdp.yaml ../train.py": [HANG],
        "accelerate launch --config_file other.yml train.py": [],
        "accelerate launch --config_file other.yml --use_fsdp train.py": [HANG],
        "accelerate launch --config_file conf/fsdp.yaml --use_fsdp --fsdp_version 1 train.py": [
            HANG
        ],
        "accelerate launch --config_file conf/fsdp.yaml --fsdp_version $V train.py": [],
        "accelerate launch --config_file conf/fsdp.yaml --multi_gpu train.py": [],
        "accelerate launch --config_file conf/fsdp.yaml --cpu train.py": [],
        "accelerate launch --config_file conf/fsdp.yaml --use_deepspeed train.py": [],
        "accelerate launch --config_file $CONFIG train.py": [],
        "accelerate launch --config_file conf/fsdp.yaml -m train": [HANG],
        "accelerate launch --use_fsdp --fsdp_version 2 train.py": [HANG],
        "accelerate launch --use_fsdp $OPTIONS train.py": [],
        "accelerate launch --multi_gpu --fsdp_version 2 train.py": [],
        "accelerate launch train.py": [],
    }.items():
        launch.write_text(f"#!/bin/bash\n{line}\n")
        assert found(project) == expected, line
        assert found(project / "train.py") == expected, line


def test_torchrun_reads_no_config_file(project: Path) -> None:
    (project / "other.py").write_text("import torch\n")
    launch = project / "train.sh"
    for line, expected in {
        "torchrun --nproc_per_node 2 other.py": [HANG],
        "torchrun --nproc_per_node 2 train.py --x": [],
        "srun torchrun --nproc_per_node $N train.py": [],
        "python -m torch.distributed.run train.py": [],
        "torchrun train.py\naccelerate launch --config_file conf/fsdp.yaml train.py": [HANG],
    }.items():
        launch.write_text(f"#!/bin/bash\n{line}\n")
        assert found(project) == expected, line


def test_two_launches_say_what_they_agree_on(project: Path) -> None:
    (project / "train.py").write_text(APART)
    (project / "conf/1.yaml").write_text(CONFIG.replace("version: 2", "version: 1"))
    line = "accelerate launch --config_file conf/{} train.py\n"
    (project / "a.sh").write_text(line.format("fsdp.yaml"))
    assert found(project) == [("train.py", "prepare-called-apart")]
    (project / "b.sh").write_text(line.format("1.yaml"))
    assert found(project) == []


def test_an_option_of_the_launch_line_counts_more_than_the_file(project: Path) -> None:
    (project / "train.py").write_text(APART)
    line = "accelerate launch --config_file conf/fsdp.yaml {}train.py\n"
    (project / "a.sh").write_text(line.format(""))
    assert found(project) == [("train.py", "prepare-called-apart")]
    (project / "a.sh").write_text(line.format("--fsdp_version 1 "))
    assert found(project) == []
    option = "--fsdp_version 1 --fsdp_sharding_strategy NO_SHARD "
    (project / "train.py").write_text(SCRIPT)
    (project / "a.sh").write_text(line.format(option))
    assert found(project) == []


def test_files_of_a_large_tree_are_read_if_they_are_launched(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_MAX_HELD", 1)
    assert found(project) == [HANG]
    assert found(project / "train.py") == [HANG]


def test_config_files_are_not_read_for_code_that_nothing_launches(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    monkeypatch.setattr(checking, "read_around", lambda *_: read.append(1))
    (project / "train.py").write_text("import torch\n")
    assert (found(project / "train.py"), read) == ([], [])
    (project / "train.py").write_text(SCRIPT)
    assert (found(project / "train.py"), read) == ([], [1])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.py", "accelerator.state.fsdp_plugin.auto_wrap_policy = policy"),
        ("a.py", "plugin = FullyShardedDataParallelPlugin(auto_wrap_policy=policy)"),
        ("a.py", "model = peft.get_peft_model(model, config)"),
        ("a.sh", "accelerate launch --fsdp_auto_wrap_policy SIZE_BASED_WRAP train.py"),
        ("a.sh", "torchrun train.py --fsdp 'full_shard auto_wrap'"),
    ],
)
def test_a_policy_that_code_or_a_script_sets_is_not_missed(
    tmp_path: Path, name: str, line: str
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "fsdp.yaml").write_text("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n")
    preview = defaults(EVERYTHING)
    assert found(tmp_path, settings=preview) == [("fsdp.yaml", "no-wrap-policy")]
    (tmp_path / name).write_text(f"{line}\n")
    assert found(tmp_path, settings=preview) == []


TRAINER = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("gpt2")
trainer = Trainer(model=model, args=args, train_dataset=load_data())
trainer.train()
if trainer.is_world_process_zero():
    trainer.save_model("out")
"""
WHOLE = CONFIG + "  fsdp_state_dict_type: FULL_STATE_DICT\n"
SHARDS = CONFIG + "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
LOST = ("train.py", "trainer-saves-no-model")


def in_trainer(project: Path, config: str, text: str = TRAINER) -> list[tuple[str, str]]:
    (project / "train.py").write_text(text)
    (project / "conf/fsdp.yaml").write_text(config)
    return [each for each in found(project, settings=defaults(EVERYTHING)) if each[0] == "train.py"]


def test_a_trainer_shards_by_the_config_file(project: Path) -> None:
    assert in_trainer(project, WHOLE) == [HANG]
    assert in_trainer(project, WHOLE.replace("FULL_STATE_DICT", "1")) == [HANG]
    assert in_trainer(project, WHOLE.replace("distributed_type: FSDP", "x: FSDP")) == []
    guarded = TRAINER.replace("save_model(", "evaluate(")
    assert in_trainer(project, SHARDS, guarded) == [HANG]
    assert in_trainer(project, SHARDS, guarded.replace("(args,)", "args, unused")) == [HANG]
    trl = guarded.replace("from transformers import", "from trl import SFTTrainer as Trainer\n#")
    assert in_trainer(project, SHARDS, trl) == [HANG]


@pytest.mark.parametrize(
    "arguments",
    ["use_cpu=True", "no_cuda=cpu", "deepspeed='zero3.json'", "fsdp=''", "fsdp_config=config"],
)
def test_arguments_of_a_trainer_count_more(project: Path, arguments: str) -> None:
    text = TRAINER.replace(
        "(args,) = parser.parse_args_into_dataclasses()",
        f"from settings import config, cpu\nargs = TrainingArguments('out', {arguments})",
    )
    assert in_trainer(project, WHOLE, text) == []
    assert in_trainer(project, WHOLE, text.replace(arguments, "seed=1")) == [HANG]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SHARDS, [LOST]),
        (SHARDS.replace("SHARDED_STATE_DICT", "3"), [LOST]),
        (SHARDS.replace("version: 2", "version: 1"), [LOST]),
        (CONFIG, [LOST]),  # the default of FSDP2
        (CONFIG.replace("version: 2", "version: 1"), []),
        (WHOLE, []),
        (SHARDS.replace("SHARDED_STATE_DICT", "${states}"), []),
        (SHARDS + "parallelism_config: {parallelism_config_dp_shard_size: 2}\n", []),
        (CONFIG + "  <<: {fsdp_state_dict_type: FULL_STATE_DICT}\n", []),
    ],
)
def test_a_trainer_saves_nothing_in_shards(
    project: Path, config: str, expected: list[tuple[str, str]]
) -> None:
    text = TRAINER.replace("if trainer.is_world_process_zero():\n    ", "")
    assert in_trainer(project, config, text) == expected


@pytest.mark.parametrize(
    "line",
    [
        "trainer.accelerator.state.fsdp_plugin.set_state_dict_type('FULL_STATE_DICT')",
        "trainer.accelerator.state.fsdp_plugin.state_dict_type = StateDictType.FULL_STATE_DICT",
    ],
)
def test_a_type_of_states_that_code_sets_counts_more(project: Path, line: str) -> None:
    text = TRAINER.replace("if trainer.is_world_process_zero():\n    ", "")
    assert in_trainer(project, SHARDS, text) == [LOST]
    guarded = f"if trainer.is_fsdp_enabled:\n    {line}\n"
    text = text.replace("trainer.save_model", guarded + "trainer.save_model")
    assert in_trainer(project, SHARDS, text) == []


def test_a_trainer_of_arguments_in_code_saves_nothing_from_5_10_on(project: Path) -> None:
    (project / "conf/fsdp.yaml").unlink()
    (project / "train.py").write_text(
        TRAINER.replace("if trainer.is_world_process_zero():\n    ", "").replace(
            "(args,) = parser.parse_args_into_dataclasses()",
            "states = {'state_dict_type': 'SHARDED_STATE_DICT'}\n"
            "args = TrainingArguments('out', fsdp='full_shard auto_wrap', fsdp_config=states)",
        )
    )
    preview = defaults(EVERYTHING)
    assert found(project, settings=preview) == [LOST]
    (project / "requirements.txt").write_text("transformers==4.57.0\n")
    assert LOST not in found(project, settings=preview)
