"""A run that starts again from a save, against the one that has saved."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import LONG

from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Status, Verdict
from fsdplint.verify.warm_launcher import Warm

SCRIPT = Path(__file__).parent / "resume" / "train.py"


def verdict(
    warm: Warm, variant: str, ranks: int = 2, again: tuple[int, ...] = (2,), given: str = "--resume"
) -> Verdict:
    """Returns what a variant of the script is told of `resume`."""
    words, resuming = tuple(variant.split()), tuple(given.split())
    request = Request(
        SCRIPT.name, words, ranks, 3, "cpu", LONG, resume=again, resume_arguments=resuming
    )
    result = verify(request, SCRIPT.parent, launcher=warm)
    (found,) = (v for v in result.verdicts if v.clause == "resume")
    return found


@pytest.mark.parametrize(
    ("variant", "ranks", "again"),
    [
        ("", 2, (2, 3)),
        ("full", 2, (4,)),
        ("async", 2, (2,)),
        ("fsdp1", 3, (2,)),
        ("fsdp1 original", 2, (3,)),
        ("fsdp1 sharded", 2, (2,)),
        ("safetensors", 2, (3,)),
        ("hsdp", 4, (2,)),
        ("tp", 4, (2,)),
        ("twice", 2, (2,)),
        ("exported", 2, (2,)),
        ("best", 2, (2,)),
    ],
)
def test_a_sound_checkpoint_is_confirmed(
    warm: Warm, variant: str, ranks: int, again: tuple[int, ...]
) -> None:
    found = verdict(warm, variant, ranks, again)
    on = " and ".join(map(str, again))
    assert found.figures.startswith(
        f"saved after 2 steps on {ranks} ranks; resumed on {on} ranks: "
    )
    assert found.status is Status.CONFIRMED, (found.figures, found.details)


def test_a_save_at_the_end_is_compared_without_another_step(warm: Warm) -> None:
    found = verdict(warm, "last")
    assert found.figures == (
        "saved after 6 steps on 2 ranks; resumed on 2 ranks: 6 parameters, 3 buffers, 18 optimizer "
        "states restored"
    )


@pytest.mark.parametrize(
    ("variant", "figures", "detail"),
    [
        (
            "no-optimizer",
            "18 of 18 optimizer states changed (by up to 1)",
            "changed: exp_avg of layers.0.weight, exp_avg_sq of layers.0.weight, exp_avg of "
            "layers.0.bias, exp_avg_sq of layers.0.bias, exp_avg of layers.1.weight and 13 more",
        ),
        (
            "no-schedule",
            "lr of group 0 is 0.01 at step 2, not 0.005",
            "the data continues where it stopped",
        ),
        (
            "reset-buffers",
            "3 of 3 buffers changed (by up to 1)",
            "changed: norm.running_mean, norm.num_batches_tracked, norm.running_var",
        ),
        (
            "rounded",
            "6 of 6 parameters changed (by up to 0.0021), 2 of 3 buffers changed (by up to 0.0018)",
            "the data continues where it stopped",
        ),
    ],
)
def test_what_a_checkpoint_loses_is_told_by_name(
    warm: Warm, variant: str, figures: str, detail: str
) -> None:
    found = verdict(warm, variant)
    assert found.figures == f"saved after 2 steps on 2 ranks; resumed on 2 ranks: {figures}"
    assert detail in found.details
    assert found.status is Status.VIOLATED
    assert [place.function for place in found.places] == ["save"]


def test_what_tensor_parallelism_divides_is_compared(warm: Warm) -> None:
    found = verdict(warm, "tp no-optimizer", 4, (4,))
    assert (found.status, found.figures) == (
        Status.VIOLATED,
        "saved after 2 steps on 4 ranks; resumed on 4 ranks: 18 of 18 optimizer states changed "
        "(by up to 1)",
    )


def test_slices_of_ranks_need_as_many_ranks(warm: Warm) -> None:
    found = verdict(warm, "slices", 2, (3,))
    assert found.figures == (
        "saved after 2 steps on 2 ranks; resumed on 3 ranks: fails before its first step with "
        "RuntimeError: The size of tensor a (2) must match the size of tensor b (3) at "
        "non-singleton dimension 0"
    )
    assert [place.function for place in found.places] == ["load"]


def test_a_clause_that_the_resumed_run_alone_violates_is_told(warm: Warm) -> None:
    found = verdict(warm, "assigned")
    assert found.status is Status.VIOLATED
    assert "`optimizer` is violated: `AdamW` holds 6 parameters that " in found.figures
    assert [place.function for place in found.places] == ["<module>", "load"]


def test_what_the_saving_run_violates_too_is_none_of_the_resumption(warm: Warm) -> None:
    request = Request(SCRIPT.name, ("loader",), 2, 3, "cpu", LONG, (), resume=(2,))
    result = verify(replace(request, resume_arguments=("--resume",)), SCRIPT.parent, launcher=warm)
    assert [v.clause for v in result.violated] == ["data"]
    assert result.verdicts[-1].status is Status.CONFIRMED


def test_what_changes_behind_a_save_is_not_what_was_saved(warm: Warm) -> None:
    found = verdict(warm, "in-place")
    *continued, loss = found.details
    assert (found.status, continued) == (
        Status.CONFIRMED,
        ["the data continues where it stopped", "random numbers continue where they stopped"],
    )
    # The last digits depend on the processor.
    assert re.fullmatch(r"loss 1 is 6\.40\d+, but 14\.40\d+ in the uninterrupted run", loss)


@pytest.mark.parametrize(("variant", "given"), [("stale", "--resume"), ("", ""), ("frozen", "")])
def test_a_run_that_resumes_from_nothing_known_fails(warm: Warm, variant: str, given: str) -> None:
    request = Request(SCRIPT.name, (variant,), 2, 3, "cpu", LONG, resume=(2,))
    request = replace(request, resume_arguments=tuple(given.split()))
    result = verify(request, SCRIPT.parent, launcher=warm)
    assert (result.exit_code, result.failure) == (
        2,
        "the resumed run could not be judged: saved after 2 steps on 2 ranks; resumed on 2 ranks: "
        "nothing was restored; if the script needs arguments to resume, pass them with "
        "`--resume-args`",
    )


def test_a_resumed_run_that_ends_early_is_no_resumption(warm: Warm) -> None:
    found = verdict(warm, "crashes")
    assert (found.status, found.figures) == (
        Status.VIOLATED,
        "saved after 2 steps on 2 ranks; resumed on 2 ranks: fails after its first step with "
        "RuntimeError: no more",
    )


def test_a_path_by_rank_is_not_found_again(warm: Warm) -> None:
    found = verdict(warm, "path")
    assert found.status is Status.VIOLATED
    assert "fails before its first step with CheckpointException: " in found.figures


def test_data_that_begin_anew_are_told_and_no_violation(warm: Warm) -> None:
    found = verdict(warm, "begins-anew")
    assert (found.status, found.details[:2]) == (
        Status.CONFIRMED,
        (
            "the data starts over from the first batch",
            "random numbers start over",
        ),
    )


def test_random_numbers_that_nothing_seeds_are_told(warm: Warm) -> None:
    found = verdict(warm, "draws")
    assert (found.status, found.details[1]) == (
        Status.CONFIRMED,
        "random numbers differ from the uninterrupted run's",
    )


def test_a_script_that_does_not_take_the_arguments(warm: Warm) -> None:
    found = verdict(warm, "", given="--unknown")
    assert (found.status, found.figures) == (
        Status.NOT_EXERCISED,
        "saved after 2 steps on 2 ranks; resumed on 2 ranks: the script exits with an error "
        "(error: unrecognized arguments: --unknown); check `--resume-args`",
    )


def test_a_run_without_a_save_shows_nothing(warm: Warm) -> None:
    found = verdict(warm, "--unknown")
    assert (found.status, found.figures) == (
        Status.NOT_EXERCISED,
        "the run saved nothing after an optimizer step",
    )


def test_what_a_script_has_dropped_at_its_end_is_not_missed(warm: Warm) -> None:
    found = verdict(warm, "last dropped")
    assert (found.status, found.figures) == (
        Status.NOT_EXERCISED,
        "saved after 6 steps on 2 ranks; resumed on 2 ranks: no step, and no model left at the "
        "end of the script",
    )
    found = verdict(warm, "last dropped-optimizer")
    assert found.figures == (
        "saved after 6 steps on 2 ranks; resumed on 2 ranks: 6 parameters, 3 buffers restored"
    )
