from __future__ import annotations

from dataclasses import replace

import pytest

from fsdplint.check import check
from fsdplint.files.file import from_text
from fsdplint.knowledge.torch_range import EARLIEST, UNBOUNDED, Release, TorchRange
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

_ARGUMENTS = "fsdp1-argument-to-fully-shard"
_SWAPPED, _CLIPS = "optim-state-arguments-swapped", "clip-grad-util-on-fsdp1"
_READS = "sharded-reduction-read-locally"
_ABOUT = (_ARGUMENTS, _SWAPPED, _CLIPS, _READS)


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        (">=2.6,<2.14", (2, 6, 0), (2, 14, 0)),
        (" >= 2.6.1 , <= 2.7 ", (2, 6, 1), (2, 7, 1)),
        (">2.6", (2, 6, 1), UNBOUNDED),
        ("<3", EARLIEST, (3, 0, 0)),
        ("==2.6", (2, 6, 0), (2, 6, 1)),
        ("==2.*", (2, 0, 0), (3, 0, 0)),
        ("==2.6.*", (2, 6, 0), (2, 7, 0)),
        ("~=2.6", (2, 6, 0), (3, 0, 0)),
        ("~=2.6.1", (2, 6, 1), (2, 7, 0)),
    ],
)
def test_specifiers(text: str, lower: Release, upper: Release) -> None:
    assert TorchRange.parse(text) == TorchRange(lower, upper)


@pytest.mark.parametrize(
    "text",
    ["", "2.6", ">=2.6,", "=>2.6", ">=2.6.*", "~=2", "==2.6.1.*", ">=two", "!=2.6", ">=3,<2"],
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a version specifier|a minor|matches no"):
        TorchRange.parse(text)


def test_overlap_is_a_release_in_common() -> None:
    target = TorchRange.parse(">=2.6,<2.9")
    assert target.overlaps(lower=(2, 8, 0))
    assert not target.overlaps(lower=(2, 9, 0))
    assert target.overlaps(upper=(2, 6, 1))
    assert not target.overlaps(upper=(2, 6, 0))


def test_where_every_release_is_meant_only_todays_counts() -> None:
    assert TorchRange().concerns(lower=(2, 6, 0))
    assert not TorchRange().concerns(upper=(2, 6, 0))
    assert TorchRange.parse(">=2.4").concerns(upper=(2, 6, 0))
    assert not TorchRange.parse(">=2.6").concerns(upper=(2, 6, 0))


@pytest.mark.parametrize(
    ("specifier", "release", "reached"),
    [
        (">=2.9", (2, 9, 0), True),
        (">=2.9.1,<2.14", (2, 9, 0), True),
        (">=2.8", (2, 9, 0), False),
        ("<3", (2, 9, 0), False),
        (">=0", (2, 13, 0), True),
        (">=0", (2, 14, 0), False),
    ],
)
def test_whether_no_older_release_is_meant(specifier: str, release: Release, reached: bool) -> None:
    assert TorchRange.parse(specifier).is_from(release) is reached


@pytest.mark.parametrize(
    ("specifier", "op", "release", "known"),
    [
        (">=2.1", "LessThan", (2, 1, 0), False),
        (">=2.1", "LessThanEqual", (2, 1, 0), None),
        (">=2.1", "GreaterThanEqual", (2, 1, 0), True),
        (">=2.1", "GreaterThan", (2, 1, 0), None),
        (">=2.0", "LessThan", (2, 1, 0), None),
        (">=2.4,<2.6", "LessThan", (2, 6, 0), True),
        (">=2.4,<2.6", "GreaterThanEqual", (2, 6, 0), False),
        (">=2.4,<2.6", "GreaterThan", (2, 5, 0), None),
        ("==2.0.1", "Equal", (2, 0, 1), True),
        ("==2.0.1", "NotEqual", (2, 0, 1), False),
        ("==2.0.1", "Equal", (2, 1, 0), False),
        (">=2.0", "Equal", (2, 1, 0), None),
        (">=0", "LessThan", (2, 13, 0), False),
        (">=0", "GreaterThanEqual", (2, 13, 0), True),
        (">=0", "GreaterThanEqual", (2, 14, 0), None),
    ],
)
def test_what_a_test_of_the_release_comes_to(
    specifier: str, op: str, release: Release, known: bool | None
) -> None:
    assert TorchRange.parse(specifier).compares(op, release) is known


@pytest.mark.parametrize(
    ("guard", "found"),
    [
        ('version.parse(torch.__version__) < version.parse("2.1")', []),
        ('not version.parse(torch.__version__) >= version.parse("2.1")', []),
        ('version.parse(torch.__version__) < version.parse("2.1") and old', []),
        ("version.parse(torch.__version__).release <= (2, old)", []),
        ("old", [_SWAPPED]),
    ],
)
def test_code_that_some_releases_run_is_not_judged_for_others(guard: str, found: list[str]) -> None:
    text = f"""
import sys
import torch
from packaging import version
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def load(model: FSDP, optimizer, saved, old):
    if {guard}:
        return FSDP.optim_state_dict_to_load(saved, model, optimizer)
    return FSDP.optim_state_dict_to_load(model, optimizer, saved)
"""
    assert _found(text, ">=2.0") == found


def test_argument_behind_a_test_of_the_release_is_not_new() -> None:
    text = """
import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
if torch.__version__ >= "2.7":
    fully_shard(model, ignored_params=set(model[0].parameters()))
"""
    assert _ARGUMENTS not in _found(text, ">=2.6")
    assert _ARGUMENTS in _found(text.replace('torch.__version__ >= "2.7"', "True"), ">=2.6")


def test_two_numbers_are_less_than_the_release_that_begins_with_them() -> None:
    """(2, 4, 0) is more than (2, 4): the arm runs."""
    text = """
import torch
from packaging import version
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def clip(model: FSDP):
    if version.parse(torch.__version__).release > (2, 4):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""
    assert _found(text, "==2.4.0") == [_CLIPS]
    assert _found(text.replace("(2, 4)", "(2, 4, 0)"), "==2.4.0") == []


@pytest.mark.parametrize(
    ("target", "found"), [(">=2.13", [_READS] * 2), (">=2.14", [_READS]), (">=2.15", [])]
)
def test_newer_releases_ask_the_whole_tensor(target: str, found: list[str]) -> None:
    text = """
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

model = fully_shard(nn.Linear(8, 8))
model(torch.ones(2, 8)).sum().backward()
print(bool(torch.isnan(model.weight.grad).any()), bool((model.weight.grad > 0).all()))
"""
    assert _found(text, target) == found


def _found(text: str, target: str) -> list[str]:
    source = from_text(text, "train.py")
    settings = replace(defaults(EVERYTHING), target_torch=TorchRange.parse(target))
    outcome = check([source.path], settings, {source.path: source}, alone=True)
    return [f.rule for f in outcome.findings if f.rule in _ABOUT]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("fully_shard(model, ignored_params=ignored)", [_ARGUMENTS]),
        ("fully_shard(model, **options)", []),
    ],
)
def test_argument_of_a_newer_release_may_be_in_a_dict(call: str, found: list[str]) -> None:
    text = f"""
import torch
import torch.nn as nn
from packaging import version
from torch.distributed._composable.fsdp import fully_shard

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
ignored, options = set(model[0].parameters()), {{}}
if version.parse(torch.__version__) >= version.parse("2.7"):
    options["ignored_params"] = ignored
{call}
"""
    assert _found(text, ">=2.5") == found
