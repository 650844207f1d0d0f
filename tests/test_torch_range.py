from __future__ import annotations

from dataclasses import replace

import pytest

from fsdplint.check import check
from fsdplint.files.file import from_text
from fsdplint.knowledge.torch_range import EARLIEST, UNBOUNDED, Release, TorchRange
from fsdplint.settings.config import defaults

_ARGUMENTS = "fsdp1-argument-to-fully-shard"


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
    with pytest.raises(ValueError, match=r"no version specifier|a minor|admits no"):
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
    source = from_text(text, "train.py")
    settings = replace(defaults(preview=True), target_torch=TorchRange.parse(">=2.5"))
    outcome = check([source.path], settings, {source.path: source}, alone=True)
    assert [f.rule for f in outcome.findings if f.rule == _ARGUMENTS] == found
