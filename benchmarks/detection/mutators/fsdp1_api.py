"""fsdp1-api-on-fsdp2-model: what only an FSDP1 model has or knows, before a step."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.fsdp1_clip import steps
from benchmarks.detection.mutators.only_root import WRAPPERS
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "fsdp1-api-on-fsdp2-model"
_FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel"
_TYPE = "from torch.distributed.fsdp import StateDictType"

# Lines before the step by kind, with what they import and a function they need.
WRONG: dict[str, tuple[str, str, str]] = {
    "clip": ("§MODEL.clip_grad_norm_(1.0)", "", ""),
    "norm": ("norm = §MODEL.clip_grad_norm_(max_norm=1.0)\nprint(norm.item())", "", ""),
    "module": ("print(len(list(§MODEL.module.children())))", "", ""),
    "unwrapped": ("plain = §MODEL._fsdp_wrapped_module\nprint(type(plain))", "", ""),
    "helper": (
        "clipped(MODEL)",
        "",
        "def clipped(module, limit=1.0):\n    return §module.clip_grad_norm_(limit)",
    ),
    "summon": (
        "with §FullyShardedDataParallel.summon_full_params(MODEL):\n    print(type(MODEL))",
        _FSDP,
        "",
    ),
    "state": (
        "with §FullyShardedDataParallel.state_dict_type(MODEL, StateDictType.FULL_STATE_DICT):\n"
        "    whole = MODEL.state_dict()",
        f"{_FSDP}\n{_TYPE}",
        "",
    ),
    "branch": (
        "if §isinstance(MODEL, FullyShardedDataParallel):\n    MODEL.clip_grad_norm_(1.0)",
        _FSDP,
        "",
    ),
}
LEGAL: dict[str, tuple[str, str, str]] = {
    "asked": ('if hasattr(MODEL, "clip_grad_norm_"):\n    MODEL.clip_grad_norm_(1.0)', "", ""),
    "either": ('plain = getattr(MODEL, "module", MODEL)\nprint(type(plain))', "", ""),
    "both": (
        "if isinstance(MODEL, FullyShardedDataParallel):\n    MODEL.clip_grad_norm_(1.0)\n"
        "else:\n    torch.nn.utils.clip_grad_norm_(MODEL.parameters(), 1.0)",
        f"import torch\n{_FSDP}",
        "",
    ),
    "tried": (
        "try:\n    plain = MODEL.module\nexcept AttributeError:\n    plain = MODEL\n"
        "print(type(plain))",
        "",
        "",
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    everything = modules(program)
    texts = [module.text for module in everything]
    for_both = any(f"{wrapper}(" in text for text in texts for wrapper in WRAPPERS)
    if for_both or not any("fully_shard" in text for text in texts):
        return
    for module in everything:
        for step in steps(program, module):
            # An arm for FSDP1 that is skipped is no loss where every model is clipped beside it.
            wrong = WRONG.keys() - ({"branch"} if "clip_grad_norm_" in module.text else set())
            chosen = [(RULE, k, WRONG[k]) for k in random.sample(sorted(wrong), 5)]
            chosen += [("", k, LEGAL[k]) for k in random.sample(sorted(LEGAL), 2)]
            for rule, kind, (lines, imports, helper) in chosen:
                text = lines.replace("MODEL", step.model).replace("§", MARK)
                start = module.rows(step.statement)[0]
                added = textwrap.indent(text + "\n", module.indent(step.statement))
                edited = module.edited([(start, start, added)], imports, helper.replace("§", MARK))
                yield mutant(program, rule, kind, {module.path: edited})
