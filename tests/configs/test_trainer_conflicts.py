"""Findings in arguments that exclude each other are true, and no such pair is missed."""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsdplint.check import check_text
from fsdplint.fixes.edits import apply
from fsdplint.knowledge.transformers_settings import CHECKPOINTS, LOADS_BEST, ONLY_MODEL

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from transformers_effect import effect

COUNT = 120
RULE = "conflicting-trainer-settings"
BEST = "    eval_strategy='epoch',\n    save_strategy='epoch',\n"


def made(seed: int) -> str:
    """A call with some of the arguments at random."""
    chance = random.Random(seed)
    config: dict[str, object] = {"version": chance.choice((1, 2))}
    if chance.random() < 0.5:
        config["activation_checkpointing"] = chance.choice((True, False, "true", "false"))
    if chance.random() < 0.5:
        config["fsdp_state_dict_type"] = chance.choice(("SHARDED_STATE_DICT", "FULL_STATE_DICT"))
    names = (*CHECKPOINTS[: chance.choice((1, 2))], ONLY_MODEL, LOADS_BEST)
    given = {name: chance.choice((True, True, False)) for name in names if chance.random() < 0.5}
    lines = "".join(f"    {name}={value},\n" for name, value in given.items())
    fsdp = chance.choice(("True", "'full_shard'", "None", "False"))
    head = "from transformers import TrainingArguments\nTrainingArguments(\n    'out',\n"
    return f"{head}    fsdp={fsdp},\n    fsdp_config={config!r},\n{BEST}{lines})\n"


def does(text: str) -> dict[str, object]:
    """What transformers does with a call, by Python's own parser."""
    call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    given: dict[str, Any] = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    return effect(given.pop("fsdp"), given.pop("fsdp_config"), **given)


def is_refused(text: str) -> bool:
    error = str(does(text).get("error", ""))
    assert not error or "can't " in error or "not compatible" in error, error
    return bool(error)


def wrong(text: str) -> Iterator[str]:
    """What is not so of the findings in a text."""
    found = [each for each in check_text(text, "train.py") if each.rule == RULE]
    refused = is_refused(text)
    if refused != bool(found):
        yield f"{refused}: {[each.message for each in found]}"
    if found and all(each.fix for each in found):
        edits = [edit for each in found if each.fix for edit in each.fix.edits]
        fixed = apply(text, edits)
        again = [each for each in check_text(fixed, "train.py") if each.rule == RULE]
        # What is left excludes another one.
        if is_refused(fixed) != bool(again):
            yield f"no cure: {fixed}"


@pytest.mark.parametrize("part", range(3))
def test_findings_are_true_and_errors_are_found(part: int) -> None:
    for seed in range(part, COUNT, 3):
        text = made(seed)
        assert not list(wrong(text)), text


@pytest.mark.parametrize(
    "arguments",
    [
        "fsdp=fsdp, fsdp_config={'version': 2}, save_only_model=True, load_best_model_at_end=True",
        "save_only_model=True, load_best_model_at_end=True, fsdp_config={'version': 2}",
        "fsdp=True, save_only_model=only, load_best_model_at_end=True",
        "fsdp=True, fsdp_config=config, gradient_checkpointing=True",
        "fsdp=True, fsdp_config={'activation_checkpointing': on}, gradient_checkpointing=True",
        "fsdp=True, fsdp_config={'xla': True}, save_only_model=True, load_best_model_at_end=True",
        "fsdp=True, fsdp_config={'activation_checkpointing': True}, **given",
    ],
)
def test_what_is_not_known_is_not_judged(arguments: str) -> None:
    text = (
        "from transformers import TrainingArguments\n"
        "def main(fsdp, config, only, on, given):\n"
        f"    return TrainingArguments('out', {arguments})\n"
    )
    assert [each for each in check_text(text, "train.py") if each.rule == RULE] == []


def test_an_argument_is_reported_once() -> None:
    sharded = "fsdp_config={'state_dict_type': 'SHARDED_STATE_DICT'}"
    text = (
        "from transformers import TrainingArguments\n"
        f"TrainingArguments('out', fsdp=True, {sharded}, save_only_model=True,\n"
        "    load_best_model_at_end=True)\n"
    )
    (found,) = (each for each in check_text(text, "train.py") if each.rule == RULE)
    assert "load_best_model_at_end" in found.message


def test_a_file_is_read_as_a_call_is(tmp_path: Path) -> None:
    from fsdplint.check import check
    from fsdplint.settings.config import defaults
    from fsdplint.settings.rule_selection import EVERYTHING

    (tmp_path / "train.py").write_text("from trl import TrlParser\n")
    text = "output_dir: out\nlearning_rate: 1e-4\nlogging_steps: 1\nfsdp: full_shard\n"
    text += "gradient_checkpointing: true\nfsdp_config:\n  activation_checkpointing: true\n"
    file = tmp_path / "a.yaml"
    file.write_text(text)
    (found,) = (f for f in check([tmp_path], defaults(EVERYTHING)).findings if f.rule == RULE)
    assert found.fix is not None
    fixed = apply(text, found.fix.edits)
    assert fixed == text.replace("gradient_checkpointing: true", "gradient_checkpointing: false")
