# ruff: noqa: RUF001 - tables hold the sign of multiplication
from __future__ import annotations

import re
from pathlib import Path

import pytest
from samples import ALL, CONFIRMED, HANG, LARGE, SCRIPT, UNEXPLAINED, VIOLATED, violated
from samples import summary as rank_summary
from samples import verification as made

from fsdplint.verify.report import render
from fsdplint.verify.verdict import Verification


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def text(verification: Verification, folder: Path, width: int = 80, color: bool = False) -> str:
    return render(verification, "text", folder, color=color, width=width)


def sections(verification: Verification, folder: Path) -> list[str]:
    return text(verification, folder).removesuffix("\n").split("\n\n")


MAP = """\
sharding of Net: 4 FSDP2 units, 8 parameters, 944 elements
  unit             class      per rank  total       share
  (root)           Net           48-64    112  42.9-57.1%
    blocks.0 … 2   3 × Block       136    272       50.0%
  norm.weight      ignored          16     16        100%
  the whole model              472-488    944  50.0-51.7%
  rank 0 holds 51.7% of the model, rank 1 50.0% (an even split is 50.0%)
  7 parameters: float32, Shard(0) over 2 ranks
  1 parameter (norm.weight): float32, whole on each rank
  the optimizer holds all 8 trainable parameters"""

RANKS = """\
ranks
  rank  device        steps          peak memory  outcome
  0     cpu (cuda:0)      3  314 MiB (+14.0 MiB)  reached the step limit
  1     cpu (cuda:1)      3  315 MiB (+15.0 MiB)  reached the step limit
  sent by each rank: reduce_scatter 12.0 KiB (12 calls), all_gather 6.00 KiB
    (24 calls)"""

HEADER = """\
train.py --lr 0.1
torch 2.13.0+cpu, cpu (CUDA mapped to CPU), 2 ranks, 3 steps, 9.8 s"""


def test_a_run_that_keeps_the_contract(folder: Path) -> None:
    assert sections(CONFIRMED, folder) == [
        HEADER,
        """\
✓ device-per-rank    2 ranks in one gloo group, each on its own device
✓ units              4 FSDP2 units
✓ parameters-change  8 of 8 trainable parameters changed in each of 3 steps, on
                     every rank that holds some
- saves              nothing was saved""",
        MAP,
        RANKS,
        "No clause is violated: 3 confirmed, 1 not exercised (exit 0)",
    ]


def test_a_run_that_breaks_it(folder: Path) -> None:
    assert sections(VIOLATED, folder) == [
        HEADER,
        """\
✓ device-per-rank    2 ranks in one gloo group
✗ optimizer          `AdamW` holds 8 parameters that sharding replaced and 0
                     current ones: it does not train them
✗ forward            `Net.forward` bypasses the FSDP hooks (3 times)
- parameters-change  see `optimizer`""",
        """\
✗ optimizer at train.py:5
  expected: The contract of optimizer, in one sentence.
  observed: `AdamW` holds 8 parameters that sharding replaced and 0 current
            ones: it does not train them
            replaced: `embedding.weight`, `blocks.0.up.weight`,
            `blocks.0.up.bias` and 5 more
    |
  5 | optimizer = torch.optim.AdamW(model.parameters())
    | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  6 | for block in model.blocks:
  7 |     fully_shard(block)
    |     ------------------
    |""",
        """\
✗ forward at train.py:10
  expected: The contract of forward, in one sentence.
  observed: `Net.forward` bypasses the FSDP hooks (3 times)
     |
  10 | model.forward(x).sum().backward()
     | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
     |""",
        MAP,
        RANKS,
        "Violated: optimizer (train.py:5), forward (train.py:10); 1 confirmed, 1 not\n"
        "exercised (exit 1)",
    ]


def test_a_crash_that_a_clause_explains_is_short(folder: Path) -> None:
    assert sections(ALL["explained"], folder)[3] == (
        "! ranks 0, 1 failed with an error at train.py:10\n"
        "  RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor"
    )


def test_a_crash_that_nothing_explains_is_whole(folder: Path) -> None:
    _, clauses, error, *_, last = sections(UNEXPLAINED, folder)
    assert clauses == "✓ units  4 FSDP2 units"
    assert error == (
        "! rank 0 failed with an error at train.py:10\n"
        "  Traceback (most recent call last):\n"
        '    File "train.py", line 10, in <module>\n'
        "      model.forward(x).sum().backward()\n"
        "      ~~~~~~~~~~~~~^^^\n"
        '    File "/usr/lib/python3/site-packages/torch/nn/functional.py", line 2, in linear\n'
        "      return torch._C._nn.linear(input, weight, bias)\n"
        "  RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor\n"
        "    with a second line"
    )
    assert last == (
        "The script did not finish: rank 0: RuntimeError: aten.addmm.default got mixed\n"
        "torch.Tensor and DTensor (exit 2)"
    )


def test_stacks_keep_their_indentation(folder: Path) -> None:
    stuck, stopped = sections(HANG, folder)[2:4]
    assert (
        stuck
        == """\
✗ collectives at train.py:10
  expected: The contract of collectives, in one sentence.
  observed: the ranks wait for each other: rank 0 in all_reduce, rank 1 in
            broadcast
            rank 0 waits in all_reduce at train.py:10
              train.py:10 in main
              train.py:20 in <module>
            rank 1 waits in broadcast at train.py:11
              train.py:11 in main
     |
  10 | model.forward(x).sum().backward()
     | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  11 | optimizer.step()
     | ----------------
     |"""
    )
    assert stopped == "! stopped after 4 s without an end"


def test_equal_blocks_are_one_line(folder: Path) -> None:
    assert (
        sections(LARGE, folder)[2]
        == """\
sharding of Net: 33 FSDP2 units, 66 parameters, 537.0 M elements
  unit             class        per rank    total      share
  (root)           Net           0-4,096   28,672  0.0-14.3%
    blocks.0 … 31  32 × Block  2,097,664  16.78 M      12.5%
  norm.weight      ignored         4,096    4,096       100%
  the whole model                67.13 M  537.0 M      12.5%
  each rank holds 12.5% of the model (an even split is 12.5%)
  65 parameters: float32, Shard(0) over 8 ranks
  1 parameter (norm.weight): float32, whole on each rank
  the optimizer holds all 66 trainable parameters"""
    )


def test_without_a_sharded_model_there_is_no_map(folder: Path) -> None:
    *_, clauses, _, last = sections(ALL["bare"], folder)
    assert clauses == "- units  no module was sharded"
    assert last == "No clause is violated or confirmed (exit 0)"


def test_ranks_that_sent_something_else_are_apart(folder: Path) -> None:
    ranks = [rank_summary(0), rank_summary(1, steps=0), rank_summary(2)]
    assert sections(made([], ranks), folder)[-2].splitlines()[-2:] == [
        "  sent by ranks 0, 2: reduce_scatter 12.0 KiB (12 calls), all_gather 6.00 KiB",
        "    (24 calls)",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ALL)
def test_lines_fit_the_terminal(folder: Path, name: str, width: int) -> None:
    lines = text(ALL[name], folder, width).splitlines()
    code = re.compile(r"^ +(\d+ )?\||^ +File |^      |^  RuntimeError")
    assert [line for line in lines if len(line) > width and not code.match(line)] == []


@pytest.mark.parametrize("name", ALL)
def test_colour_changes_nothing_but_colour(folder: Path, name: str) -> None:
    coloured = text(ALL[name], folder, color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == text(ALL[name], folder)
    assert "\x1b[" in coloured


def test_places_that_cannot_be_read_have_no_frame(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("one line\n")
    found = sections(made([violated("forward", "seen", [], 7)], [rank_summary(0)]), tmp_path)[2]
    assert found.splitlines()[-1] == "  observed: seen"


def test_names_do_not_move_the_cursor(folder: Path) -> None:
    verdict = violated("forward", "`\x1b[2J` ran", ["\x07 and \r"], 10)
    assert sections(made([verdict], [rank_summary(0)]), folder)[2].splitlines()[2:4] == [
        r"  observed: `\x1b[2J` ran",
        r"            \x07 and",
    ]


def test_a_quiet_report_is_what_is_violated_and_the_result(folder: Path) -> None:
    whole = text(VIOLATED, folder).split("\n\n")
    quiet = render(VIOLATED, "text", folder, color=False, width=80, quiet=True).split("\n\n")
    assert quiet == [*(s for s in whole if s.startswith("✗ ") and "expected: " in s), whole[-1]]
    assert len(quiet) == 3

    (result,) = render(CONFIRMED, "text", folder, color=False, width=80, quiet=True).splitlines()
    assert result == text(CONFIRMED, folder).splitlines()[-1]
