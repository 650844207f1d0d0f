"""What is known of Lightning's strategies is what the installed release does."""

from __future__ import annotations

import pytest
from measuring import installed

from fsdplint.knowledge.lightning_settings import (
    BY_NORM,
    CLIP,
    FSDP,
    MODEL_PARALLEL,
    NEEDLESS,
    OTHER_NAMES,
    PACKAGES,
    admitted,
    kind_of,
    kind_of_word,
    settings,
)
from fsdplint.knowledge.torch_range import TorchRange

NEWEST = settings()[-1]


def test_the_newest_release_is_installed() -> None:
    assert installed("lightning", settings()) is NEWEST


def test_releases_are_in_order() -> None:
    releases = [each.release for each in settings()]
    assert releases == sorted(set(releases))


def test_no_release_clips_the_norm_of_fsdp1_and_each_does_for_fsdp2() -> None:
    for release in settings():
        assert release.takes(CLIP, FSDP) == {"value"}
        assert not release.takes(CLIP, MODEL_PARALLEL) or release.takes(CLIP, MODEL_PARALLEL) == {
            BY_NORM,
            "value",
        }


def test_other_names_are_of_arguments_and_needless_ones_are_none() -> None:
    known = set(NEWEST.names(FSDP))
    assert set(OTHER_NAMES.values()) <= known
    assert not known & {*OTHER_NAMES, *NEEDLESS}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lightning.pytorch.strategies.FSDPStrategy", 1),
        ("pytorch_lightning.strategies.fsdp.FSDPStrategy", 1),
        ("lightning.pytorch.strategies.ModelParallelStrategy", 2),
        ("lightning.fabric.strategies.FSDPStrategy", 3),
        ("lightning_fabric.strategies.ModelParallelStrategy", 4),
        ("lightning.pytorch.strategies.DDPStrategy", 0),
        ("lightning.pytorch.strategies.RayFSDPStrategy", 0),
        ("torchtnt.utils.prepare_module.FSDPStrategy", 0),
    ],
)
def test_kinds_of_classes(name: str, kind: int) -> None:
    assert kind_of(name) == kind


def test_kinds_of_words() -> None:
    assert [kind_of_word("fsdp", of_trainer) for of_trainer in (True, False)] == [1, 3]
    assert [kind_of_word(word, True) for word in ("fsdp_cpu_offload", "ddp", "fsdp_native")] == [
        1,
        0,
        0,
    ]


def test_any_of_the_distributions_says_which_releases_count() -> None:
    assert admitted(lambda _: None) == (NEWEST,)
    for package in PACKAGES:
        found = admitted(lambda name, only=package: RANGE if name == only else None)
        assert {each.release for each in found} == {(2, 3)}
    assert admitted(lambda _: TorchRange.parse("==1.9.5")) == ()


RANGE = TorchRange.parse("~=2.3.0")
