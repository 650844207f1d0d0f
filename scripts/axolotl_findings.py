"""Compare findings in random files for axolotl with what axolotl does.

python scripts/axolotl_findings.py SOURCE [COUNT]

SOURCE is the folder that has the package `axolotl` of the newest release in the table; fsdplint,
and the releases of transformers and accelerate that axolotl requires, are those of the interpreter.
A finding is false if axolotl runs where it is said to stop, or if what is said to have no effect
has one; a safe fix does harm if it changes what axolotl does.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from fsdplint.check import check_text
from fsdplint.finding import Finding, Safety
from fsdplint.fixes.edits import apply
from fsdplint.knowledge.accelerate_settings import VERSION
from fsdplint.knowledge.axolotl_settings import SECTION, settings
from fsdplint.knowledge.transformers_settings import ARGUMENT

HEAD = "base_model: a/b\nsequence_len: 512\nmicro_batch_size: 1\nnum_epochs: 1\n"
NAMES = (*("cpu_offload", "limit_all_gathers", "sharding_strategy", "backward_prefetch"),)
NAMES += ("forward_prefetch", "mixed_precision", "misspelt")
LISTS: tuple[object, ...] = (
    *(["full_shard", "auto_wrap"], ["shard_grad_op", "auto_wrap"], ["hybrid_shard"], ["full"]),
    "full_shard",
)
VALUES: dict[str, tuple[object, ...]] = {
    "sharding_strategy": ("FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "NO_SHARD", 2),
    "backward_prefetch": ("BACKWARD_PRE", "NO_PREFETCH"),
    "mixed_precision": ("bf16", "fp16"),
    "transformer_layer_cls_to_wrap": ("Block", "Linear", ["Block"]),
    "min_num_params": (50, 100000),
}
BESIDE: dict[str, tuple[object, ...]] = {
    "bf16": (True,),
    "gradient_checkpointing": (True, False),
    "fsdp_final_state_dict_type": ("FULL_STATE_DICT", "SHARDED_STATE_DICT"),
    "fsdp_offload_params": (True, False),
}


def made(seed: int) -> str:
    """Return a file with settings at random."""
    chance = random.Random(seed)
    newest = settings()[-1]
    known = {name for name in newest.names(1) if name.isidentifier() and "version" not in name}
    names = sorted({*NAMES, *known} - {ARGUMENT})
    section: dict[str, object] = {}
    for name in chance.sample(names, chance.randrange(0, 6)):
        words = [w for w in sorted(newest.takes(name, 1)) if "_" in w] or [True, False, "yes"]
        section[name] = chance.choice(VALUES.get(name.removeprefix("fsdp_"), tuple(words)))
    top: dict[str, object] = {
        name: chance.choice(values) for name, values in BESIDE.items() if chance.random() < 0.2
    }
    if chance.random() < 0.5:
        top[ARGUMENT] = chance.choice(LISTS)
    if chance.random() < 0.8:
        place = top if chance.random() < 0.5 else section
        place[VERSION] = chance.choice((1, 2))
    return HEAD + yaml.safe_dump({**top, SECTION: section or None}, sort_keys=False)


def given(text: str) -> dict[str, Any]:
    """Return the settings of a file, without what every file has."""
    every = yaml.safe_load(text).items()
    return {k: v for k, v in every if v is not None and k not in yaml.safe_load(HEAD)}


def without(config: dict[str, Any], shown: str) -> dict[str, Any]:
    """Return the settings without what is said to have no effect."""
    others, name = copy.deepcopy(config), shown.partition(":")[0]
    if name == ARGUMENT:
        return {**others, ARGUMENT: ["full_shard", "auto_wrap"]}
    del (others if name in others else others[SECTION])[name]
    # An empty section turns FSDP off.
    return {**others, SECTION: others[SECTION] or {VERSION: others.get(VERSION, 1)}}


def wrong(text: str) -> Iterator[str]:
    """Yield what is not so of the findings in a file."""
    from axolotl_effect import effect

    config = given(text)
    before = effect(config)
    for finding in check_text(text, "train.yaml"):
        if not _is_true(finding, text, config, before):
            yield f"false: {finding.message}"
        safe = finding.fix if finding.fix and finding.fix.safety is Safety.SAFE else None
        after = effect(given(apply(text, safe.edits))) if safe else before
        if after != before and "error" not in before:
            yield f"harm: {finding.message}"


def _is_true(finding: Finding, text: str, config: dict[str, Any], before: object) -> bool:
    from axolotl_effect import effect

    assert isinstance(before, dict)
    if finding.rule == "invalid-axolotl-setting":
        return "error" in before
    if finding.rule == "axolotl-settings-unused":
        return bool(before.get("sharding") == "none")
    shown = text[finding.span.start : finding.span.end]
    return "error" in before or effect(without(config, shown)) == before


def main(arguments: list[str] | None = None) -> int:
    """Print what is wrong, and return whether something is."""
    source, count = (*(sys.argv[1:] if arguments is None else arguments), "200")[:2]
    sys.path.insert(0, source)
    found = [(text, each) for text in map(made, range(int(count))) for each in wrong(text)]
    for text, each in found:
        print(each, text, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
