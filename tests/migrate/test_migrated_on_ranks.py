"""Programs of the project with FSDP1 train the same on two ranks once they are migrated.

`python -m benchmarks.migrated` runs all of them.
"""

from __future__ import annotations

import pytest

from benchmarks.migrated import PROVEN, fsdp1_programs, proved
from fsdplint.verify.warm_launcher import Warm

_SAMPLE = (
    "clean/clip_both_generations",
    "clean/materialized_meta_for_fsdp1",
    "examples/broken/clip_grad_util_on_fsdp1",
    "examples/correct/clip_grad_util_on_fsdp1",
)


@pytest.mark.parametrize("name", _SAMPLE)
def test_a_migrated_program_trains_the_same(name: str, warm: Warm) -> None:
    (program,) = (each for each in fsdp1_programs() if each.name == name)
    result = proved(program, warm)
    assert (result.verdict, result.reasons) == (PROVEN, ())
