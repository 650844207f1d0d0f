"""A small run of what ``tests.fuzz.run`` does at large, the same programs every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.grammar import grammatical, spliced
from tests.fuzz.programs import seeds
from tests.fuzz.properties import grave
from tests.fuzz.reach import tried
from tests.fuzz.rewritten import difference, found, found_by_token, laid_out, rewritten, steps
from tests.fuzz.shaped import shaped
from tests.fuzz.trees import Trees

ROOT = Path(__file__).parents[2]
# No deadline: a check takes as long as it takes on a busy machine. No shrinking: it would take
# minutes, and a seed says as much as a smaller one.
small = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
    max_examples=12,
)
randoms = st.integers(0, 2**32).map(Random)


@small
@given(randoms)
def test_any_module_is_checked_and_fixed(random: Random) -> None:
    assert grave(grammatical(random).files) == []


@small
@given(randoms)
def test_any_mixture_of_programs_is_checked_and_fixed(random: Random) -> None:
    assert grave(spliced(random, seeds()).files) == []


@small
@given(randoms)
def test_training_programs_in_any_order_are_checked_and_fixed(random: Random) -> None:
    assert grave(shaped(random).files) == []


@small
@given(st.booleans(), randoms)
def test_rewritten_programs_get_the_same_findings(known: bool, random: Random) -> None:
    program = random.choice(seeds()) if known else shaped(random)
    trees = Trees.of(program.files)
    new, done = rewritten(trees, steps(random, 3))
    assert difference(found(trees), found(new), done) == "", (program.name, done)


@small
@given(randoms)
def test_programs_taken_apart_get_no_other_findings(random: Random) -> None:
    for each in tried([random.choice(seeds())], 1):
        assert each.wrong == (), (each.program, each.step)


@small
@given(st.booleans(), randoms)
def test_programs_in_another_layout_get_the_same_findings(known: bool, random: Random) -> None:
    program = random.choice(seeds()) if known else shaped(random)
    plain, laid = laid_out(Trees.of(program.files).printed(), random)
    assert difference(found_by_token(plain), found_by_token(laid)) == "", program.name


def test_findings_do_not_depend_on_the_order_of_sets() -> None:
    code = (
        "from random import Random\n"
        "from tests.fuzz.rewritten import found\n"
        "from tests.fuzz.shaped import shaped\n"
        "from tests.fuzz.trees import Trees\n"
        "for n in range(6):\n"
        "    print(sorted(map(repr, found(Trees.of(shaped(Random(n)).files)))))\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert "optimizer" in told[0]
    assert told[0] == told[1]
