"""Which calls and files give strategies to Lightning, and what is found in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.fixes.edits import apply
from fsdplint.outcome import Outcome
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import OptIn

CODES = tuple(f"FSD93{number}" for number in range(1, 6))
WRAPS = "FSD936"
HEAD = (
    "import lightning as L\n"
    "import lightning.pytorch as pl\n"
    "import torch\n"
    "from lightning.fabric.strategies import FSDPStrategy as ForFabric\n"
    "from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy\n"
    "from torch.distributed.fsdp import ShardingStrategy\n"
    "class Model(L.LightningModule):\n"
    "    pass\n"
    "class Block(torch.nn.Module):\n"
    "    pass\n"
)
CLI = "from lightning.pytorch.cli import LightningCLI\nclass M(LightningModule): pass\n"


def outcome(folder: Path, files: dict[str, str]) -> Outcome:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8", newline="")
    return check([folder], defaults(OptIn(preview=True)))


def found(
    folder: Path, files: dict[str, str], codes: tuple[str, ...] = CODES
) -> list[tuple[str, str]]:
    """Return the codes of findings, each with the text of its place."""
    made = outcome(folder, files)
    assert not made.failures
    ours = [each for each in made.findings if each.code in codes]
    return [
        (each.code, files[Path(each.span.path).name][each.span.start : each.span.end])
        for each in ours
    ]


CALLS = {
    "unknown": ("FSDPStrategy(wrap_policy={Block})", [("FSD931", "wrap_policy")]),
    "twice": ("ForFabric(module=None)", [("FSD931", "module")]),
    "of the other strategy": (
        "ModelParallelStrategy(auto_wrap_policy={Block})",
        [("FSD931", "auto_wrap_policy")],
    ),
    "of FSDP1 itself": ("FSDPStrategy(sync_module_states=True, forward_prefetch=True)", []),
    "list": (
        "FSDPStrategy(auto_wrap_policy=[Block])",
        [("FSD932", "auto_wrap_policy=[Block]")],
    ),
    "class": (
        "FSDPStrategy(activation_checkpointing_policy=Block)",
        [("FSD932", "activation_checkpointing_policy=Block")],
    ),
    "class of torch": (
        "FSDPStrategy(auto_wrap_policy=torch.nn.Linear)",
        [("FSD932", "auto_wrap_policy=torch.nn.Linear")],
    ),
    "policies": ("FSDPStrategy(auto_wrap_policy=policy, activation_checkpointing_policy=None)", []),
    "list of the deprecated one": ("FSDPStrategy(activation_checkpointing=[Block])", []),
    "states": (
        "ForFabric(state_dict_type='SHARDED')",
        [("FSD932", "state_dict_type='SHARDED'")],
    ),
    "states that are computed": ("ForFabric(state_dict_type='SHARDED'.lower())", []),
    "no such strategy": (
        "FSDPStrategy(sharding_strategy='hybrid')",
        [("FSD932", "sharding_strategy='hybrid'")],
    ),
    "strategies": (
        "FSDPStrategy(sharding_strategy='shard_grad_op'), "
        "FSDPStrategy(sharding_strategy=ShardingStrategy.NO_SHARD)",
        [],
    ),
    "texts": (
        "FSDPStrategy(backward_prefetch='BACKWARD_POST', mixed_precision='bf16')",
        [("FSD932", "backward_prefetch='BACKWARD_POST'"), ("FSD932", "mixed_precision='bf16'")],
    ),
    "true": ("FSDPStrategy(mixed_precision=True)", [("FSD932", "mixed_precision=True")]),
    "no text": ("FSDPStrategy(backward_prefetch=None, mixed_precision=None, timeout=None)", []),
    "mesh": ("FSDPStrategy(device_mesh=(2, 4))", [("FSD934", "device_mesh=(2, 4)")]),
    "mesh with a strategy": (
        "ForFabric(device_mesh=(2, 4), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)",
        [("FSD934", "device_mesh=(2, 4)")],
    ),
    "meshes": (
        "FSDPStrategy(device_mesh=(2, 4), sharding_strategy=ShardingStrategy.HYBRID_SHARD), "
        "FSDPStrategy(device_mesh=(8, 1)), FSDPStrategy(device_mesh=(2, count)), "
        "FSDPStrategy(device_mesh=(2, 4), sharding_strategy=chosen), "
        "FSDPStrategy(device_mesh=mesh), "
        "FSDPStrategy(device_mesh=(2, 4), **more)",
        [],
    ),
    "clips": (
        "L.Trainer(strategy='fsdp', gradient_clip_val=1)",
        [("FSD933", "gradient_clip_val=1")],
    ),
    "clips by norm": (
        "pl.Trainer(strategy=FSDPStrategy(auto_wrap_policy={Block}), gradient_clip_val=0.5, "
        "gradient_clip_algorithm='norm')",
        [("FSD933", "gradient_clip_val=0.5")],
    ),
    "clips by value": (
        "L.Trainer(strategy='fsdp', gradient_clip_val=1, gradient_clip_algorithm='value')",
        [],
    ),
    "clips by an unknown algorithm": (
        "L.Trainer(strategy='fsdp', gradient_clip_val=1, gradient_clip_algorithm=by)",
        [],
    ),
    "clips with a plugin": (
        "L.Trainer(strategy='fsdp', gradient_clip_val=1, plugins=[Own()])",
        [],
    ),
    "clips with more": ("L.Trainer(strategy='fsdp', gradient_clip_val=1, **more)", []),
    "does not clip": ("L.Trainer(strategy='fsdp', gradient_clip_val=0)", []),
    "clips with DDP": ("L.Trainer(strategy='ddp', gradient_clip_val=1)", []),
    "clips with FSDP2": ("L.Trainer(strategy=ModelParallelStrategy(), gradient_clip_val=1)", []),
    "sizes": (
        "L.Trainer(strategy=ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=1), "
        "devices=8)",
        [("FSD935", "data_parallel_size=4")],
    ),
    "sizes of two nodes": (
        "L.Trainer(strategy=ModelParallelStrategy(data_parallel_size=8, tensor_parallel_size=2), "
        "devices=[0, 1, 2, 3, 4, 5, 6, 7], num_nodes=2)",
        [],
    ),
    "sizes of unknown devices": (
        "L.Trainer(strategy=ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=1), "
        "devices=-1)",
        [],
    ),
    "one size": (
        "L.Trainer(strategy=ModelParallelStrategy(data_parallel_size=4), devices=count)",
        [("FSD935", "data_parallel_size=4")],
    ),
    "one size of unknown nodes": (
        "L.Trainer(strategy=ModelParallelStrategy(data_parallel_size=4), num_nodes=nodes)",
        [],
    ),
    "one size and more": (
        "L.Trainer(strategy=ModelParallelStrategy(data_parallel_size=4, **more), devices=8)",
        [],
    ),
    "precision": (
        "L.Trainer(strategy='fsdp', precision='transformer-engine')",
        [("FSD935", "precision='transformer-engine'")],
    ),
    "precisions": (
        "L.Trainer(strategy='fsdp', precision=16), L.Trainer(strategy='fsdp', precision='bf16'), "
        "L.Trainer(strategy=ModelParallelStrategy(), precision='bf16-mixed')",
        [],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str, tmp_path: Path) -> None:
    call, expected = CALLS[name]
    assert found(tmp_path, {"train.py": f"{HEAD}made = {call}\n"}) == expected


FLOWS = {
    "arms apart": (
        "    if fsdp:\n        s = 'fsdp'\n        return L.Trainer(strategy=s)\n"
        "    else:\n        s = 'ddp'\n        return L.Trainer(strategy=s, gradient_clip_val=1)\n",
        False,
    ),
    "one of two arms": (
        "    if fsdp:\n        s = 'fsdp'\n    else:\n        s = 'ddp'\n"
        "    return L.Trainer(strategy=s, gradient_clip_val=1)\n",
        True,
    ),
    "replaced": (
        "    s = 'fsdp'\n    s = 'ddp'\n    return L.Trainer(strategy=s, gradient_clip_val=1)\n",
        False,
    ),
    "perhaps replaced": (
        "    s = FSDPStrategy(auto_wrap_policy={Block})\n    if not fsdp:\n        s = 'ddp'\n"
        "    return L.Trainer(strategy=s, gradient_clip_val=1)\n",
        True,
    ),
    "one of two values": (
        "    return L.Trainer(strategy='fsdp' if fsdp else 'ddp', gradient_clip_val=1)\n",
        True,
    ),
    "the other arm": (
        "    s = 'ddp'\n    if fsdp:\n        s = 'fsdp'\n        print(s)\n"
        "    else:\n        return L.Trainer(strategy=s, gradient_clip_val=1)\n",
        False,
    ),
    "a parameter": ("    return L.Trainer(strategy=fsdp, gradient_clip_val=1)\n", False),
}


@pytest.mark.parametrize("name", FLOWS)
def test_what_a_variable_may_be(name: str, tmp_path: Path) -> None:
    body, clips = FLOWS[name]
    expected = [("FSD933", "gradient_clip_val=1")] if clips else []
    assert found(tmp_path, {"train.py": f"{HEAD}def trainer(fsdp):\n{body}"}) == expected


def test_a_module_that_clips_by_itself_and_no_module_at_all(tmp_path: Path) -> None:
    call = "L.Trainer(strategy='fsdp', gradient_clip_val=1)\n"
    own = {"model.py": "class Base:\n    def configure_gradient_clipping(self): ...\n"}
    assert found(tmp_path / "own", {"train.py": HEAD + call, **own}) == []
    assert found(tmp_path / "none", {"train.py": f"import lightning as L\n{call}"}) == []


def test_the_releases_of_the_project_count(tmp_path: Path) -> None:
    files = {"train.py": f"{HEAD}made = FSDPStrategy(wrap_policy={{Block}})\n"}
    old = {**files, "requirements.txt": "pytorch-lightning==1.9.5\n"}
    assert found(tmp_path / "old", old) == []
    assert found(tmp_path / "new", {**files, "requirements.txt": "lightning>=2.4,<2.6\n"}) == [
        ("FSD931", "wrap_policy")
    ]


CLASS = "class_path: lightning.pytorch.strategies"
FILES = {
    "clips": (
        f"  strategy:\n    {CLASS}.FSDPStrategy\n  gradient_clip_val: 1.0\n",
        ["gradient_clip_val: 1.0"],
    ),
    "clips, by a short name": (
        "  strategy:\n    class_path: FSDPStrategy\n  gradient_clip_val: 1.0\n",
        ["gradient_clip_val: 1.0"],
    ),
    "clips, by a word": (
        "  strategy: fsdp\n  gradient_clip_val: 1\n  gradient_clip_algorithm: null\n",
        ["gradient_clip_val: 1"],
    ),
    "clips by value": (
        "  strategy: fsdp\n  gradient_clip_val: 1\n  gradient_clip_algorithm: value\n",
        [],
    ),
    "clips, filled in": ("  strategy: fsdp\n  gradient_clip_val: ${clip}\n", []),
    "merged": ("  <<: *x\n  strategy: fsdp\n  gradient_clip_val: 1\n", []),
    "sizes": (
        f"  devices: 8\n  strategy:\n    {CLASS}.ModelParallelStrategy\n    init_args:\n"
        "      data_parallel_size: 2\n      tensor_parallel_size: 2\n",
        ["data_parallel_size: 2"],
    ),
    "precision": (
        f"  precision: 16-mixed\n  strategy:\n    {CLASS}.ModelParallelStrategy\n",
        ["precision: 16-mixed"],
    ),
    "mesh": (
        f"  strategy:\n    {CLASS}.FSDPStrategy\n    init_args:\n      device_mesh: [2, 4]\n",
        ["device_mesh: [2, 4]"],
    ),
    "hybrid mesh": (
        f"  strategy:\n    {CLASS}.FSDPStrategy\n    init_args:\n      device_mesh: [2, 4]\n"
        "      sharding_strategy: HYBRID_SHARD\n",
        [],
    ),
    "another class": (
        "  strategy:\n    class_path: own.FSDPStrategy\n  gradient_clip_val: 1.0\n",
        [],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_for_the_command_line(name: str, tmp_path: Path) -> None:
    text, expected = FILES[name]
    files = {"config.yaml": f"x: &x {{a: 1}}\ntrainer:\n{text}", "main.py": CLI}
    assert [place for _, place in found(tmp_path, files)] == expected


def test_files_of_a_project_without_it_are_left_alone(tmp_path: Path) -> None:
    text, _ = FILES["clips, by a word"]
    files = {"config.yaml": f"trainer:\n{text}", "main.py": "class M(LightningModule): pass\n"}
    assert found(tmp_path, files) == []


UNITS = {
    "word": ("L.Trainer(strategy='fsdp')", ["strategy='fsdp'"]),
    "fabric": ("L.Fabric(strategy=ForFabric())", ["strategy=ForFabric()"]),
    "none": (
        "L.Trainer(strategy=FSDPStrategy(auto_wrap_policy=None))",
        ["strategy=FSDPStrategy(auto_wrap_policy=None)"],
    ),
    "policy": ("L.Trainer(strategy=FSDPStrategy(auto_wrap_policy={Block}))", []),
    "not sharded": ("L.Trainer(strategy=FSDPStrategy(sharding_strategy='no_shard'))", []),
    "unknown strategy": ("L.Trainer(strategy=FSDPStrategy(sharding_strategy=chosen))", []),
    "more": ("L.Trainer(strategy=FSDPStrategy(**more))", []),
    "FSDP2": ("L.Trainer(strategy=ModelParallelStrategy())", []),
}


@pytest.mark.parametrize("name", UNITS)
def test_the_model_as_one_unit(name: str, tmp_path: Path) -> None:
    call, expected = UNITS[name]
    files = {"train.py": f"{HEAD}made = {call}\n"}
    assert found(tmp_path / "a", files, (WRAPS,)) == [(WRAPS, place) for place in expected]
    wraps = {**files, "model.py": "def configure_model(self): ...\n"}
    assert found(tmp_path / "b", wraps, (WRAPS,)) == []


def test_a_file_with_the_model_as_one_unit(tmp_path: Path) -> None:
    text = f"trainer:\n  strategy:\n    {CLASS}.FSDPStrategy\n"
    files = {"config.yaml": text, "main.py": CLI}
    assert found(tmp_path, files, (WRAPS,)) == [(WRAPS, "strategy")]


def test_a_file_gets_the_hybrid_strategy(tmp_path: Path) -> None:
    head = f"trainer:\n  strategy:\n    {CLASS}.FSDPStrategy\n    init_args:\n"
    text = f"{head}      device_mesh: [2, 4]  # of nodes\n"
    made = outcome(tmp_path, {"config.yaml": text, "main.py": CLI})
    (fix,) = [each.fix for each in made.findings if each.code == "FSD934"]
    assert fix is not None
    assert apply(text, fix.edits) == (
        f"{head}      sharding_strategy: HYBRID_SHARD\n      device_mesh: [2, 4]  # of nodes\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "trainer:\n  strategy: [fsdp]\n",
        "trainer:\n  strategy: {class_path: 3}\n# FSDPStrategy\n",
        "trainer: FSDPStrategy\n",
        "trainer:\n  strategy:\n    class_path: FSDPStrategy\n    init_args: [1]\n",
        "trainer:\n  strategy: &a {class_path: FSDPStrategy, init_args: *a}\n",
        "trainer:\n  strategy: !!python/object FSDPStrategy\n",
        "trainer:\n  strategy: {class_path: FSDPStrategy\n",
    ],
)
def test_files_of_another_form_raise_nothing(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, {"config.yaml": text, "main.py": CLI}) == []
