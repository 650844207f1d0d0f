"""Programs that shard through Lightning's trainer or Fabric move to FSDP2, or are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_migrate_frameworks import migrated, planned

from benchmarks.differential.program import Program
from benchmarks.migrated import PROVEN, proved
from fsdplint.migrate.step import Kept, Question
from fsdplint.verify.warm_launcher import Warm

_PROGRAMS = Path(__file__).parent / "programs"
_TRAINER = (_PROGRAMS / "trainer.py").read_text("utf-8")
_FABRIC = (_PROGRAMS / "fabric.py").read_text("utf-8")
_STRATEGY = "FSDPStrategy(auto_wrap_policy={Block})"
_IMPORTS = """\
import functools
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy
"""
_CONFIG = """\
seed_everything: 0
trainer:
  accelerator: gpu
  devices: 2
  max_epochs: 1
  logger: false
  limit_val_batches: 0
  strategy:
    class_path: lightning.pytorch.strategies.FSDPStrategy
    init_args:
      sharding_strategy: SHARD_GRAD_OP
      cpu_offload: true
"""
_CLI = """\
class Data(lightning.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(32, 16)), batch_size=4)


if __name__ == "__main__":
    arguments = ["fit", "--config", "config.yaml"]
    LightningCLI(Model, Data, save_config_callback=None, args=arguments)
"""


def trainer(strategy: str = _STRATEGY, options: str = "") -> str:
    """Return a program with another strategy, and more arguments of the trainer."""
    text = _TRAINER.replace(_STRATEGY, strategy)
    text = text.replace("max_epochs=1,", f"max_epochs=1,{options}")
    return text.replace("from torch.utils", f"{_IMPORTS}from torch.utils")


def cli() -> dict[str, str]:
    """Return a program with a config file."""
    script = _TRAINER.partition("def main():")[0] + _CLI
    imported = "import torch\nfrom lightning.pytorch.cli import LightningCLI\n"
    script = script.replace("import torch\n", imported, 1)
    return {"train.py": script, "config.yaml": _CONFIG}


_TRAINERS = {
    "direct": trainer(options=" limit_val_batches=0,").replace(
        "loss = self(batch[0])", "loss = (self.blocks(batch[0]) * self.scale)"
    ),
    "bf16-mixed": trainer(options=' precision="bf16-mixed",'),
    "word": trainer('"fsdp_cpu_offload"'),
    "policy": trainer(
        "FSDPStrategy(auto_wrap_policy=ModuleWrapPolicy({Block}), cpu_offload=CPUOffload(True), "
        'sharding_strategy="SHARD_GRAD_OP", activation_checkpointing_policy={Block}, '
        'state_dict_type="sharded", limit_all_gathers=True)'
    ),
    "hybrid": trainer(
        "FSDPStrategy(auto_wrap_policy={Block}, sharding_strategy=ShardingStrategy.HYBRID_SHARD, "
        "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True))"
    ),
    "mesh": trainer(
        "FSDPStrategy(auto_wrap_policy=lambda module, recurse, nonwrapped_numel: recurse or "
        'isinstance(module, Block), sharding_strategy="HYBRID_SHARD", device_mesh=(1, 2))',
        ' precision="bf16-true",',
    ),
    "sized": trainer(
        "FSDPStrategy(auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, "
        "min_num_params=200))"
    ),
    "accumulated": trainer(
        options=' accumulate_grad_batches=2, gradient_clip_val=1, gradient_clip_algorithm="value",'
    ),
}
_SETUP = """\
    model = fabric.setup_module(Net())
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-2))
"""
_TOGETHER = """\
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    model, optimizer = fabric.setup(model, optimizer)
"""
_EMPTY = """\
    with fabric.init_module(empty_init=True):
        net = Net()
""" + _SETUP.replace("Net()", "net")
_STEP = """\
        loss = model(batch).square().mean()
        fabric.backward(loss)
        optimizer.step()
"""
_CLIP = _STEP.replace(
    "        optimizer",
    "        fabric.clip_gradients(model, optimizer, max_norm=0.1)\n        optimizer",
)
_UNSYNCHRONIZED = """\
        with fabric.no_backward_sync(model, enabled=index % 2 == 0):
            loss = model(batch).square().mean()
            fabric.backward(loss)
        if index % 2 == 0:
            continue
        optimizer.step()
"""
_FABRICS = {
    "clipped": _FABRIC.replace(_STEP, _CLIP),
    "together": _FABRIC.replace(_SETUP, _TOGETHER).replace(
        _STRATEGY, '"fsdp", precision="bf16-mixed"'
    ),
    "empty": _FABRIC.replace(_SETUP, _EMPTY),
    "marked": _FABRIC.replace(_SETUP, f'{_SETUP}    model.mark_forward_method("score")\n').replace(
        "model(batch).square().mean()", "model.score(batch)"
    ),
    "unsynchronized": _FABRIC.replace(_STEP, _UNSYNCHRONIZED).replace(
        "for batch in data:", "for index, batch in enumerate(data):"
    ),
}


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm(["lightning.pytorch"]) as launcher:
        yield launcher


def _check(files: dict[str, str], warm: Warm) -> None:
    program = Program("lightning", {"pyproject.toml": "", **files}, "train.py", ((),))
    result = proved(program, warm)
    assert (result.verdict, result.reasons) == (PROVEN, ())


@pytest.mark.parametrize("name", _TRAINERS)
def test_trainer_on_ranks(name: str, warm: Warm) -> None:
    """A module shards itself as the strategy for FSDP1 sharded it."""
    _check({"train.py": _TRAINERS[name]}, warm)


@pytest.mark.parametrize("name", _FABRICS)
def test_fabric_on_ranks(name: str, warm: Warm) -> None:
    """A function shards models as the strategy for FSDP1 sharded them."""
    _check({"train.py": _FABRICS[name]}, warm)


_MODULE = """\
    def configure_model(self):
        # The trainer calls this again before it validates, tests or predicts.
        if self.device_mesh is None or isinstance(self, FSDPModule):
            return
        mesh = self.device_mesh["data_parallel"]
        for module in reversed(list(self.modules())):
            if module is not self and isinstance(module, Block):
                fully_shard(module, mesh=mesh)
        fully_shard(self, mesh=mesh)
        for step in ("training_step", "validation_step", "test_step", "predict_step"):
            register_fsdp_forward_method(self, step)
"""
_NEW = """\
        strategy=ModelParallelStrategy(
            data_parallel_size=2,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
        ),
"""
_FUNCTION = """\
def shard(model, device_mesh):
    mesh = device_mesh["data_parallel"]
    for module in reversed(list(model.modules())):
        if module is not model and isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model
"""


def test_the_module_of_a_trainer(tmp_path: Path) -> None:
    text = migrated(planned(tmp_path, {"train.py": _TRAINER}))["train.py"]
    assert _MODULE in text
    assert (
        "from lightning.pytorch.strategies import ModelParallelStrategy\n" in text
        and "FSDPStrategy" not in text
    )
    assert _NEW in text
    again = planned(tmp_path, {"train.py": text})
    assert not again.entries


def test_the_function_of_a_fabric(tmp_path: Path) -> None:
    text = migrated(planned(tmp_path, {"train.py": _FABRIC}))["train.py"]
    assert f"{_FUNCTION}\n\ndef main():" in text
    assert "parallelize_fn=shard, data_parallel_size=2, tensor_parallel_size=1\n" in text


def test_a_module_in_another_file(tmp_path: Path) -> None:
    """The classes of a policy are imported where the module is; a copy of the script's stays."""
    head, _, body = _TRAINER.partition("class Block")
    block, _, rest = f"class Block{body}".partition("class Model")
    module, _, main = f"class Model{rest}".partition("def main")
    blocks = "from torch import nn\n\n\n" + block
    model = "import lightning\nimport torch\nfrom torch import nn\nfrom blocks import Block\n\n\n"
    imported = head + "from blocks import Block\nfrom model import Model\n\n\ndef main" + main
    files = {"train.py": imported, "blocks.py": blocks, "model.py": model + module}
    after = migrated(planned(tmp_path, files))
    assert after.keys() == {"train.py", "model.py"}
    assert _MODULE in after["model.py"]
    files["model.py"] = files["model.py"].replace("from blocks import Block", "import blocks")
    files["model.py"] = files["model.py"].replace("(Block()", "(blocks.Block()")
    after = migrated(planned(tmp_path, files))
    assert "isinstance(module, blocks.Block)" in after["model.py"]


def test_a_derived_module(tmp_path: Path) -> None:
    """What shards a module is in the class that the others are derived from."""
    text = _TRAINER.replace("def main():", "class Other(Model):\n    pass\n\n\ndef main():")
    after = migrated(planned(tmp_path, {"train.py": text}))["train.py"]
    assert after.count("def configure_model") == 1
    assert after.index("def configure_model") < after.index("class Other")
    own = "    def configure_model(self):\n        self.more = Block()\n"
    after = migrated(planned(tmp_path, {"train.py": text.replace("    pass\n", own)}))["train.py"]
    assert f"{own}        # The trainer calls this again" in after
    assert after.count("fully_shard(self, mesh=mesh)") == 2


def test_devices(tmp_path: Path) -> None:
    """The number of ranks comes from the devices and nodes, or a question."""
    for devices, size in {
        "devices=2, num_nodes=3": "6",
        "devices=[0, 1]": "2",
        'devices="0,1"': "2",
        "devices=-1": "torch.cuda.device_count()",
        'devices="auto", num_nodes=count': "torch.cuda.device_count() * count",
        "devices=torch.cuda.device_count()": "torch.cuda.device_count()",
    }.items():
        text = _TRAINER.replace("devices=2", devices).replace("main():", "main(count=2):")
        assert (
            f"data_parallel_size={size},"
            in migrated(planned(tmp_path, {"train.py": text}))["train.py"]
        )
    text = _TRAINER.replace("devices=2", "devices=count").replace("main():", "main(count=2):")
    (entry,) = planned(tmp_path, {"train.py": text}).of(Question)
    assert isinstance(entry.found, Question)
    assert entry.found.text == "Is `count` the number of GPUs of a node, as an integer?"
    after = migrated(planned(tmp_path, {"train.py": text}, devices="yes"))["train.py"]
    assert "data_parallel_size=count," in after


_REFUSED = {
    "precision": (
        trainer(options=' precision="16-mixed",'),
        '`ModelParallelStrategy` has no `precision="16-mixed"`',
    ),
    "unsharded": (
        trainer('FSDPStrategy(sharding_strategy="NO_SHARD")'),
        'use `strategy="ddp"` instead of `NO_SHARD`',
    ),
    "argument": (
        trainer("FSDPStrategy(ignored_modules=[])"),
        "`ignored_modules` has no counterpart",
    ),
    "manual": (
        _TRAINER.replace(
            "        self.scale", "        self.automatic_optimization = False\n        self.scale"
        ),
        "`Model` optimizes by itself",
    ),
    "wrapped": (
        _TRAINER.replace("        self.scale", "        wrap(self.blocks)\n        self.scale", 1),
        "`Model` wraps or shards parts of itself",
    ),
    "inherited": (
        _TRAINER.replace(
            "    def forward(self, x):\n        return self.blocks",
            "    def configure_model(self):\n        super().configure_model()\n\n"
            "    def forward(self, x):\n        return self.blocks",
        ),
        "`Model` wraps or shards parts of itself",
    ),
    "batchnorm": (
        trainer(options=" sync_batchnorm=True,"),
        "`ModelParallelStrategy` ignores it",
    ),
    "no module": (
        "import lightning as L\n\nL.Trainer(strategy='fsdp')\n",
        "the program defines no `LightningModule`",
    ),
    "derived": (
        _TRAINER + "\n\nclass Mine(FSDPStrategy):\n    pass\n",
        "this may make or change the strategy",
    ),
    "made": (
        trainer("FSDPStrategy(auto_wrap_policy=made())"),
        "`made()` does not show which modules it selects",
    ),
    "local": (
        trainer("FSDPStrategy(auto_wrap_policy=policy)").replace(
            "def main():", "def main(policy):"
        ),
        "`policy` does not show which modules it selects",
    ),
    "marked": (
        _FABRICS["marked"].replace("devices=2", 'devices=2, precision="bf16-mixed"'),
        "`Fabric` calls `score` without `precision=bf16-mixed`",
    ),
    "started": (
        _TRAINERS["accumulated"].replace(
            "def forward(self, x):\n        return self.blocks",
            "def on_train_batch_start(self, batch, index):\n        pass\n\n"
            "    def forward(self, x):\n        return self.blocks",
        ),
        "`Model` has `on_train_batch_start`",
    ),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_refused(tmp_path: Path, name: str) -> None:
    """What has no counterpart is kept, with what to do by hand, and nothing is written."""
    text, reason = _REFUSED[name]
    plan = planned(tmp_path, {"train.py": text})
    assert not plan.is_complete
    reasons = [entry.found.reason for entry in plan.of(Kept) if isinstance(entry.found, Kept)]
    assert [each for each in reasons if reason in each]


def test_older_releases(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("lightning>=2.1\n")
    (entry,) = planned(tmp_path, {"train.py": _TRAINER}).of(Kept)
    assert isinstance(entry.found, Kept)
    assert "require `lightning>=2.3`" in entry.found.reason


def test_a_test_for_the_strategy(tmp_path: Path) -> None:
    text = _TRAINER.replace(
        "    trainer.fit", "    assert isinstance(trainer.strategy, FSDPStrategy)\n    trainer.fit"
    )
    after = migrated(planned(tmp_path, {"train.py": text}))["train.py"]
    assert "isinstance(trainer.strategy, ModelParallelStrategy)" in after


def test_a_config_file(tmp_path: Path) -> None:
    """A strategy in a file for `LightningCLI` is migrated with the module in the script."""
    after = migrated(planned(tmp_path, cli()))
    assert (
        after["config.yaml"]
        == _CONFIG.partition("    class_path")[0]
        + """\
    class_path: lightning.pytorch.strategies.ModelParallelStrategy
    init_args:
      data_parallel_size: 2
      tensor_parallel_size: 1
      save_distributed_checkpoint: false
"""
    )
    assert "offload_policy=CPUOffloadPolicy()" in after["train.py"]


def test_a_file_without_a_number_of_devices(tmp_path: Path) -> None:
    files = cli()
    files["config.yaml"] = files["config.yaml"].replace("devices: 2", "devices: auto")
    (entry,) = planned(tmp_path, files).of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.found.reason == "the file does not say the number of `devices`; write it there"
