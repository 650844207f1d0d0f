"""Programs that shard through accelerate or transformers move to FSDP2, or are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from plans import migrated, planned
from ranks import Ranks, report

from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.plan import MigrationError, make_plan
from fsdplint.migrate.step import Change, Kept, Question

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from accelerate_effect import Effect, effect, environment, prepared
from transformers_effect import effect as of_arguments

PROGRAM = Path(__file__).parent / "programs" / "accelerated.py"
HEAD = """\
import functools
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformer import Block

"""
LAUNCHED = """\
from accelerate import Accelerator

accelerator = Accelerator()
"""
CONFIG = """\
distributed_type: FSDP
num_processes: 2
mixed_precision: bf16
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Block
  # less memory
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_use_orig_params: true
"""
CONVERTED = """\
distributed_type: FSDP
num_processes: 2
mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Block
  # less memory
  fsdp_reshard_after_forward: false
"""


def of_plugin(text: str) -> Effect:
    """Return how accelerate shards with the plugin that a program makes."""
    sys.path.append(str(Path(__file__).parents[2] / "scripts"))
    names: dict[str, Any] = {}
    with environment():
        exec(text, names)
        return prepared(lambda: names["plugin"])


# The arguments of a plugin, and what they become.
_PLUGINS = {
    "none": ("", 'fsdp_version=2, state_dict_type="FULL_STATE_DICT"'),
    "version": (
        "fsdp_version=1, state_dict_type=StateDictType.SHARDED_STATE_DICT",
        "fsdp_version=2, state_dict_type=StateDictType.SHARDED_STATE_DICT",
    ),
    "classes": (
        'auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Block"], '
        'sharding_strategy="shard_grad_op", state_dict_type="full_state_dict"',
        'fsdp_version=2, reshard_after_forward=False, auto_wrap_policy="transformer_based_wrap", '
        'transformer_cls_names_to_wrap=["Block"], state_dict_type="full_state_dict"',
    ),
    "policy": (
        "auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, "
        "transformer_layer_cls={Block}), sharding_strategy=1, limit_all_gathers=True",
        "fsdp_version=2, transformer_cls_names_to_wrap=[Block.__name__], "
        'state_dict_type="FULL_STATE_DICT", auto_wrap_policy="transformer_based_wrap"',
    ),
    "precision": (
        'mixed_precision_policy={"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32, '
        '"buffer_dtype": torch.float32}, state_dict_type="SHARDED_STATE_DICT", cpu_offload=False',
        'fsdp_version=2, mixed_precision_policy={"param_dtype": torch.bfloat16, "reduce_dtype": '
        'torch.float32, "output_dtype": torch.bfloat16}, state_dict_type="SHARDED_STATE_DICT", '
        "cpu_offload=False",
    ),
    "sync": (
        'sync_module_states=True, state_dict_type="FULL_STATE_DICT"',
        'fsdp_version=2, cpu_ram_efficient_loading=True, state_dict_type="FULL_STATE_DICT"',
    ),
    "configs": (
        "state_dict_config=FullStateDictConfig(offload_to_cpu=True, rank0_only=False), "
        "optim_state_dict_config=FullOptimStateDictConfig(True, False)",
        'fsdp_version=2, state_dict_type="FULL_STATE_DICT"',
    ),
    "lines": (
        """
    # how
    sharding_strategy=ShardingStrategy.FULL_SHARD,  # all
    backward_prefetch="BACKWARD_PRE",
    state_dict_type="FULL_STATE_DICT",
    activation_checkpointing=True,
    forward_prefetch=False,
""",
        """
    # how
    # all
    fsdp_version=2,
    state_dict_type="FULL_STATE_DICT",
    activation_checkpointing=True,
""",
    ),
}


@pytest.mark.parametrize("name", _PLUGINS)
def test_plugin(tmp_path: Path, name: str) -> None:
    """The arguments become those of FSDP2, by which accelerate shards the same modules."""
    before, after = _PLUGINS[name]
    text = f"{HEAD}plugin = FullyShardedDataParallelPlugin({before})\n"
    answers = {"sync-module-states": "set"}
    new = migrated(planned(tmp_path, {"train.py": text}, **answers))["train.py"]
    assert new.partition("plugin = ")[2] == f"FullyShardedDataParallelPlugin({after})\n"
    if name in ("none", "classes", "policy", "lines"):
        old, made = of_plugin(text), of_plugin(new)
        assert (old["version"], made["version"]) == (1, 2)
        assert old["state_dict_type"] == made["state_dict_type"]
        assert old["activation_checkpointing"] == made["activation_checkpointing"]
        calls: Any = made["calls"]
        blocks = ["blocks.0", "blocks.1"] if "Block" in str(old["calls"]) else []
        assert [unit for units, _ in calls for unit in units] == [*blocks, ""]
        expected = str("SHARD_GRAD_OP" not in str(old["calls"]))
        assert {given["reshard_after_forward"] for _, given in calls[:-1]} <= {expected}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("PLUGIN(sharding_strategy='NO_SHARD')", "`NO_SHARD`; use DDP"),
        ("PLUGIN(sharding_strategy=4)", "dp_replicate_size"),
        ("PLUGIN(auto_wrap_policy='size_based_wrap', min_num_params=10)", "every module above"),
        (
            "PLUGIN(auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, "
            "min_num_params=9))",
            "every module above the size",
        ),
        ("PLUGIN(auto_wrap_policy=choose())", "ignores the policy `choose()`"),
        ("PLUGIN(param_init_fn=print)", "calls no `param_init_fn`"),
        ("PLUGIN(state_dict_type=StateDictType.LOCAL_STATE_DICT)", "no `LOCAL_STATE_DICT`"),
        ("PLUGIN(mixed_precision_policy=dict_of, fsdp_version=v)", "`fsdp_version` is not known"),
        ("PLUGIN(state_dict_config=configs())", "`state_dict_config` is not known"),
        ("PLUGIN(**settings)", "not all arguments are written as keywords"),
        ("class Mine(PLUGIN):\n    pass", "a class of its own"),
        (
            "accelerator.state.fsdp_plugin.auto_wrap_policy = policy(model)",
            "ignores policies that are set later",
        ),
    ],
)
def test_plugin_is_kept(tmp_path: Path, code: str, reason: str) -> None:
    text = HEAD + code.replace("PLUGIN", "FullyShardedDataParallelPlugin") + "\n"
    plan = planned(tmp_path, {"train.py": text})
    (entry,) = plan.of(Kept)
    assert isinstance(entry.found, Kept)
    assert reason in entry.found.reason
    assert not plan.files


def test_unknown_strategy_is_asked(tmp_path: Path) -> None:
    text = f"{HEAD}plugin = FullyShardedDataParallelPlugin(sharding_strategy=args.strategy)\n"
    (entry,) = planned(tmp_path, {"train.py": text}).of(Question)
    assert entry.key == "train.py:10:sharding-strategy"
    new = planned(tmp_path, {"train.py": text}, **{"sharding-strategy": "shard-grad-op"})
    assert "fsdp_version=2, reshard_after_forward=False" in migrated(new)["train.py"]


def test_losses_are_equal(tmp_path: Path, ranks: Ranks) -> None:
    """On two ranks, accelerate trains the same with both, but for rounding where it clips."""
    text = PROGRAM.read_text("utf-8")
    plan = planned(tmp_path, {"train.py": text})
    found = []
    for name, code in ("old", text), ("new", migrated(plan)["train.py"]):
        folder = tmp_path / name
        folder.mkdir()
        assert not report(ranks.run(code, arguments=[str(folder)], process_group=False))
        found.append([json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)])
    for old, new in zip(*found, strict=True):
        assert new == {**old, "losses": pytest.approx(old["losses"], rel=1e-6)}
        assert new["units"] == ["", "1", "2"]
    assert found[0][0]["losses"] != found[0][1]["losses"]


def test_config_is_converted_with_the_code(tmp_path: Path) -> None:
    """A launch line says which config files belong to the program, and which do not."""
    script = (
        "accelerate launch --config_file fsdp.yaml train.py\n"
        "accelerate launch --config_file fsdp.yaml other.py\n"
        "accelerate launch --config_file other.yaml other.py\n"
    )
    plugin = f"{LAUNCHED}plugin = FullyShardedDataParallelPlugin(use_orig_params=True)\n"
    files = {
        "train.py": plugin.replace(
            "Accelerator\n", "Accelerator, FullyShardedDataParallelPlugin\n", 1
        ),
        "other.py": LAUNCHED,
        "fsdp.yaml": CONFIG,
        "other.yaml": CONFIG,
        "run.sh": script,
    }
    plan = planned(tmp_path, files)
    after = migrated(plan)
    assert after.keys() == {"train.py", "fsdp.yaml"}
    assert after["fsdp.yaml"] == CONVERTED
    # The type of states is that of the config file.
    assert "FullyShardedDataParallelPlugin(fsdp_version=2)" in after["train.py"]
    (change,) = [e.found for e in plan.entries if e.path.endswith(".yaml")]
    assert isinstance(change, Change)
    assert change.what == "convert the settings to FSDP2"
    assert "persistent buffers fail" in change.differs
    assert "does not cast buffers" in change.differs
    assert change.differs.endswith("it also launches `other.py`")
    old, new = effect(CONFIG), effect(CONVERTED)
    assert (old["version"], new["version"]) == (1, 2)
    assert old["state_dict_type"] == new["state_dict_type"]


def test_config_alone(tmp_path: Path) -> None:
    """A file that is given is converted; of one that no line names the plan asks."""
    files = {"fsdp.yaml": CONFIG, "train.py": LAUNCHED}
    assert migrated(planned(tmp_path, files)) == {"fsdp.yaml": CONVERTED}
    (entry,) = planned(tmp_path, files, "train.py").of(Question)
    assert entry.key == "fsdp.yaml:4:launched-with"
    asked = planned(tmp_path, files, "train.py", **{"launched-with": "yes"})
    assert migrated(asked) == {"fsdp.yaml": CONVERTED}
    assert not planned(tmp_path, files, "train.py", **{"launched-with": "no"}).files
    sized = CONFIG.replace("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP")
    (entry,) = planned(tmp_path, {"fsdp.yaml": sized}).of(Kept)
    assert isinstance(entry.found, Kept)
    assert "also a `ModuleList`, which fails" in entry.found.reason
    (tmp_path / "notes.yaml").write_text("a: 1\n")
    with pytest.raises(MigrationError, match="no Python file and no config file of FSDP"):
        make_plan(FSDP2, [str(tmp_path / "notes.yaml")], {})


_ARGUMENTS = """\
from transformers import TrainingArguments

arguments = TrainingArguments(
    "out",
    fsdp={fsdp},
    fsdp_config={config},
)
"""


@pytest.mark.parametrize(
    ("fsdp", "before", "after"),
    [
        (
            '"shard_grad_op auto_wrap"',
            '{"version": 1, "backward_prefetch": "backward_pre"}',
            '{"reshard_after_forward": False, "version": 2}',
        ),
        (
            '["full_shard", "offload"]',
            '{\n        "use_orig_params": True,\n        "fsdp_version": 1,\n    }',
            '{\n        "fsdp_version": 2,\n    }',
        ),
        (
            "True",
            '{"version": 1, "reshard_after_forward": "shard_grad_op", "forward_prefetch": True}',
            '{"version": 2, "reshard_after_forward": False}',
        ),
        ("True", '{"version": 2}', ""),
        ("True", '{"xla": True, "version": 1}', ""),
        ('"hybrid_shard"', '{"version": 1}', "FSDP2 has no such strategy"),
        ("words", '{"version": 1}', "the words of `fsdp` are not known"),
        ("True", '{"version": 1, "auto_wrap_policy": "SIZE_BASED_WRAP"}', "every module above"),
    ],
)
def test_training_arguments(tmp_path: Path, fsdp: str, before: str, after: str) -> None:
    text = _ARGUMENTS.format(fsdp=fsdp, config=before)
    plan = planned(tmp_path, {"train.py": text})
    if not after:
        assert not plan.entries
    elif after.startswith("{"):
        assert migrated(plan) == {"train.py": _ARGUMENTS.format(fsdp=fsdp, config=after)}
        old, new = (of_arguments(eval(fsdp), eval(each)) for each in (before, after))
        assert (old["version"], new["version"]) == (1, 2)
        assert old["state_dict_type"] == new["state_dict_type"]
        units: Any = new["calls"]
        assert [unit for unit, _ in units] == [["blocks.0"], ["blocks.1"], [""]]
        reshards = str("shard_grad_op" not in fsdp + before)
        assert units[0][1]["reshard_after_forward"] == reshards
        (change,) = plan.of(Change)
        assert isinstance(change.found, Change)
        assert ("ignores with FSDP1" in change.found.differs) == (reshards == "False")
    else:
        (entry,) = plan.of(Kept)
        assert isinstance(entry.found, Kept)
        assert after in entry.found.reason


def test_training_arguments_of_older_releases(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers>=4.57,<5\n")
    text = _ARGUMENTS.format(fsdp='"full_shard"', config="{}")
    (entry,) = planned(tmp_path, {"train.py": text}).of(Kept)
    assert isinstance(entry.found, Kept)
    assert "require `transformers>=5.0`" in entry.found.reason


@pytest.mark.parametrize(
    ("imports", "code", "reason"),
    [
        (
            "from fairscale.nn.data_parallel import FullyShardedDataParallel",
            "FullyShardedDataParallel(model)",
            "fairscale's own FSDP",
        ),
        ("import deepspeed", "deepspeed.initialize(model=model)", "not with FSDP1"),
        (
            "from torch.distributed._composable import fully_shard",
            "fully_shard(model)",
            "FSDP1's composable API",
        ),
        (
            "from torchtnt.utils.prepare_module import prepare_fsdp",
            "prepare_fsdp(model, device)",
            "torchtnt shards the model with FSDP1",
        ),
        (
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
            "class Mine(FSDP):\n    pass",
            "FSDP2 shards a model in place and has no wrapper to derive from",
        ),
        (
            "import torch",
            'getattr(torch.distributed.fsdp, "FullyShardedDataParallel")(model)',
            "no step knows how to change this use",
        ),
    ],
)
def test_other_ways_to_shard(tmp_path: Path, imports: str, code: str, reason: str) -> None:
    plan = planned(tmp_path, {"train.py": f"{imports}\n\n{code}\n"})
    (entry,) = plan.of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.line == 3
    assert reason in entry.found.reason
    assert not plan.files


def test_deepspeed_beside_fsdp_is_no_hindrance(tmp_path: Path) -> None:
    text = """\
    import deepspeed
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    if zero:
        model = deepspeed.initialize(model=model)
    else:
        model = FSDP(model)
    """
    assert (
        "fully_shard(model)" in migrated(planned(tmp_path, {"train.py": dedent(text)}))["train.py"]
    )


@pytest.mark.parametrize(
    ("imported", "name"),
    [
        ("from wrap import FSDP", "FSDP"),
        ("from wrap import *", "FSDP"),
        ("import wrap", "wrap.FSDP"),
        ("import wrap as w", "w.fsdp.FullyShardedDataParallel"),
    ],
)
def test_name_of_another_file(tmp_path: Path, imported: str, name: str) -> None:
    """FSDP1's class is found where another file of the project imports it first."""
    wrap = "from torch.distributed import fsdp\nfrom torch.distributed.fsdp import FSDP\n"
    wrap = wrap.replace("import FSDP", "import FullyShardedDataParallel as FSDP")
    text = f"from torch import nn\n{imported}\n\nmodel = {name}(nn.Linear(2, 2))\n"
    after = migrated(planned(tmp_path, {"train.py": text, "wrap.py": wrap}))
    assert after["train.py"].endswith("model = nn.Linear(2, 2)\nfully_shard(model)\n")


def test_code_around_the_plugin(tmp_path: Path) -> None:
    """Rules and other steps mend what FSDP2 takes in another way, in a notebook too."""
    before = """\
    import torch
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

    plugin = FullyShardedDataParallelPlugin(use_orig_params=True)
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = nn.Linear(2, 2)
    model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer = accelerator.prepare(optimizer)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = model.state_dict()
    """
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}]
    cells[0]["source"] = dedent(before).splitlines(keepends=True)
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    plan = planned(tmp_path, {"train.ipynb": json.dumps(notebook)})
    after = migrated(plan)["train.ipynb"]
    assert 'Plugin(fsdp_version=2, state_dict_type="FULL_STATE_DICT")' in after
    assert "model, optimizer = accelerator.prepare(model, optimizer)" in after
    assert "state = get_model_state_dict(model)" in after
    assert "FSDP.state_dict_type" not in after


def test_a_model_that_is_prepared_alone_is_kept(tmp_path: Path) -> None:
    text = f"""{HEAD}
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
accelerator.prepare_model(teacher, evaluation_mode=True)
model = accelerator.prepare_model(torch.nn.Linear(2, 2))
"""
    (entry,) = planned(tmp_path, {"train.py": text}).of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.line == 13
    assert "pass the model and its optimizer to `prepare`" in entry.found.reason


_APART = f"""{HEAD}
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(use_orig_params=False))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
"""


def test_a_model_and_an_optimizer_that_are_prepared_apart(tmp_path: Path) -> None:
    """FSDP1 trains nothing then, and `check` finds it before the migration, too."""
    apart = f"{_APART}model = accelerator.prepare(model)\n"
    plan = planned(tmp_path, {"train.py": f"{apart}optimizer = accelerator.prepare(optimizer)\n"})
    assert "model, optimizer = accelerator.prepare(model, optimizer)" in migrated(plan)["train.py"]

    (entry,) = planned(tmp_path, {"train.py": apart}).of(Kept)
    assert isinstance(entry.found, Kept)
    assert (entry.line, entry.found.reason) == (
        apart.count("\n"),
        "the program does not prepare the other one; pass both to one `prepare` call",
    )


def test_older_releases_of_accelerate(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("accelerate>=1.2\n")
    text = f"{HEAD}plugin = FullyShardedDataParallelPlugin()\n"
    plan = planned(tmp_path, {"train.py": text, "fsdp.yaml": CONFIG}, "train.py", "fsdp.yaml")
    assert [entry.line for entry in plan.of(Kept)] == [4, 10]
    for entry in plan.of(Kept):
        assert isinstance(entry.found, Kept)
        assert "require `accelerate>=1.6`" in entry.found.reason


def test_files_of_other_frameworks(tmp_path: Path) -> None:
    """Of a file that a parser may read the plan asks."""
    code = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    arguments = "output_dir: out\nlearning_rate: 0.1\nlogging_steps: 1\nfsdp: full_shard\n"
    arguments += "fsdp_config:\n  version: 1\n  use_orig_params: true\n"
    files = {"train.py": code, "train.yaml": arguments}
    (entry,) = planned(tmp_path, files).of(Question)
    assert entry.key == "train.yaml:5:launched-with"
    after = migrated(planned(tmp_path, files, "train.yaml"))["train.yaml"]
    assert after.endswith("fsdp_config:\n  version: 2\n")


def test_a_model_that_is_built_in_its_prepare_call_gets_a_name(tmp_path: Path) -> None:
    head = f"{HEAD}accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())\n"
    for built in ("torch.nn.Linear(2, 2)", "made"):
        text = f"""{head}made = torch.nn.Linear(2, 2)
model = accelerator.prepare({built})
optimizer = torch.optim.AdamW(model.parameters())
optimizer = accelerator.prepare(optimizer)
"""
        after = migrated(planned(tmp_path, {"train.py": text}))["train.py"]
        assert after.endswith(f"""
model = {built}
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
""")


def test_models_without_names_are_not_prepared_before_they_are_used(tmp_path: Path) -> None:
    text = f"""{HEAD}
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(use_orig_params=True))
model, other = accelerator.prepare(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters())
optimizer = accelerator.prepare(optimizer)
"""
    (entry,) = planned(tmp_path, {"train.py": text}).of(Kept)
    assert isinstance(entry.found, Kept)
    assert "`model, other` is used before the second call" in entry.found.reason
