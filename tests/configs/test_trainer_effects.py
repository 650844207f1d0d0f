"""Findings in training arguments are true, and safe fixes harm nothing, by transformers itself."""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from measuring import installed

from fsdplint.check import check_text
from fsdplint.finding import Finding, Safety
from fsdplint.fixes.edits import apply
from fsdplint.knowledge.transformers_settings import RESHARD, STRATEGY_WORDS, settings

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from accelerate_effect import Effect
from transformers_effect import effect

OWN = installed("transformers", settings())
COUNT = 150
NAMES = sorted(
    name
    for name in {*OWN.names(1), *OWN.names(2), "offload_params", "sharding_strategy"}
    if name.isidentifier() and name not in ("fsdp", "version") and not name.startswith("xla")
)
WORDS: tuple[object, ...] = (True, False, "true", "false", 1, 3, "FULL_SHARD", "NO_WRAP", "full")
CLASSES = ("Block", ["Block"], ["Block", "Linear"])
OPTIONS = (*STRATEGY_WORDS[:2], *STRATEGY_WORDS, "auto_wrap", "auto_wrap", "offload", "full")
Given = tuple[Any, dict[str, Any] | None]


def made(seed: int) -> str:
    """A call with arguments at random, most of them such as are taken."""
    chance = random.Random(seed)
    words = chance.sample(OPTIONS, chance.randrange(1, 4))
    separator = chance.choice((" ", " ", " ", " ", ","))
    fsdp = chance.choice((True, True, separator.join(dict.fromkeys(words)), list(words)))
    config: dict[str, object] = {}
    if chance.random() < 0.5:
        config["version"] = chance.choice((1, 2))
    for name in chance.sample(NAMES, chance.randrange(0, 6)):
        taken: list[object] = [
            {"TRUE": True, "FALSE": False}.get(word, int(word) if word.isdigit() else word)
            for word in sorted(OWN.takes(name, chance.choice((1, 2))) - {"NONE"})
        ]
        values = taken if taken and chance.random() < 0.8 else WORDS
        if name.endswith("cls_to_wrap"):
            values = list(CLASSES)
        shown = name if chance.random() < 0.7 else f"fsdp_{name}"
        # With FSDP1 it has no effect, and the plugin still refuses some values.
        if name != RESHARD or config.get("version") != 1:
            config[shown] = chance.choice(values)
    lines = "".join(f"        {name!r}: {value!r},\n" for name, value in config.items())
    shown_config = f"    fsdp_config={{\n{lines}    }},\n" if config else ""
    given = f"    fsdp={fsdp!r},\n" if chance.random() < 0.9 else ""
    head = "from transformers import TrainingArguments\n"
    return f"{head}TrainingArguments(\n    'out',\n{given}{shown_config})\n"


def arguments(text: str) -> Given:
    """Return what a call gives, by Python's own parser."""
    call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    return given.get("fsdp"), given.get("fsdp_config")


def without(text: str, finding: Finding) -> Given:
    """Return the arguments without what is said to have no effect."""
    fsdp, config = arguments(text)
    shown = text[finding.span.start : finding.span.end]
    if not shown.startswith("fsdp="):
        key = ast.literal_eval(shown.partition(":")[0])
        return fsdp, {name: value for name, value in (config or {}).items() if name != key}
    words = fsdp.split() if isinstance(fsdp, str) else list(fsdp)
    if "with FSDP1" in finding.message:
        words = ["full_shard" if word in STRATEGY_WORDS else word for word in words]
    else:
        words.remove(finding.message.split("`")[1])
    return (" ".join(words) if isinstance(fsdp, str) else words) or True, config


def wrong(text: str, folder: Path) -> Iterator[str]:
    """What is not so of the findings in a text."""
    before: Effect = effect(*arguments(text))
    found = check_text(text, str(folder / "train.py"))
    for finding in found:
        if finding.rule in ("unknown-trainer-setting", "trainer-setting-not-applied"):
            true = "error" in before or effect(*without(text, finding)) == before
        elif finding.rule == "invalid-trainer-setting":
            true = "error" in before
        else:
            assert finding.rule == "trainer-settings-unused"
            true = before == {"sharding": "none"} or "error" in before
        if not true:
            yield f"false: {finding.message}"
        if finding.fix and finding.fix.safety is Safety.SAFE and "error" not in before:
            after = effect(*arguments(apply(text, finding.fix.edits)))
            if after != before:
                yield f"harm: {finding.message}"
    # An old release looks at values that the newest one does not.
    every = OWN is settings()[-1]
    if every and "error" in before and not any(f.rule == "invalid-trainer-setting" for f in found):
        yield f"missed: {before['error']}"


@pytest.mark.parametrize("part", range(5))
def test_findings_are_true_and_errors_are_found(part: int, tmp_path: Path) -> None:
    release = ".".join(map(str, OWN.release))
    (tmp_path / "requirements.txt").write_text(f"transformers=={release}.*\n")
    for seed in range(part, COUNT, 5):
        text = made(seed)
        assert not list(wrong(text, tmp_path)), text
