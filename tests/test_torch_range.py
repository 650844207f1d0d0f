from __future__ import annotations

import pytest

from fsdplint.knowledge.torch_range import EARLIEST, UNBOUNDED, Release, TorchRange


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
