"""Losses, gradient norms and numbers read from sharded tensors."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch_release
from verifier import Verifier

from fsdplint.verify.clauses.numbers import gradient_norm, loss, reductions
from fsdplint.verify.events import Backward, Event, Norm, NumberRead, Place, Share
from fsdplint.verify.evidence import RankRun, Run

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.utils import clip_grad_norm_

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(0)

def net():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).cuda()

def gradients(model):
    torch.manual_seed(rank)
    model(torch.randn(4, 8, device="cuda")).square().sum().backward()
    return model.parameters()
"""
CLIPS = f"""{HEAD}
model = net()
fully_shard(model[0])
fully_shard(model)
def two(): clip_grad_norm_(gradients(model), 1.0)
def one(): clip_grad_norm_(gradients(model), max_norm=1.0, norm_type=1)
def inf(): clip_grad_norm_(gradients(model), 1.0, float("inf"))
def of_list(): clip_grad_norm_(list(gradients(model)), 1.0, 2.0, foreach=False)
def by_hand():
    gradients(model)
    total = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, total.full_tensor())
def by_rank():
    gradients(model)
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, torch.tensor(1.0 + rank))
two(), one(), inf(), of_list(), by_hand(), by_rank()

half = fully_shard(net().bfloat16())
def bf16():
    half(torch.randn(4, 8).bfloat16()).square().sum().backward()
    clip_grad_norm_(half.parameters(), 1.0)
bf16()

flat = FSDP(net(), device_id=torch.cuda.current_device())
def fsdp1_method(): gradients(flat), flat.clip_grad_norm_(1.0)
def fsdp1_function(): clip_grad_norm_(gradients(flat), 1.0)
fsdp1_method(), flat.zero_grad(), fsdp1_function()

plain = net()
def unsharded(): clip_grad_norm_(gradients(plain), 1.0)
unsharded()
"""
READS = f"""{HEAD}
model = fully_shard(net())
gradients(model)
weight = next(model.parameters())
def item(): weight.grad.norm().item()
def number(): float(weight.grad.sum())
def truth(): bool(weight.grad.sum())
def whole(): weight.grad.norm().full_tensor().item()
def replicated(): clip_grad_norm_(model.parameters(), 1.0).item()
def local(): weight.grad.to_local().norm().item()
def torchs_own(): clip_grad_norm_(model.parameters(), 1.0, float("inf"), error_if_nonfinite=True)
def summed():
    squares = sum(p.grad.norm().item() ** 2 for p in model.parameters())
    total = torch.tensor(squares, device="cuda")
    dist.all_reduce(total)
item(), number(), truth(), whole(), replicated(), local(), torchs_own(), summed()
"""


@pytest.fixture(scope="module")
def clips(verifier: Verifier) -> Run:
    return complete(verifier.observe(CLIPS))


@pytest.fixture(scope="module")
def reads(verifier: Verifier) -> Run:
    return complete(verifier.observe(READS))


def complete(run: Run) -> Run:
    assert [rank.ended and rank.ended.how for rank in run.ranks] == ["script"] * 2, run
    return run


def only(run: Run, function: str) -> Run:
    """Returns the run with no clips and reads but those of one function of the script."""
    ranks = []
    for rank in run.ranks:
        kept = [e for e in rank.events if not isinstance(e, Norm | NumberRead) or _in(e, function)]
        ranks.append(replace(rank, events=tuple(kept)))
    return replace(run, ranks=tuple(ranks))


def _in(event: Norm | NumberRead, function: str) -> bool:
    return event.place is not None and event.place.function == function


@pytest.mark.parametrize("function", ["two", "one", "inf", "of_list", "by_hand", "bf16"])
def test_the_norm_of_fsdp2s_gradients_is_global(clips: Run, function: str) -> None:
    assert gradient_norm.judge(only(clips, function)).status.value == "confirmed"


def test_fsdp1s_method_is_global_and_the_function_is_not(clips: Run) -> None:
    method, function = (
        gradient_norm.judge(only(clips, f"fsdp1_{n}")) for n in ("method", "function")
    )
    assert (method.status.value, function.status.value) == ("confirmed", "violated")
    norms = [float(norm.used) for _, norm in only(clips, "fsdp1_function").all(Norm)]
    whole = math.hypot(*norms)
    assert function.figures == (
        f"clipped by a norm of {norms[0]:.4g} on rank 0, {norms[1]:.4g} on rank 1; "
        f"the global norm is {whole:.4g}"
    )
    assert [place.function for place in function.places] == ["fsdp1_function"]


def test_a_norm_of_the_scripts_own_has_to_agree(clips: Run) -> None:
    assert gradient_norm.judge(only(clips, "by_rank")).status.value == "violated"


def test_gradients_of_each_ranks_own_have_no_global_norm(clips: Run) -> None:
    found = gradient_norm.judge(only(clips, "unsharded"))
    each = [f"{float(n.used):.4g} on rank {r}" for r, n in only(clips, "unsharded").all(Norm)]
    assert (found.status.value, found.figures) == (
        "not exercised",
        f"each rank clips by the norm of its own gradients: {', '.join(each)}",
    )


def test_a_norm_left_in_parts_says_so(clips: Run) -> None:
    found = gradient_norm.judge(only(clips, "inf"))
    assert found.details == (
        "the value is a DTensor with this rank's part; call `full_tensor()` for the global norm",
    )


PARTS = ["item", "number"]
WHOLE = ["whole"]
(WHOLE if torch_release.CLIPPED_NORM_IS_WHOLE else PARTS).append("replicated")


@pytest.mark.parametrize("function", PARTS)
def test_a_read_of_a_part_is_violated(reads: Run, function: str) -> None:
    alone = only(reads, function)
    found = reductions.judge(alone)
    values = [event.value for _, event in alone.all(NumberRead)]
    assert (found.status.value, len(values)) == ("violated", 2)
    assert [place.function for place in found.places] == [function]
    each = [f"{float(value):.4g} on rank {rank}" for rank, value in enumerate(values)]
    assert found.figures.endswith(f": {', '.join(each)}")


def test_a_truth_is_the_wholes_where_all_parts_agree(reads: Run) -> None:
    agreeing = only(reads, "truth")
    told = [replace(e, value="False") for e in agreeing.ranks[1].of(NumberRead)]
    parted = replace(
        agreeing, ranks=(agreeing.ranks[0], replace(agreeing.ranks[1], events=tuple(told)))
    )

    assert reductions.judge(agreeing).status.value == "not exercised"
    assert reductions.judge(parted).figures.endswith(": True on rank 0, False on rank 1")


@pytest.mark.parametrize("function", WHOLE)
def test_a_read_of_the_whole_is_confirmed(reads: Run, function: str) -> None:
    found = reductions.judge(only(reads, function))
    assert (found.status.value, found.figures) == ("confirmed", "global values read at 1 line")


@pytest.mark.parametrize(
    ("function", "figures"),
    [
        ("local", "no number was read from a DTensor"),
        ("torchs_own", "no number was read from a DTensor"),
        ("<genexpr>", "local values are read, but they are equal or the script combines them"),
    ],
)
def test_what_is_no_read_of_the_scripts(reads: Run, function: str, figures: str) -> None:
    found = reductions.judge(only(reads, function))
    assert (found.status.value, found.figures) == ("not exercised", figures)


def norm(used: float, local: float, ranks: tuple[int, ...] = (0, 1), **changes: object) -> Norm:
    made = Norm(
        *("clip", False, repr(used), "", ranks, "2.0", "0.0", (Share(ranks, repr(local)),), 4),
        *(False, "fsdp2", 0, Place("train.py", 1)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def of(*events: Event) -> Run:
    """Builds a run with one event a rank."""
    return Run(tuple(RankRun(rank, (event,), (), "") for rank, event in enumerate(events)))


@pytest.mark.parametrize(
    ("changes", "used", "status"),
    [
        ({}, 5.004, "confirmed"),
        ({}, 5.006, "violated"),
        ({"precision": 2}, 5.09, "confirmed"),
        ({"precision": 2}, 5.11, "violated"),
        ({"combine": "norm"}, 5 / math.sqrt(2), "confirmed"),
        ({"combine": "sum"}, 5.0, "violated"),
        ({"combine": "product"}, 5.0, "not exercised"),
        ({"norm_type": "0.0"}, 5.0, "not exercised"),
        ({"shares": (Share((0, 1, 2), "9.0"),)}, 5.0, "not exercised"),
        ({}, math.nan, "violated"),
    ],
)
def test_the_tolerance_and_what_is_unknown(
    changes: dict[str, object], used: float, status: str
) -> None:
    run = of(norm(used, 9.0, **changes), norm(used, 16.0, **changes))
    assert gradient_norm.judge(run).status.value == status


def test_replicas_that_drift_have_norms_of_their_own() -> None:
    """That is another clause's affair, and nothing is global."""
    run = of(*(norm(u, p, r) for u, p, r in ((5, 9, (0, 1)), (5, 16, (0, 1)), (10, 100, (2,)))))
    assert gradient_norm.judge(run).figures == (
        "each rank clips by the norm of its own gradients: 5 on rank 0, 5 on rank 1, 10 on rank 2"
    )


def test_a_norm_that_the_script_brings_may_hold_more_than_is_seen() -> None:
    """Stages of a pipeline clip by one number, of which each has a part."""
    run = of(*(norm(5, power, (rank,), given=True) for rank, power in enumerate((9, 16))))
    assert gradient_norm.judge(run).figures == (
        "every rank clips by 5, a norm that the script computes; the gradients that rank 0 shares "
        "with other ranks have norm 3"
    )


def test_gradients_divided_in_two_ways_are_added_up() -> None:
    """As under tensor parallelism: biases are cut along one dimension of the mesh alone."""
    all_ranks, columns = Share((0, 1, 2, 3), "4.0"), [Share((0, 2), "4.5"), Share((1, 3), "4.5")]
    run = of(*(norm(5.0, 0.0, shares=(all_ranks, columns[rank % 2])) for rank in range(4)))
    assert gradient_norm.judge(run).figures == "1 global norm, the last 5 (error at most 0.0e+00)"


@pytest.mark.parametrize(
    ("scaled", "lost", "status"),
    [(False, False, "violated"), (True, False, "not exercised"), (False, True, "not exercised")],
)
def test_a_norm_that_is_not_finite(scaled: bool, lost: bool, status: str) -> None:
    bad = norm(math.inf, math.inf, scaled=scaled)
    backward = Backward(0, "nan" if lost else "1.0", not lost, True, None)
    run = Run(tuple(RankRun(rank, (backward, bad), (), "") for rank in range(2)))
    assert gradient_norm.judge(run).status.value == status


def test_a_loss_that_is_not_finite_is_violated() -> None:
    fine, bad = (Backward(2, text, text == "1.0", True, None) for text in ("1.0", "nan"))
    found = loss.judge(of(fine, bad))
    assert (found.status.value, found.figures) == ("violated", "loss is nan on rank 1 at step 3")
    assert loss.judge(of(fine, fine)).status.value == "confirmed"
    assert loss.judge(Run(())).status.value == "not exercised"


def test_a_scaled_loss_is_another_number() -> None:
    """A scale that is too high is the scaler's business."""
    fine, bad = (Backward(0, v, v != "inf", True, None, scaled=True) for v in ("65536.0", "inf"))
    assert loss.judge(of(fine, bad)).figures == (
        "1 of 2 losses not finite after scaling; the gradient scaler then lowers its scale"
    )
    assert loss.judge(of(fine)).figures == (
        "1 loss between 6.554e+04 and 6.554e+04 (scaled by the gradient scaler)"
    )
    own = replace(bad, scaled=False)
    assert loss.judge(of(bad, own)).status.value == "violated"
