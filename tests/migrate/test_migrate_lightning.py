"""Programs that shard through Lightning's trainer or Fabric move to FSDP2, or are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.differential.program import Program
from benchmarks.migrated import PROVEN, proved
from fsdplint.verify.warm_launcher import Warm

_PROGRAMS = Path(__file__).parent / "programs"
_TRAINER = (_PROGRAMS / "trainer.py").read_text("utf-8")
_FABRIC = (_PROGRAMS / "fabric.py").read_text("utf-8")
_STRATEGY = "FSDPStrategy(auto_wrap_policy={Block})"
_IMPORTS = """\
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
class Data(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(32, 16)), batch_size=4)


if __name__ == "__main__":
    LightningCLI(Model, Data, args=["fit", "--config", "config.yaml"])
"""


def trainer(strategy: str = _STRATEGY, options: str = "") -> str:
    """Return a program with another strategy, and more arguments of the trainer."""
    text = _TRAINER.replace(_STRATEGY, strategy)
    text = text.replace("max_epochs=1,", f"max_epochs=1,{options}")
    return text.replace("from torch.utils", f"{_IMPORTS}from torch.utils")


def cli() -> dict[str, str]:
    """Return a program with a config file."""
    script = _TRAINER.partition("def main():")[0] + _CLI
    script = script.replace("import torch\n", "import torch\nimport lightning.pytorch.cli\n", 1)
    script = script.replace(
        "import lightning.pytorch.cli", "from lightning.pytorch.cli import LightningCLI"
    )
    return {"train.py": script, "config.yaml": _CONFIG}


_TRAINERS = {
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
    "accumulated": trainer(
        options=' accumulate_grad_batches=2, gradient_clip_val=0.1, gradient_clip_algorithm="value",'
    ),
}
_STEP = "loss = model(batch).square().mean()"
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
        model = Net()
    model = fabric.setup_module(model)
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-2))
"""
_FABRICS = {
    "plain": _FABRIC.replace(
        "        optimizer.step()",
        "        fabric.clip_gradients(model, optimizer, max_norm=0.1)\n        optimizer.step()",
    ),
    "together": _FABRIC.replace(_SETUP, _TOGETHER).replace(
        _STRATEGY, '"fsdp", precision="bf16-mixed"'
    ),
    "empty": _FABRIC.replace(_SETUP, _EMPTY),
    "marked": _FABRIC.replace(_SETUP, f'{_SETUP}    model.mark_forward_method("score")\n').replace(
        _STEP, "loss = model.score(batch)"
    ),
    "unsynchronized": _FABRIC.replace(
        _STEP,
        "with fabric.no_backward_sync(model, enabled=index % 2 == 0):\n            loss = model(batch).square().mean()",
    ),
}


def _check(files: dict[str, str], warm: Warm) -> None:
    program = Program("lightning", {"pyproject.toml": "", **files}, "train.py", ((),))
    result = proved(program, warm)
    assert (result.verdict, result.reasons) in ((PROVEN, ()),)


@pytest.mark.parametrize("name", _TRAINERS)
def test_trainer_on_ranks(name: str, warm: Warm) -> None:
    """A module shards itself as the strategy for FSDP1 sharded it."""
    _check({"train.py": _TRAINERS[name]}, warm)


@pytest.mark.parametrize("name", _FABRICS)
def test_fabric_on_ranks(name: str, warm: Warm) -> None:
    """A function shards models as the strategy for FSDP1 sharded them."""
    _check({"train.py": _FABRICS[name]}, warm)


def test_config_file_on_ranks(warm: Warm) -> None:
    """A strategy in a file for `LightningCLI` is migrated with the module in the script."""
    _check(cli(), warm)
