"""A sharded run against one process in which nothing is sharded.

Tests that need torch in this process import it: collecting them takes seconds less.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from waiting import LONG

from fsdplint.verify.clauses.equivalence import equivalence
from fsdplint.verify.events import Compared, Drifted, Ended, Event, NotCompared, Place, ProbeFailed
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Status, Verdict
from fsdplint.verify.warm_launcher import Warm

SCRIPT = Path(__file__).parent / "reference" / "train.py"


def verdict(warm: Warm, variant: str, ranks: int = 2) -> Verdict:
    """Returns what a variant of the script is told of equivalence; it accumulates over two."""
    arguments = tuple(variant.split())
    request = Request(SCRIPT.name, arguments, ranks, 2, "cpu", LONG, reference=True)
    result = verify(request, SCRIPT.parent, launcher=warm)
    (found,) = (v for v in result.verdicts if v.clause == "equivalence")
    return found


@pytest.mark.parametrize(
    ("variant", "ranks", "tolerance"),
    [
        ("dropout tied clip", 2, "1e-5"),
        ("two checkpoint hsdp", 4, "1e-5"),
        ("bf16", 2, "0.02"),
        ("fsdp1 clip bf16", 3, "0.02"),
        ("fsdp1 orig dropout", 2, "1e-5"),
    ],
)
def test_a_sound_run_is_confirmed(warm: Warm, variant: str, ranks: int, tolerance: str) -> None:
    found = verdict(warm, variant, ranks)

    parameters = 13 if "tied" in variant else 14
    assert found.status is Status.CONFIRMED, found.figures
    assert found.figures.startswith(f"2 steps, {parameters} parameters: ")
    assert found.figures.endswith(f", tolerance {tolerance}")
    assert found.details[0] == "output: equal"
    assert (
        sum(detail.startswith("trained on its own, the unsharded ") for detail in found.details)
        == 1
    )


@pytest.mark.parametrize(
    ("variant", "kind", "detail", "line"),
    [
        ("factor", "gradient", "2 times the unsharded one", "stepper.step("),
        ("unsynced", "gradient", "zero in the sharded run", "stepper.step("),
        ("no-root", "gradient", "gradient: at most", "stepper.step("),
        ("by-shard", "parameter", "parameter: at most", "stepper.step("),
        ("early", "parameter", "parameter: at most 1 ", "stepper.step("),
        ("by-hand", "scaled gradient", "scaled gradient: at most", "stepper.step("),
        ("fsdp1 clip badly", "clipped gradient", "clipped gradient: at most", "clip(*("),
    ],
)
def test_what_sharding_changes_is_violated(
    warm: Warm, variant: str, kind: str, detail: str, line: str
) -> None:
    found = verdict(warm, variant)

    assert found.status is Status.VIOLATED, found.figures
    assert found.figures.startswith(f"differs from step 1 on, first in the {kind}; ")
    assert sum(detail in text for text in found.details) == 1
    (place,) = found.places
    assert line in SCRIPT.read_text().splitlines()[place.line - 1]


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("tensor-parallel", "`head.weight` is also sharded by tensor parallelism"),
        ("talks", "the model's forward calls a collective (`all_reduce`)"),
        ("counts", "the forward is not deterministic"),
        ("around", "gradients reach `blocks.0.norm.weight` outside the model's forward"),
        ("unpicklable", "the model's inputs cannot be saved"),
        ("several", "the script fails in one process (AssertionError: several ranks,"),
    ],
)
def test_what_cannot_be_compared_is_said(warm: Warm, variant: str, reason: str) -> None:
    found = verdict(warm, variant)

    assert found.status is Status.NOT_EXERCISED, found.figures
    assert found.figures.startswith(reason)


def compared(what: str, difference: float, step: int = 1, tolerance: float = 1e-5) -> Compared:
    return Compared(step, what, "a.weight", difference, tolerance, 4, None, Place("t.py", step))


def of(*events: Event) -> Run:
    return Run((RankRun(0, events, (), ""),))


def test_the_first_kind_that_differs_and_the_largest_difference_are_told() -> None:
    alone = of(
        compared("output", 0.0), compared("gradient", 2e-5), compared("parameter", 0.5, tolerance=1)
    )

    found = equivalence(of(), alone)

    assert (found.status, found.places) == (Status.VIOLATED, (Place("t.py", 1),))
    assert found.figures == (
        "differs from step 1 on, first in the gradient; "
        "largest difference 2e-5 (gradient of a.weight), tolerance 1e-5"
    )


def test_a_difference_within_tolerance_is_confirmed_with_its_size() -> None:
    alone = of(
        compared("gradient", 3.1e-8, step=1), compared("parameter", 0.0, step=2), Drifted(4e-8)
    )

    found = equivalence(of(), alone)

    assert found.status is Status.CONFIRMED
    assert found.figures == (
        "2 steps, 4 parameters: largest difference 3.1e-8 (gradient of a.weight), tolerance 1e-5"
    )
    assert found.details[-1] == (
        "trained on its own, the unsharded model drifts by 4e-8 (accumulated rounding)"
    )


@pytest.mark.parametrize(
    ("sharded", "alone", "reason"),
    [
        (of(), None, "not every rank finished an optimizer step"),
        (of(ProbeFailed("capture", "Incomparable: so it is")), None, "so it is"),
        (of(ProbeFailed("capture", "ValueError: no")), of(compared("output", 1.0)), "ValueError: "),
        (of(), of(compared("output", 0.0), NotCompared("it is so")), "it is so"),
        (of(), of(Ended("script", 0)), "the script takes no optimizer step in one process"),
        (of(), of(), "the script does not reach its first optimizer step in one process"),
    ],
)
def test_without_a_full_comparison_nothing_is_claimed(
    sharded: Run, alone: Run | None, reason: str
) -> None:
    found = equivalence(sharded, alone)

    assert found.status is Status.NOT_EXERCISED
    assert found.figures.startswith(reason)


def test_parts_of_all_kinds_are_put_together() -> None:
    import torch

    from fsdplint.verify.rank.reference.region import Region, whole
    from fsdplint.verify.rank.reference.tape import Step, Stride

    rows = [Region((5, 2), 0, 0, 3), Region((5, 2), 0, 3, 2)]
    flat = [Region((5, 2), None, 0, 7), Region((5, 2), None, 7, 3)]
    full = torch.arange(10.0).reshape(5, 2)
    strides = [
        Stride({(0, "rows"): row, (0, "flat"): part, (0, "whole"): whole((5, 2))})
        for row, part in zip(rows, flat, strict=True)
    ]
    parts = [{key: region.of(full) for key, region in s.layout.items()} for s in strides]

    joined = Step(strides).join(parts)

    assert {key[1] for key in joined} == {"rows", "flat", "whole"}
    assert all(torch.equal(tensor, full) for tensor in joined.values())


def test_a_distance_counts_elements_once_and_absent_parts_as_zero() -> None:
    import torch

    from fsdplint.verify.rank.reference import measure
    from fsdplint.verify.rank.reference.region import Region, whole

    ones = torch.ones(4)
    twice = [(whole((4,)), ones + 1), (whole((4,)), ones + 1)]
    halves = [(Region((4,), 0, 0, 2), ones[:2]), (Region((4,), 0, 2, 2), None)]
    flat = [(Region((4,), None, 0, 3), ones[:3] + 1), (Region((4,), None, 3, 1), ones[3:])]

    assert measure.apart(ones, twice) == pytest.approx(2.0)
    assert measure.apart(ones, halves) == pytest.approx(math.sqrt(2))
    assert measure.apart(ones, flat) == pytest.approx(math.sqrt(3))
    assert measure.times(ones, twice) == pytest.approx(2.0)
    assert measure.times(ones, halves) is None


def test_what_is_not_finite_in_one_alone_is_infinitely_far() -> None:
    import torch

    from fsdplint.verify.rank.reference import measure

    nan = torch.tensor([1.0, math.nan])

    assert measure.distance(nan, nan) == 0.0
    assert measure.distance(nan, torch.ones(2)) == math.inf


def test_a_small_step_is_measured_by_itself() -> None:
    import torch

    from fsdplint.verify.rank.reference import measure

    before = torch.ones(100)
    after, half = before - 1e-3, before - 5e-4

    scale = measure.update_scale(before, after, measure.TOLERANCE)

    assert measure.distance(after, half) / scale > 100 * measure.TOLERANCE
    assert measure.distance(after, after * (1 + 6e-8)) / scale < measure.TOLERANCE


def test_inputs_are_copies_and_outputs_are_found_in_any_container() -> None:
    import torch

    from fsdplint.verify.rank.reference.tape import freeze, tensors, thaw

    table = torch.arange(1000.0)
    (row,), named = thaw(freeze(((table[:2],), {"scale": 2})))
    table[0] = 7.0

    assert (row.tolist(), named) == ([0.0, 1.0], {"scale": 2})
    assert len(freeze(table[:2])) < 2000
    found = tensors({"a": [row], "b": (None, {"c": row + 1})})
    assert [tensor.tolist() for tensor in found] == [[0.0, 1.0], [1.0, 2.0]]
