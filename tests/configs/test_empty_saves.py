"""Which calls of `save_model` are said to write nothing."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text

RULE = "trainer-saves-no-model"
HEAD = """\
from transformers import Seq2SeqTrainer, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
from ours import Mine, model, data
sharded = {"version": 2, "state_dict_type": "SHARDED_STATE_DICT"}
"""


def found(code: str) -> list[str]:
    text = HEAD + code.replace("t.save_model", "t.train(); t.save_model")
    own = [each for each in check_text(text, "train.py") if each.rule == RULE]
    return [text[each.span.start : each.span.end].partition("(")[0] for each in own]


@pytest.mark.parametrize(
    "code",
    [
        "t = Trainer(model, args=TrainingArguments('o', fsdp=True, fsdp_config=sharded))\n"
        "t.save_model()\n",
        "args = SFTConfig('o', fsdp='full_shard', fsdp_config=sharded)\n"
        "t = SFTTrainer(model, args=args); t.save_model('x')\n",
        "t = Seq2SeqTrainer(model, args=TrainingArguments('o', fsdp=True, fsdp_config="
        "{'fsdp_state_dict_type': 'sharded_state_dict'}))\nt.save_model(output_dir='x')\n",
    ],
)
def test_a_save_of_sharded_states_is_found(code: str) -> None:
    assert found(code) == ["t.save_model"]


@pytest.mark.parametrize(
    "code",
    [
        # Full, or not known.
        "a = TrainingArguments('o', fsdp=True)\nt = Trainer(model, args=a)\nt.save_model()\n",
        "a = TrainingArguments('o', fsdp=data.fsdp, fsdp_config=sharded)\n"
        "t = Trainer(model, args=a)\nt.save_model()\n",
        "a = TrainingArguments('o', fsdp_config=sharded)\nt = Trainer(model, args=a)\n"
        "t.save_model()\n",
        "a = TrainingArguments('o', fsdp=True, fsdp_config={'state_dict_type': data.kind})\n"
        "t = Trainer(model, args=a)\nt.save_model()\n",
        "a = TrainingArguments('o', fsdp=True, fsdp_config=sharded)\nif data:\n    a = data\n"
        "t = Trainer(model, args=a)\nt.save_model()\n",
        # Another class, or another method.
        "a = TrainingArguments('o', fsdp=True, fsdp_config=sharded)\n"
        "t = Mine(model, args=a)\nt.save_model()\n",
        "a = TrainingArguments('o', fsdp=True, fsdp_config=sharded)\n"
        "t = Trainer(model, args=a)\nt.save_state()\nmodel.save_model()\n",
        # The kind of states is set.
        "a = TrainingArguments('o', fsdp=True, fsdp_config=sharded)\n"
        "t = Trainer(model, args=a)\n"
        "t.accelerator.state.fsdp_plugin.set_state_dict_type('FULL_STATE_DICT')\n"
        "t.save_model()\n",
    ],
)
def test_other_saves_are_not(code: str) -> None:
    assert found(code) == []
