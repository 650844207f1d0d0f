"""parameters-grouped-after-flattening: groups of an optimizer that FSDP1 leaves empty."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import indented
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "parameters-grouped-after-flattening"
BUILD = re.compile(r"^( *)(\w+ = torch\.optim\.\w+\()(\w+)\.parameters\(\)", re.MULTILINE)
GROUPS = """groups = [{{"params": some}}, {{"params": rest, "weight_decay": 0.0}}]
"""
WRONG = {
    "names": """some = [p for n, p in {model}.named_parameters() if {mark}(not n.endswith("bias"))]
rest = [p for n, p in {model}.named_parameters() if {mark}n.endswith("bias")]
""",
    "words": """words = ("bias", "norm.weight")
some, rest = [], []
for name, parameter in {model}.named_parameters():
    if {mark}any(word in name for word in words):
        rest.append(parameter)
    else:
        some.append(parameter)
""",
    "dimensions": """some, rest = [], []
for parameter in {model}.parameters():
    (some if parameter.requires_grad else rest).append(parameter)
some = [p for p in some if {mark}p.ndim > 1]
rest = [p for p in {model}.parameters() if {mark}p.ndim < 2]
""",
    "helper": """def matrices(module):
    return [p for p in module.parameters() if {mark}p.dim() >= 2]

some, rest = matrices({model}), []
""",
}
LEGAL = {
    "by place": """some = [p for n, p in {model}.named_parameters() if "0" in n]
rest = [p for n, p in {model}.named_parameters() if "0" not in n]
""",
    "by size": """some = [p for p in {model}.parameters() if p.numel() > 100]
rest = [p for p in {model}.parameters() if p.numel() <= 100]
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    del random  # nothing is drawn
    for path, text in program.files.items():
        found = BUILD.search(text)
        wrapped = text.find("FSDP(")
        if found is None or not 0 <= wrapped < found.start() or "use_orig_params" in text:
            continue
        for rule, kinds in ((RULE, WRONG), ("", LEGAL)):
            for kind, code in kinds.items():
                lines = (code + GROUPS).format(mark=MARK, model=found[3])
                put = indented(lines, found[1]) + f"{found[1]}{found[2]}groups"
                yield mutant(
                    program, rule, kind, {path: text[: found.start()] + put + text[found.end() :]}
                )
