"""Safe fixes harm no program: a sample of `python -m benchmarks.differential`.

One program for each rule with a safe fix runs before and after it. Harmful fixes made here show
that the comparison finds harm.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.differential.compare import HARMED, SAME, TELLING
from benchmarks.differential.corpus import programs, safe_rules
from benchmarks.differential.judge import Task, Verdict
from benchmarks.differential.pool import judged
from benchmarks.differential.program import Fixed, Program

SAMPLE: dict[str, str] = {}
"""By rule, a program that gets a safe fix of it."""

TRAINING = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:  # pragma: no cover
    print(f"loss {loss.item():.6f}")
dist.destroy_process_group()
"""

FIXES = {
    "a comment more": ("", "# nothing\n", SAME),
    "a name less": ("from torch import nn", "import torch.nn", HARMED),
    "another rate": ("lr=0.1", "lr=0.2", HARMED),
    "an output less": ("    print(", "    str(", HARMED),
    "a collective on one rank": ("    print(", "    dist.barrier()\n    print(", HARMED),
    "a directive less": ("  # pragma: no cover", "", HARMED),
    "a file more": ("dist.destroy", 'open("left.txt", "w").close()\ndist.destroy', HARMED),
    "a step less": ("range(3)", "range(2)", HARMED),
}
"""What a fix replaces by what, with the verdict that it must get."""


def _made() -> Iterator[Task]:
    program = Program("training", {"train.py": TRAINING}, "train.py")
    for name, (old, new, _) in FIXES.items():
        text = TRAINING.replace(old, new, 1)
        assert text != TRAINING
        # The rule may change nothing that FSDP is not part of, or nothing at all.
        yield Task(program, fixes=(Fixed(name, {"train.py": text}),), most=1)


def _sampled() -> Iterator[Task]:
    known = {program.name: program for program in programs(0, ["families", "fixtures"])}
    for rule, name in SAMPLE.items():
        yield Task(known[name], rule, most=2)


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    done = judged([*_made(), *_sampled()], jobs=2)
    return [verdict for verdicts in done for verdict in verdicts]


@pytest.mark.parametrize("fix", FIXES)
def test_a_harmful_fix_is_found(fix: str, verdicts: list[Verdict]) -> None:
    found = {v.judgement.verdict for v in verdicts if v.rule == fix}
    assert FIXES[fix][2] in found
    assert found <= {SAME, FIXES[fix][2]}


def test_every_rule_with_safe_fixes_has_a_program() -> None:
    assert set(SAMPLE) == safe_rules()


@pytest.mark.parametrize("rule", sorted(SAMPLE))
def test_a_safe_fix_harms_nothing(rule: str, verdicts: list[Verdict]) -> None:
    found = [v for v in verdicts if v.rule == rule and v.program == SAMPLE[rule]]
    assert not [(v.configuration, *v.judgement.details) for v in found if _harms(v)]
    assert any(v.judgement.verdict in TELLING for v in found)


def _harms(verdict: Verdict) -> bool:
    return verdict.judgement.verdict == HARMED
