"""The examples are what they say: broken ones are found, fixed and harmful, correct ones train."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from ranks import Outcome, Ranks, report

from fsdplint.check import check
from fsdplint.cli.main import main
from fsdplint.rules import RULES
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

EXAMPLES = Path(__file__).parent.parent / "examples"
BROKEN, CORRECT = EXAMPLES / "broken", EXAMPLES / "correct"
SCRIPTS = {
    "all-reduced-loss-before-backward": "all_reduced_loss_before_backward.py",
    "collective-under-rank-guard": "collective_under_rank_guard.py",
    "clip-grad-util-on-fsdp1": "clip_grad_util_on_fsdp1.py",
    "custom-method-bypasses-hooks": "custom_method_bypasses_hooks.py",
    "direct-forward": "direct_forward.py",
    "epoch-not-set": "epoch_not_set.py",
    "fresh-optimizer-in-dcp-load": "fresh_optimizer_in_dcp_load.py",
    "fsdp1-api-on-fsdp2-model": "fsdp1_api_on_fsdp2_model.py",
    "full-state-dict-into-sharded-model": "full_state_dict_into_sharded_model.py",
    "gradient-sync-left-off": "gradient_sync_left_off.py",
    "ignored-parameters": "ignored_parameters.py",
    "module-added-after-sharding": "module_added_after_sharding.py",
    "materialized-without-init": "materialized_without_init.py",
    "no-sync-under-fsdp2": "no_sync_under_fsdp2.py",
    "only-root-sharded": "only_root_sharded.py",
    "optimizer-before-sharding": "optimizer_before_sharding/train.py",
    "optimizer-state-saved-raw": "optimizer_state_saved_raw.py",
    "parameters-replaced-after-optimizer": "parameters_replaced_after_optimizer.py",
    "rank-dependent-init": "rank_dependent_init.py",
    "root-not-sharded": "root_not_sharded.py",
    "root-unsharded-after-eval": "root_unsharded_after_eval.py",
    "same-data-on-every-rank": "same_data_on_every_rank.py",
    "sharded-reduction-read-locally": "sharded_reduction_read_locally.py",
    "sharded-state-saved": "sharded_state_saved.py",
}
FINDINGS = [
    (
        "all_reduced_loss_before_backward.py",
        "all-reduced-loss-before-backward",
        "loss.backward()",
    ),
    (
        "clip_grad_util_on_fsdp1.py",
        "clip-grad-util-on-fsdp1",
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    (
        "collective_under_rank_guard.py",
        "collective-under-rank-guard",
        "get_model_state_dict(model, options=options)",
    ),
    ("custom_method_bypasses_hooks.py", "custom-method-bypasses-hooks", "model.loss"),
    ("direct_forward.py", "direct-forward", "block.forward"),
    ("direct_forward.py", "direct-forward", "model.forward"),
    ("epoch_not_set.py", "epoch-not-set", "DistributedSampler(dataset, shuffle=True)"),
    (
        "fresh_optimizer_in_dcp_load.py",
        "fresh-optimizer-in-dcp-load",
        "dcp.load(state, checkpoint_id=folder)",
    ),
    ("fsdp1_api_on_fsdp2_model.py", "fsdp1-api-on-fsdp2-model", "model.clip_grad_norm_(1.0)"),
    (
        "full_state_dict_into_sharded_model.py",
        "full-state-dict-into-sharded-model",
        "model.load_state_dict(state)",
    ),
    (
        "gradient_sync_left_off.py",
        "gradient-sync-left-off",
        "self.model.set_requires_gradient_sync(False)",
    ),
    ("ignored_parameters.py", "ignored-parameters", "set(model.embed.parameters())"),
    (
        "materialized_without_init.py",
        "materialized-without-init",
        "model.to_empty(device=device)",
    ),
    ("module_added_after_sharding.py", "module-added-after-sharding", "model.head"),
    ("no_sync_under_fsdp2.py", "no-sync-under-fsdp2", "self.model.no_sync()"),
    ("only_root_sharded.py", "only-root-sharded", "fully_shard(model, mesh=mesh)"),
    (
        "optimizer_before_sharding/trainer.py",
        "optimizer-before-sharding",
        "torch.optim.AdamW(self.model.parameters(), lr=1e-3)",
    ),
    (
        "optimizer_state_saved_raw.py",
        "optimizer-state-saved-raw",
        "torch.save(optimizer.state_dict(), path)",
    ),
    (
        "optimizer_state_saved_raw.py",
        "optimizer-state-saved-raw",
        "optimizer.load_state_dict(torch.load(path))",
    ),
    (
        "parameters_replaced_after_optimizer.py",
        "parameters-replaced-after-optimizer",
        "load(model, weights)",
    ),
    (
        "rank_dependent_init.py",
        "rank-dependent-init",
        "torch.manual_seed(dist.get_rank())",
    ),
    ("root_not_sharded.py", "root-not-sharded", "fully_shard(block, mesh=mesh)"),
    (
        "root_unsharded_after_eval.py",
        "root-unsharded-after-eval",
        "torch.optim.AdamW(model.parameters(), lr=1e-3)",
    ),
    (
        "same_data_on_every_rank.py",
        "same-data-on-every-rank",
        "DataLoader(dataset, batch_size=16)",
    ),
    (
        "sharded_reduction_read_locally.py",
        "sharded-reduction-read-locally",
        "p.grad.norm().item()",
    ),
    ("sharded_state_saved.py", "sharded-state-saved", "torch.save(model.state_dict(), path)"),
]
UNITS = """
from torch.distributed.fsdp import FSDPModule
print("units", sum(isinstance(module, FSDPModule) for module in model.modules()))
"""
SAVED = """
saved = torch.load("gpt.pt")
local = [getattr(tensor, "_local_tensor", tensor) for tensor in saved.values()]
whole = GPT().state_dict()
print("share", sum(map(torch.numel, local)) / sum(map(torch.numel, whole.values())))
"""
UNTRAINED = """
torch.manual_seed(0)
parts = {name: p.chunk(2)[int(os.environ["RANK"])] for name, p in GPT().named_parameters()}
same = [name for name, p in model.named_parameters() if torch.equal(p.to_local(), parts[name])]
print("untrained", *same)
"""
MOMENTS = """
state = torch.load("adamw.pt")["state"].values()
local = [getattr(each["exp_avg"], "_local_tensor", each["exp_avg"]) for each in state]
print("share", sum(map(torch.numel, local)) / sum(map(torch.numel, GPT().state_dict().values())))
"""
SHOWN = {
    "fresh-optimizer-in-dcp-load": (
        "",
        "moments of 0 parameters\n",
        "moments of 51 parameters\n",
    ),
    "only-root-sharded": (UNITS, "units 1\n", "units 5\n"),
    "optimizer-state-saved-raw": (MOMENTS, "share 0.5\n", "share 1.0\n"),
    "root-unsharded-after-eval": (
        UNTRAINED,
        "untrained embed.weight head.weight head.bias\n",
        "untrained\n",
    ),
    "sharded-state-saved": (SAVED, "share 0.5\n", "share 1.0\n"),
}
"""A probe after an example, and what each rank prints, of the broken one and of the correct one;
without a probe rank 0 prints it by itself."""


def run(ranks: Ranks, script: Path, probe: str = "") -> tuple[Outcome, ...]:
    """Trains for four steps on two ranks, which takes every example far enough to learn."""
    code = script.read_text(encoding="utf-8") + probe
    return ranks.run(code, path=str(script), arguments=["--steps", "4"], process_group=False)


def losses(outcomes: tuple[Outcome, ...]) -> list[float]:
    return [float(loss) for loss in re.findall(r"step \d+ loss (\S+)", outcomes[0].output)]


def test_each_rule_of_a_runtime_contract_has_an_example() -> None:
    assert set(SCRIPTS) <= {rule.name for rule in RULES}
    newer = {"backward-not-finalized"}  # about calls that are new in torch 2.15
    assert set(SCRIPTS) >= {rule.name for rule in RULES if rule.clause} - newer
    for folder in BROKEN, CORRECT:
        scripts = {path.relative_to(folder).parts[0] for path in folder.rglob("*.py")}
        assert scripts == {Path(script).parts[0] for script in SCRIPTS.values()}


def test_broken_examples_have_exactly_these_findings() -> None:
    outcome = check([BROKEN], defaults(EVERYTHING))
    assert not outcome.failures
    found = [(Path(f.span.path), f.rule, f.span) for f in outcome.findings]
    assert [
        (
            path.relative_to(BROKEN).as_posix(),
            rule,
            path.read_text(encoding="utf-8")[span.start : span.end],
        )
        for path, rule, span in found
    ] == FINDINGS


def test_correct_examples_are_clean() -> None:
    outcome = check([CORRECT], defaults(EVERYTHING))
    assert not outcome.failures
    assert not outcome.findings


def test_fixes_make_the_broken_examples_correct(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(BROKEN, tmp_path / "examples")
    with pytest.raises(SystemExit) as end:
        main(["check", "--fix", "--unsafe-fixes", "--preview", str(copy)])
    assert end.value.code == 0, capsys.readouterr()
    names = sorted(path.relative_to(CORRECT) for path in CORRECT.rglob("*.py"))
    assert [path.relative_to(copy) for path in sorted(copy.rglob("*.py"))] == names
    for name in names:
        fixed = (copy / name).read_text(encoding="utf-8")
        assert fixed == (CORRECT / name).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("rule", SCRIPTS)
def test_correct_examples_learn(rule: str, ranks: Ranks) -> None:
    probe, _, said = SHOWN.get(rule, ("", "", ""))
    outcomes = run(ranks, CORRECT / SCRIPTS[rule], probe)
    assert report(outcomes) == ""
    first, *_, last = losses(outcomes)
    assert last < first - 0.5
    assert all(said in outcome.output for outcome in (outcomes if probe else outcomes[:1]))


@pytest.mark.parametrize("rule", SHOWN)
def test_what_is_wrong_with_a_broken_example_shows(rule: str, ranks: Ranks) -> None:
    probe, said, _ = SHOWN[rule]
    outcomes = run(ranks, BROKEN / SCRIPTS[rule], probe)
    assert report(outcomes) == ""
    assert all(said in outcome.output for outcome in (outcomes if probe else outcomes[:1]))


def test_a_direct_forward_stops(ranks: Ranks) -> None:
    outcomes = run(ranks, BROKEN / SCRIPTS["direct-forward"])
    assert all("got mixed torch.Tensor and DTensor" in outcome.error for outcome in outcomes)


def test_no_sync_stops(ranks: Ranks) -> None:
    outcomes = run(ranks, BROKEN / SCRIPTS["no-sync-under-fsdp2"])
    assert all("has no attribute 'no_sync'" in outcome.error for outcome in outcomes)


def test_a_method_of_fsdp1_stops(ranks: Ranks) -> None:
    outcomes = run(ranks, BROKEN / SCRIPTS["fsdp1-api-on-fsdp2-model"])
    assert all("has no attribute 'clip_grad_norm_'" in outcome.error for outcome in outcomes)


def test_a_plain_state_dict_stops(ranks: Ranks) -> None:
    outcomes = run(ranks, BROKEN / SCRIPTS["full-state-dict-into-sharded-model"])
    assert all("got mixed torch.Tensor and DTensor" in outcome.error for outcome in outcomes)


@pytest.mark.parametrize(
    "rule",
    [
        "optimizer-before-sharding",
        "gradient-sync-left-off",
        "parameters-replaced-after-optimizer",
    ],
)
def test_it_learns_nothing(rule: str, ranks: Ranks) -> None:
    outcomes = run(ranks, BROKEN / SCRIPTS[rule])
    assert report(outcomes) == ""
    first, *_, last = losses(outcomes)
    assert abs(last - first) < 0.2
