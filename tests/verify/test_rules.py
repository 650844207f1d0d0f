"""What a rule finds, a run shows: the broken example breaks the rule's clause, and the correct one
keeps it, which is what the fix makes of the broken one (see test_examples)."""

from __future__ import annotations

from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.rules import RULES
from fsdplint.verify.clauses import CLAUSES
from fsdplint.verify.verdict import Status, Verification

EXAMPLES = Path(__file__).parents[2] / "examples"
BROKEN, CORRECT = EXAMPLES / "broken", EXAMPLES / "correct"
SCRIPTS = {
    "collective-under-rank-guard": "collective_under_rank_guard.py",
    "clip-grad-util-on-fsdp1": "clip_grad_util_on_fsdp1.py",
    "custom-method-bypasses-hooks": "custom_method_bypasses_hooks.py",
    "direct-forward": "direct_forward.py",
    "fsdp1-api-on-fsdp2-model": "fsdp1_api_on_fsdp2_model.py",
    "same-data-on-every-rank": "same_data_on_every_rank.py",
    "gradient-sync-left-off": "gradient_sync_left_off.py",
    "ignored-parameters": "ignored_parameters.py",
    "materialized-without-init": "materialized_without_init.py",
    "module-added-after-sharding": "module_added_after_sharding.py",
    "no-sync-under-fsdp2": "no_sync_under_fsdp2.py",
    "only-root-sharded": "only_root_sharded.py",
    "optimizer-before-sharding": "optimizer_before_sharding/train.py",
    "optimizer-state-saved-raw": "optimizer_state_saved_raw.py",
    "parameters-replaced-after-optimizer": "parameters_replaced_after_optimizer.py",
    "root-not-sharded": "root_not_sharded.py",
    "root-unsharded-after-eval": "root_unsharded_after_eval.py",
    "sharded-reduction-read-locally": "sharded_reduction_read_locally.py",
    "sharded-state-saved": "sharded_state_saved.py",
}
RANKS = [(name, 2) for name in SCRIPTS] + [("optimizer-before-sharding", 4)]
STEPS = ("--steps", "2")
NEWER = {"backward-not-finalized"}
"""Rules about calls that the installed torch does not have: they are new in 2.15."""
RUNTIME = {rule.name: rule.clause for rule in RULES if rule.clause and rule.name not in NEWER}
FIRST = {RUNTIME[name]: (name, 2) for name in reversed(SCRIPTS)}.values()


def violated(result: Verification) -> list[str]:
    return [verdict.clause for verdict in result.violated]


def confirmed(result: Verification) -> set[str]:
    return {v.clause for v in result.verdicts if v.status is Status.CONFIRMED}


def test_every_rule_of_a_runtime_contract_names_a_clause() -> None:
    assert set(RUNTIME) == set(SCRIPTS)
    assert set(RUNTIME.values()) <= {clause.name for clause in CLAUSES}


@pytest.mark.parametrize(("rule", "ranks"), RANKS)
def test_the_broken_example_breaks_the_clause_and_the_correct_one_keeps_it(
    rule: str, ranks: int, verifier: Verifier
) -> None:
    broken = verifier(BROKEN / SCRIPTS[rule], ranks=ranks, steps=None, arguments=STEPS)
    assert violated(broken) == [RUNTIME[rule]], broken.failure
    if (rule, ranks) not in FIRST:
        return  # another rule's example shows that the clause can be kept
    whole = verifier(CORRECT / SCRIPTS[rule], ranks=ranks, steps=None, arguments=STEPS)
    assert (violated(whole), whole.failure) == ([], "")
    assert RUNTIME[rule] in confirmed(whole)
