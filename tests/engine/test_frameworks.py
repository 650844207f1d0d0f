"""Objects of frameworks that shard by their settings: what all ranks have to call on them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from engine.helpers import program

from fsdplint.rules.collective_under_rank_guard import missed_collectives


def missed(folder: Path, text: str) -> list[str]:
    """The texts of the calls that some ranks miss, in order of place."""
    text = textwrap.dedent(text)
    made = program(folder, {"train.py": text})
    facts = missed_collectives(made.only((*made.traces, *made.method_traces)))
    found = {fact.collective.call.site.node for fact in facts}
    return [text[node.start : node.end] for node in sorted(found, key=lambda node: node.start)]


TRANSFORMERS = """
import os
import transformers
from transformers import Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
rank = int(os.environ["RANK"])
"""
TRAINED = "trainer = Trainer(model, args)\ntrainer.train()\n"

SHARDING_ARGUMENTS = {
    "text": 'TrainingArguments("out", fsdp="full_shard auto_wrap")',
    "true": 'TrainingArguments("out", fsdp=True)',
    "list": 'TrainingArguments("out", fsdp=["hybrid_shard", "auto_wrap"])',
    "member": 'TrainingArguments("out", fsdp=[transformers.trainer_utils.FSDPOption.FULL_SHARD])',
    "attribute of the package": 'transformers.TrainingArguments("out", fsdp="shard_grad_op")',
    "of trl": 'SFTConfig("out", fsdp="full_shard")',
    "config": 'SFTConfig("out", fsdp="full_shard", fsdp_config={"fsdp_version": 2, "xla": False})',
    "whole state": (
        'SFTConfig("o", fsdp="full_shard", fsdp_config={"state_dict_type": "FULL_STATE_DICT"})'
    ),
    "mapping": 'SFTConfig(**{"output_dir": "out", "fsdp": "full_shard"})',
}


@pytest.mark.parametrize("arguments", SHARDING_ARGUMENTS.values(), ids=SHARDING_ARGUMENTS.keys())
def test_training_arguments_that_shard(tmp_path: Path, arguments: str) -> None:
    text = f"{TRANSFORMERS}args = {arguments}\n{TRAINED}if rank == 0:\n    trainer.save_model()\n"
    assert missed(tmp_path, text) == ["trainer.save_model()"]


OTHER_ARGUMENTS = {
    "none": 'TrainingArguments("out")',
    "empty": 'TrainingArguments("out", fsdp="")',
    "no shard": 'TrainingArguments("out", fsdp="no_shard")',
    "from elsewhere": 'TrainingArguments("out", fsdp=os.environ["FSDP"])',
    "one of two": 'TrainingArguments("out", fsdp="full_shard" if rank > 8 else "")',
    "parsed": "transformers.HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]",
    "config in a file": 'TrainingArguments("out", fsdp="full_shard", fsdp_config="fsdp.json")',
    "config unknown": 'TrainingArguments("out", fsdp="full_shard", **options())',
    "xla": 'TrainingArguments("out", fsdp="full_shard", fsdp_config={"xla": True})',
    "cpu": 'TrainingArguments("out", fsdp="full_shard", use_cpu=True)',
    "sharded state": (
        'TrainingArguments("o", fsdp=True, fsdp_config={"state_dict_type": "SHARDED_STATE_DICT"})'
    ),
    "handed on": 'TrainingArguments("out", fsdp="full_shard")\nadjust(args)',
    "set off": 'TrainingArguments("out", fsdp="full_shard")\nargs.fsdp = ""',
}


@pytest.mark.parametrize("arguments", OTHER_ARGUMENTS.values(), ids=OTHER_ARGUMENTS.keys())
def test_training_arguments_that_may_not_shard(tmp_path: Path, arguments: str) -> None:
    text = f"{TRANSFORMERS}args = {arguments}\n{TRAINED}if rank == 0:\n    trainer.save_model()\n"
    assert missed(tmp_path, text) == []


ARGS = 'args = TrainingArguments("out", fsdp="full_shard auto_wrap")\n'
TRAINER_CALLS = {
    "world process": (
        "if trainer.is_world_process_zero():\n    trainer.save_model()",
        ["trainer.save_model()"],
    ),
    "accelerator": (
        "if trainer.accelerator.is_main_process:\n    trainer.push_to_hub()",
        ["trainer.push_to_hub()"],
    ),
    "arguments": (
        "if args.should_save:\n    trainer.evaluate()",
        ["trainer.evaluate()"],
    ),
    "arguments of the trainer": (
        "if trainer.args.process_index == 0:\n    trainer.predict(data)",
        ["trainer.predict(data)"],
    ),
    "gather": (
        "if rank == 0:\n    trainer.accelerator.get_state_dict(trainer.model)",
        ["trainer.accelerator.get_state_dict(trainer.model)"],
    ),
    "barrier": (
        "if rank == 0:\n    trainer.accelerator.wait_for_everyone()",
        ["trainer.accelerator.wait_for_everyone()"],
    ),
    "early return": (
        "def save():\n    if rank:\n        return\n    trainer.save_model()\nsave()",
        ["trainer.save_model()"],
    ),
    "every rank": ("trainer.save_model()", []),
    "written by rank 0": (
        'if rank == 0:\n    trainer.log_metrics("train", {})\n    trainer.save_state()',
        [],
    ),
    "where it does not shard": (
        "if not trainer.is_fsdp_enabled:\n    if rank == 0:\n        trainer.save_model()",
        [],
    ),
    "method itself": ("if trainer.is_world_process_zero:\n    trainer.save_model()", []),
    "saved on both sides": (
        'if rank == 0:\n    trainer.save_model("a")\nelse:\n    trainer.save_model("b")',
        [],
    ),
}


@pytest.mark.parametrize(("body", "expected"), TRAINER_CALLS.values(), ids=TRAINER_CALLS.keys())
def test_calls_on_a_trainer(tmp_path: Path, body: str, expected: list[str]) -> None:
    assert missed(tmp_path, f"{TRANSFORMERS}{ARGS}{TRAINED}{body}\n") == expected


def test_a_trainer_that_only_some_ranks_train_with(tmp_path: Path) -> None:
    text = f"{TRANSFORMERS}{ARGS}trainer = Trainer(model, args=args)\nif rank == 0:\n"
    assert missed(tmp_path, f"{text}    trainer.train()\n") == ["trainer.train()"]


def test_a_model_is_whole_before_training(tmp_path: Path) -> None:
    text = f"{TRANSFORMERS}{ARGS}trainer = Trainer(model, args=args)\nif rank == 0:\n"
    assert missed(tmp_path, f"{text}    trainer.save_model()\n") == []


def test_a_subclass_of_a_trainer(tmp_path: Path) -> None:
    text = """
        from transformers import Trainer, TrainingArguments

        class Mine(Trainer):
            def compute_loss(self, model, inputs):
                return model(**inputs).loss
            def finish(self):
                if self.is_world_process_zero():
                    self.save_model("last")

        def main(model, data):
            trainer = Mine(model=model, args=TrainingArguments("out", fsdp="full_shard"))
            trainer.train()
            trainer.finish()
        """
    assert missed(tmp_path, text) == ['self.save_model("last")']


def test_a_subclass_that_saves_by_itself(tmp_path: Path) -> None:
    text = """
        from transformers import Trainer, TrainingArguments

        class Mine(Trainer):
            def save_model(self, folder):
                print(folder)

        def main(model):
            trainer = Mine(model=model, args=TrainingArguments("out", fsdp="full_shard"))
            trainer.train()
            if trainer.is_world_process_zero():
                trainer.save_model("out")
        """
    assert missed(tmp_path, text) == []


def test_settings_in_another_file(tmp_path: Path) -> None:
    settings = """
from transformers import TrainingArguments

def arguments(folder):
    return TrainingArguments(folder, fsdp="full_shard auto_wrap")
"""
    train = """
from settings import arguments
from transformers import Trainer

def main(model):
    trainer = Trainer(model=model, args=arguments("out"))
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model()
"""
    made = program(tmp_path, {"settings.py": settings, "train.py": train})
    found = [fact.collective.call.name for fact in missed_collectives(made)]
    assert found == ["save_model"]


ACCELERATE = """
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
"""
PREPARED = (
    "model, optimizer = accelerator.prepare(model, optimizer)\nif accelerator.is_main_process:\n"
)
ACCELERATORS = {
    "plugin": ("Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())", True),
    "version": (
        "Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))",
        True,
    ),
    "kinds": (
        "Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin("
        'reshard_after_forward=False, state_dict_type="SHARDED_STATE_DICT"))',
        True,
    ),
    "by the launcher": ("Accelerator()", False),
    "whole": (
        'Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(sharding_strategy="NO_SHARD"))',
        False,
    ),
    "local": (
        'Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(state_dict_type="LOCAL_STATE_DICT"))',
        False,
    ),
    "kind from elsewhere": (
        "Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(sharding_strategy=kind))",
        False,
    ),
    "options from elsewhere": (
        "Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(**options()))",
        False,
    ),
    "cpu": ("Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin())", False),
}


@pytest.mark.parametrize(("accelerator", "found"), ACCELERATORS.values(), ids=ACCELERATORS.keys())
def test_an_accelerator_with_a_plugin(tmp_path: Path, accelerator: str, found: bool) -> None:
    text = f"{ACCELERATE}def main(model, optimizer, kind):\n    accelerator = {accelerator}\n"
    text += textwrap.indent(f'{PREPARED}    accelerator.save_state("out")\n', "    ")
    assert missed(tmp_path, text) == (['accelerator.save_state("out")'] if found else [])


def test_an_accelerator_that_prepares_nothing(tmp_path: Path) -> None:
    text = f"""{ACCELERATE}
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
if accelerator.is_main_process:
    accelerator.save_state("out")
"""
    assert missed(tmp_path, text) == []


LIGHTNING = """
import lightning as L
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy
"""
STRATEGIES = {
    "object": ("FSDPStrategy()", True),
    "name": ('"fsdp"', True),
    "offloaded": ('"fsdp_cpu_offload"', True),
    "parallel": ("ModelParallelStrategy(parallelize)", True),
    "options": ('FSDPStrategy(sharding_strategy="SHARD_GRAD_OP", state_dict_type="full")', True),
    "replicated": ("DDPStrategy()", False),
    "replicated by name": ('"ddp"', False),
    "whole": ('FSDPStrategy(sharding_strategy="NO_SHARD")', False),
    "with several devices": ('FSDPStrategy() if devices > 1 else "auto"', True),
    "one of two": ('"fsdp" if devices > 8 else "ddp"', False),
    "from elsewhere": ("strategy", False),
}


@pytest.mark.parametrize(("strategy", "found"), STRATEGIES.values(), ids=STRATEGIES.keys())
def test_fabric(tmp_path: Path, strategy: str, found: bool) -> None:
    text = f"""{LIGHTNING}
def main(model, devices, strategy):
    fabric = Fabric(devices=devices, strategy={strategy})
    fabric.launch()
    model = fabric.setup(model)
    if fabric.global_rank == 0:
        fabric.print("saving")
        fabric.save("model.pt", {{"model": model}})
"""
    expected = ['fabric.save("model.pt", {"model": model})'] if found else []
    assert missed(tmp_path, text) == expected


def test_a_function_that_fabric_launches(tmp_path: Path) -> None:
    text = f"""{LIGHTNING}
def train(fabric, model, path, *, half=False):
    model = fabric.setup(model)
    if fabric.global_rank == 0 and not half:
        fabric.save(path, {{"model": model}})

def main(model, path):
    fabric = L.Fabric(devices=8, strategy="fsdp")
    fabric.launch(train, model, path, half=False)
"""
    assert missed(tmp_path, text) == ['fabric.save(path, {"model": model})']


def test_what_another_object_launches_is_called_with_nothing_known(tmp_path: Path) -> None:
    text = f"""{LIGHTNING}
def train(trainer, model):
    trainer.fit(model)
    if trainer.is_global_zero:
        trainer.save_checkpoint("last.ckpt")

def main(model):
    L.Trainer(devices=8, strategy="fsdp").launch(train, model)
"""
    assert missed(tmp_path, text) == []


@pytest.mark.parametrize(("strategy", "found"), STRATEGIES.values(), ids=STRATEGIES.keys())
def test_trainer_of_lightning(tmp_path: Path, strategy: str, found: bool) -> None:
    text = f"""{LIGHTNING}
def main(model, devices, strategy):
    trainer = L.Trainer(devices=devices, strategy={strategy})
    trainer.fit(model)
    if trainer.is_global_zero:
        trainer.save_checkpoint("last.ckpt")
"""
    assert missed(tmp_path, text) == (['trainer.save_checkpoint("last.ckpt")'] if found else [])


def test_hooks_of_a_lightning_module(tmp_path: Path) -> None:
    text = """
        import lightning as L
        import torch
        from torch import nn
        from torch.distributed.fsdp import fully_shard

        class Mine(L.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(8, 8)
            def configure_model(self):
                fully_shard(self.net)
            def on_validation_epoch_end(self):
                if self.trainer.is_global_zero:
                    print(self.net(torch.ones(8)))
            def on_train_epoch_end(self):
                if self.global_rank == 0:
                    print(self.net.weight.full_tensor())
        """
    assert missed(tmp_path, text) == [
        "self.net(torch.ones(8))",
        "self.net.weight.full_tensor()",
    ]
