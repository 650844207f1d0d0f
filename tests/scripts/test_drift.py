"""Each public name of PyTorch's distributed packages is known, or said to be irrelevant."""

from __future__ import annotations

from packaging.version import Version

from fsdplint.knowledge.torch_range import TODAY
from scripts.drift import Row, irrelevant_names, known_words, late, read, rows, unaccounted

TABLE = read()
RELEASES = Row("torch", "2.4.0", "2.6.0", "")


def test_every_name_is_accounted_for() -> None:
    assert list(unaccounted(TABLE, known_words(), irrelevant_names())) == []


def test_the_table_is_for_todays_release() -> None:
    assert TABLE[0].name == "torch"
    assert Version(TABLE[0].last) >= Version(".".join(map(str, TODAY)))


def test_a_new_name_is_told() -> None:
    table = [RELEASES, Row("torch.distributed.fsdp.shard_it", "2.6.0", "", "")]
    told = "torch.distributed.fsdp.shard_it (since 2.6.0) is neither in knowledge/ nor in "
    assert list(unaccounted(table, frozenset(), {})) == [told + "scripts/drift.toml"]
    assert list(unaccounted(table, {"shard_it"}, {})) == []
    assert list(unaccounted(table, frozenset(), {"torch.distributed.fsdp.*": "no"})) == []


def test_an_entry_of_no_use_is_told() -> None:
    said = "scripts/drift.toml: `torch.distributed.gone` matches no name"
    assert list(unaccounted([RELEASES], frozenset(), {"torch.distributed.gone": "no"})) == [said]


def test_a_new_release_is_told() -> None:
    assert list(late([RELEASES], Version("2.6.0"))) == []
    said = "torch 2.7.0 is released, but the table ends with 2.6.0; run with --update"
    assert list(late([RELEASES], Version("2.7.0"))) == [said]


def test_rows_tell_first_last_and_what_changed() -> None:
    releases = {
        Version("2.4.0"): {"a": "x", "b": ""},
        Version("2.5.0"): {"a": "x, *, y=(1, 2)", "b": ""},
        Version("2.6.0"): {"a": "y=(1, 2)", "c": "z"},
    }
    assert list(rows(releases)) == [
        RELEASES,
        Row("a", "2.4.0", "", "2.5.0 +y=(1, 2); 2.6.0 -x"),
        Row("b", "2.4.0", "2.5.0", ""),
        Row("c", "2.6.0", "", ""),
    ]
