"""A program before and after a migration: what is proved, what is refused, and why."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from waiting import LONG

from fsdplint.verify import equivalence
from fsdplint.verify.equivalence import Equivalence, compare, proved
from fsdplint.verify.request import Request
from fsdplint.verify.verdict import Verification
from fsdplint.verify.warm_launcher import Warm

SCRIPT = Path(__file__).parent / "equivalence" / "train.py"
NOTHING = Verification("train.py", (), "", "", 1, 0.0, (), ())
EQUAL = "initial parameters: 14 of 14 equal"
TRAINED = "parameters: 14 of 14 equal (no difference of what training changes); 14 trained"
SAVED = "56 of 56 tensors equal, 1 of 1 numbers equal (no difference)"


def program(words: str) -> bytes:
    before, words_line, after = SCRIPT.read_text().partition('WORDS = {"fsdp1"}')
    assert words_line
    return f"{before}WORDS = {set(words.split())}{after}".encode()


@pytest.fixture
def migrated(warm: Warm, tmp_path: Path) -> Migrated:
    return Migrated(warm, tmp_path)


class Migrated:
    """Compares two variants of the script, the second one as a migration of the first."""

    def __init__(self, warm: Warm, folder: Path) -> None:
        self._warm, self._folder = warm, folder

    def __call__(
        self,
        before: str,
        after: str,
        *,
        steps: int | None = None,
        before_ranks: int | None = None,
        shards: bool = True,
    ) -> Equivalence:
        script = self._folder / "train.py"
        script.write_bytes(program(before))
        return compare(
            Request(script.name, (), 2, steps, "cpu", LONG),
            self._folder,
            {script.name: program(after)},
            self._warm,
            lambda _: None,
            before_ranks=before_ranks,
            shards=shards,
        )


def test_a_program_that_computes_and_saves_the_same_is_proved(migrated: Migrated) -> None:
    found = migrated("fsdp1", "fsdp2")

    assert found.refusal == ""
    assert found.figures == (
        EQUAL,
        "losses: 12 of 12 equal (no difference)",
        TRAINED,
        f"saved: `checkpoint.pt`: {SAVED}",
        "tolerance: 1e-5 (32-bit numbers)",
        "clauses: 14 confirmed, none violated",
        "device: the CPU stood in for GPUs, so this says nothing of what only they do",
        "changed lines: all 1 ran",
    )


@pytest.mark.parametrize(
    ("before", "after", "ranks", "figures"),
    [
        (
            "fsdp1 original bf16 scaler",
            "fsdp2 bf16 scaler dcp",
            None,
            (
                f"saved: `checkpoint` in place of `checkpoint.pt`: {SAVED}",
                "tolerance: 0.02 (16-bit numbers)",
            ),
        ),
        (
            "ddp unsaved",
            "fsdp2 meta",
            None,
            (
                "initial parameters: 10 parameters drawn from other random numbers; the migrated "
                "run starts from the original's",
                "random numbers: made the same when the first optimizer is built",
                "saved: `checkpoint.pt` only after the migration",
            ),
        ),
        (
            "ddp",
            "fsdp2 root",
            None,
            (EQUAL, "clauses: 12 confirmed, `blocks` violated, but no more than before"),
        ),
        ("fsdp1 original direct", "fsdp2", None, (EQUAL, TRAINED)),
        (
            "one",
            "fsdp2",
            1,
            (
                *(EQUAL, TRAINED, f"saved: `checkpoint.pt`: {SAVED}"),
                "2 ranks: the migrated script trains; what it computes there was not compared",
            ),
        ),
        ("one parallel", "fsdp2", 1, (EQUAL, TRAINED, f"saved: `checkpoint.pt`: {SAVED}")),
        ("ddp tied wrapped", "fsdp2 tied", None, ()),
        ("ddp zero unsaved", "fsdp2 unsaved", None, (EQUAL,)),
    ],
)
def test_what_need_not_be_the_same_is_reported(
    migrated: Migrated, before: str, after: str, ranks: int | None, figures: tuple[str, ...]
) -> None:
    found = migrated(before, after, before_ranks=ranks)

    assert found.refusal == ""
    assert [line for line in found.figures if line in figures] == list(figures)
    assert any(line.startswith("losses: 12 of 12 equal (") for line in found.figures)


@pytest.mark.parametrize(
    ("before", "after", "steps", "refusal"),
    [
        (
            "fsdp1",
            "fsdp2 factor",
            1,
            "losses differ: 0.1589811 before the migration and 0.3179621 after it (backward pass 1 "
            "of rank 0, tolerance 1e-5)",
        ),
        (
            "fsdp1 unsaved",
            "fsdp2 unsaved other_data",
            1,
            "losses differ: 0.1589811 before the migration and 0.2439703 after it (backward pass 1 "
            "of rank 0, tolerance 1e-5); batch 1 of rank 0 differs",
        ),
        (
            "fsdp1",
            "fsdp2 dropped",
            1,
            "training changes `head.bias` only before the migration",
        ),
        (
            "fsdp1",
            "fsdp2 every",
            None,
            "6 optimizer steps before the migration, but 12 after it",
        ),
        (
            "fsdp1 bf16",
            "fsdp2",
            1,
            "the script computes in 16-bit numbers before the migration and in 32-bit ones after "
            "it",
        ),
        (
            "fsdp1",
            "fsdp2 no_moments",
            None,
            "`checkpoint.pt` lacks `exp_avg of head.weight`, `exp_avg_sq of head.weight`, "
            "`step of head.weight` and 39 more",
        ),
        (
            "fsdp1",
            "fsdp2 wide",
            1,
            "initial parameters differ, before any training: 1 of 14 parameters (`head.weight` by "
            "6.2)",
        ),
    ],
)
def test_a_program_that_does_something_else_is_refused(
    migrated: Migrated, before: str, after: str, steps: int | None, refusal: str
) -> None:
    assert migrated(before, after, steps=steps).refusal == refusal


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        (
            "fsdp1 fails",
            "fsdp2",
            "the script fails before the migration: rank 0 failed with ValueError: no data",
        ),
        (
            "fsdp1",
            "fsdp2 fails",
            "the migrated script fails: rank 0 failed with ValueError: no data",
        ),
        (
            "fsdp1 still",
            "fsdp2 still",
            "the script trains nothing before the migration: no parameter changes",
        ),
        ("fsdp1", "ddp", "the migrated script shards nothing with `fully_shard`"),
        (
            "fsdp1 unsaved",
            "fsdp2 unsaved root",
            "`blocks` is newly violated after the migration (`blocks`: one unit gathers all 2 "
            "blocks (96% of the sharded parameters) at once)",
        ),
        (
            "fsdp1",
            "fsdp2 slices",
            "`saves` is newly violated after the migration (`checkpoint.pt` holds only the shards "
            "of rank 0: 693 of 1,375 elements of `Net`; 1,386 of 2,750 elements of the optimizer "
            "state)",
        ),
    ],
)
def test_a_run_that_says_nothing_is_refused(
    migrated: Migrated, before: str, after: str, refusal: str
) -> None:
    assert migrated(before, after).refusal == refusal


def test_another_learning_rate_shows_after_one_step(migrated: Migrated) -> None:
    """No loss shows it yet; Adam's first step is as large as the rate."""
    found = migrated("ddp unsaved", "fsdp2 unsaved rate", steps=1)

    assert "losses: 4 of 4 equal (no difference)" in found.figures
    assert re.fullmatch(
        r"trained parameters differ: 14 of 14 parameters, `[\w.]+` by 1 of what training changes "
        r"\(tolerance 1e-5\)",
        found.refusal,
    )


def test_a_program_that_differs_from_run_to_run_cannot_be_compared(migrated: Migrated) -> None:
    found = migrated("ddp random", "ddp random", steps=1, shards=False)

    assert found.refusal.startswith("two runs of the original script differ, too: losses differ: ")


@pytest.mark.parametrize("refusal", ["", "the script trains nothing"])
def test_the_command_line_reports_figures_and_the_refusal(
    refusal: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Equivalence(NOTHING, None, ("losses: 2 of 2 equal (no difference)",), refusal)
    monkeypatch.setattr(equivalence, "compare", lambda *_, **__: found)
    monkeypatch.setattr(equivalence, "Warm", nullcontext)
    monkeypatch.chdir(tmp_path)

    assert proved(Request("train.py", ranks=2), {}, before_ranks=1) is (not refusal)
    assert capsys.readouterr().err.splitlines() == [
        "fsdplint: running train.py on 1 and 2 ranks before and after the migration, in scratch "
        f"copies of {tmp_path}; files it writes elsewhere stay",
        "losses: 2 of 2 equal (no difference)",
        *([f"Nothing was written: {refusal}."] if refusal else []),
    ]


def test_checkpoints_are_compared_by_what_they_hold() -> None:
    """A slice, a lost key, an average beside the weights; one file in place of the ranks' own."""
    import torch

    from fsdplint.verify.rank.equivalence.checkpoints import pairs
    from fsdplint.verify.rank.equivalence.compare import Measure
    from fsdplint.verify.rank.equivalence.records import Parts, Saved
    from fsdplint.verify.rank.reference.region import Box, whole

    full = torch.arange(8.0).reshape(4, 2)

    def saved(path: str, tensors: Parts, step: int = 3, **numbers: float) -> Saved:
        return Saved(path, "torch.save", False, step, tensors, numbers)

    def half(rank: int) -> Parts:
        return {"w": [(Box((4, 2), (2 * rank, 0), (2, 2)), full[2 * rank : 2 * rank + 2])]}

    everything: Parts = {"w": [(whole((4, 2)), full)]}
    other: Parts = {"w": [(whole((4, 2)), full + 1)]}
    before = {
        0: [saved("a.pt", everything, epoch=1), saved("rank0.pt", half(0))],
        1: [saved("rank1.pt", half(1))],
    }
    names = ("rank.pt", "rank_ema.pt", "backup.pt")
    rest_after = [
        saved(name, of) for name, of in zip(names, (everything, other, other), strict=True)
    ]
    after = {0: [saved("a.pt", half(0), done=2), *rest_after]}
    measure = Measure({"w": torch.zeros(4, 2)}, {}, 1e-5)
    same, rest, new = (measure.checkpoint(*pair) for pair in pairs(before, after))

    assert (same.slices, same.numbers.lost, same.numbers.new) == (("w",), ("epoch",), ("done",))
    assert (rest.before, rest.after) == (("rank0.pt", "rank1.pt"), ("rank.pt", "rank_ema.pt"))
    assert (rest.tensors.lost, rest.tensors.new) == (("w",), ("rank.pt: w", "rank_ema.pt: w"))
    assert (new.before, new.after) == ((), ("backup.pt",))
    one_file = {0: after[0][1:2]}
    own = pairs(before | {0: before[0][1:]}, one_file)
    (joined,) = (measure.checkpoint(*pair) for pair in own)
    assert (joined.tensors.count, joined.tensors.largest, joined.tensors.lost) == (1, 0.0, ())
    (unsaved,) = (measure.checkpoint(*pair) for pair in pairs({1: before[1]}, {}))
    assert (unsaved.before, unsaved.after) == (("rank1.pt",), ())
    (broken,) = (measure.checkpoint(*p) for p in pairs({1: before[1]}, one_file))
    assert (broken.unclear, broken.tensors.count, broken.tensors.new) == (1, 0, ())
    found = [measure.checkpoint(*p) for p in pairs({1: before[1]}, {0: after[0][3:]})]
    assert [(f.before, f.after) for f in found] == [(("rank1.pt",), ()), ((), ("backup.pt",))]


def test_a_tensor_whose_shape_ranks_disagree_on_is_not_whole() -> None:
    import torch

    from fsdplint.verify.rank.equivalence.records import whole
    from fsdplint.verify.rank.reference.region import Region

    freed = (Region((0,), None, 0, 0), torch.empty(0))
    part = (Region((4,), None, 0, 2), torch.ones(2))
    assert [whole(pair)[1] for pair in ((freed, part), (part, freed))] == [False, False]


def test_only_what_may_be_drawn_alike_is_adopted() -> None:
    import torch

    from fsdplint.verify.rank.equivalence.origin import alike

    torch.manual_seed(0)
    one, other = torch.randn(2, 40, 50) * 0.02
    assert alike(one, other)
    assert not alike(one, other * 1.5)
    assert not alike(one, other + 0.01)
    assert not alike(torch.ones(9), torch.zeros(9))
    assert not alike(one, other.masked_fill(one > 0.06, float("nan")))
