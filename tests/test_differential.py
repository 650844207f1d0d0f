"""Safe fixes harm no program: a sample of `python -m benchmarks.differential`.

One program for each rule that fixes safely runs before and after its fix. Changes made here show
that the comparison finds harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from benchmarks.differential import families
from benchmarks.differential.compare import (
    ALLOWED,
    CURED,
    HARMED,
    OTHERWISE,
    SAME,
    TELLING,
    TOO_SLOW,
    compare,
)
from benchmarks.differential.corpus import safe_rules
from benchmarks.differential.judge import Task, judge
from benchmarks.differential.pool import judges
from benchmarks.differential.program import Fixed, Program
from benchmarks.differential.record import RAISED, SLOW, Rank, Run

SAMPLE = {
    "checkpointing-matches-nothing": "final/same-always-is",
    "clip-grad-util-on-fsdp1": "clipping/always-plain",
    "container-sharded": "sharding/list",
    "cpu-offload-without-cpu-backend": "offloading/nccl-offload-norm",
    "custom-method-bypasses-hooks": "methods/two_results-always-kind",
    "direct-forward": "forwards/always-inner-none-plain_object",
    "epoch-not-set": "epochs/always-plain-repeated",
    "fsdp1-mixed-requires-grad": "policies/embed-root",
    "grad-scaler-on-fsdp1": "scalers/always-cuda-unscaled-none",
    "inference-mode-forward": "evaluations/always-decorator_bare-value",
    "local-rank-argument": "options/zero-evaluation",
    "mesh-arguments": "meshes/nccl-mesh_position-none",
    "old-import-path": "sharding/old_path",
    "optim-state-arguments-swapped": "states/always-old",
    "process-group-arguments": "groups/semicolon-plain-none",
    "unused-suppression": "suppressions/alone",
    "wrap-policy-called": "policies/none-called_transformer",
}
"""By rule, a program of the families that gets a safe fix of it."""

TRAINING = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 8)
print("sharding")
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

CHANGES = {
    "a comment more": ("\nimport torch\n", "\nimport torch  # imported\n", SAME),
    "a name less": ("from torch import nn", "import torch.nn", HARMED),
    "another rate": ("lr=0.1", "lr=0.2", HARMED),
    "an output less": ("    print(", "    str(", HARMED),
    "a collective on one rank": ("    print(", "    dist.barrier()\n    print(", HARMED),
    "a directive less": ("  # pragma: no cover", "", HARMED),
    "a file more": ("dist.destroy", 'open("left.txt", "w").close()\ndist.destroy', HARMED),
    "a step less": ("range(3)", "range(2)", HARMED),
}
"""What is replaced by what, and the verdict on it."""


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with judges(1) as made:
        yield made


FAILED = Run((Rank(RAISED, "TypeError: no", [("train.py", 3, "<module>")]),), {})


def changed(rule: str, old: str, new: str, training: str = TRAINING) -> Task:
    """A task in which a rule's fix replaces `old` by `new`, on two ranks."""
    text = training.replace(old, new, 1)
    assert text != training
    program = Program("training", {"train.py": training}, "train.py")
    return Task(program, fixes=(Fixed(rule, {"train.py": text}),), most=1)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_harms_is_found(change: str, pool: ProcessPoolExecutor) -> None:
    old, new, verdict = CHANGES[change]
    found = pool.submit(judge, changed("unused-suppression", old, new)).result()
    assert verdict in {v.judgement.verdict for v in found}
    assert {v.judgement.verdict for v in found} <= {SAME, verdict}


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("lr=0.1", "lr=0.2", ALLOWED),
        ('"sharding"', '"sharded"', HARMED),
        ("range(3)", "range(2)", HARMED),
        ("fully_shard(model)", "pass", ALLOWED),
    ],
)
def test_what_a_rule_is_about_may_change_after_the_backward(
    old: str, new: str, verdict: str, pool: ProcessPoolExecutor
) -> None:
    (found,) = pool.submit(judge, changed("clip-grad-util-on-fsdp1", old, new)).result()
    assert found.judgement.verdict == verdict, found.judgement.details


def test_nothing_may_change_where_nothing_is_sharded(pool: ProcessPoolExecutor) -> None:
    plain = TRAINING.replace("fully_shard(model)", "pass")
    task = changed("clip-grad-util-on-fsdp1", "lr=0.1", "lr=0.2", plain)
    (found,) = pool.submit(judge, task).result()
    assert found.judgement.verdict == HARMED


def test_a_program_that_runs_only_when_fixed_is_cured(pool: ProcessPoolExecutor) -> None:
    broken = TRAINING.replace("model(torch", "model.forward(torch")
    task = changed("direct-forward", "model.forward(", "model(", broken)
    (found,) = pool.submit(judge, task).result()
    assert found.judgement.verdict == CURED


def test_a_program_that_fails_later_has_another_fault(pool: ProcessPoolExecutor) -> None:
    late = "def late():\n    return int('')\n\n\n"
    broken = late + TRAINING.replace("fully_shard(model)", "fully_shard(model, wrong=1); late()")
    task = changed("fsdp1-argument-to-fully-shard", ", wrong=1", "", broken)
    (found,) = pool.submit(judge, task).result()
    assert found.judgement.verdict == OTHERWISE


def test_a_program_that_fails_later_in_its_statement_has_another_fault() -> None:
    inner = Rank(RAISED, "TypeError: no", [("train.py", 3, "<module>"), ("train.py", 1, "policy")])
    later, sooner = (Rank(RAISED, "ValueError", [("train.py", n, "<module>")]) for n in (3, 2))
    before = Run((inner,), {})
    for rank, verdict in ((later, OTHERWISE), (sooner, HARMED)):
        judged = compare([], before, Run((rank,), {}), frozenset(), lambda *at: at)
        assert judged.verdict == verdict


def test_a_run_that_is_cut_off_at_work_says_nothing() -> None:
    cut = Run((Rank(SLOW),), {})
    assert compare(["direct-forward"], FAILED, cut, frozenset(), lambda *at: at).verdict == TOO_SLOW


def test_every_rule_that_fixes_safely_has_a_program() -> None:
    assert set(SAMPLE) == safe_rules()


@pytest.mark.parametrize("rule", SAMPLE)
def test_a_safe_fix_harms_nothing(rule: str, pool: ProcessPoolExecutor) -> None:
    name = f"families/{SAMPLE[rule]}"
    program = next(each for each in families.programs() if each.name == name)
    found = pool.submit(judge, Task(program, rule, most=2)).result()
    harms = [v for v in found if v.judgement.verdict == HARMED]
    assert [(v.configuration, *v.judgement.details) for v in harms] == []
    assert TELLING & {v.judgement.verdict for v in found}
