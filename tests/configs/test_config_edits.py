"""An edit of a config file changes its entry, and no other byte."""

from __future__ import annotations

import pytest

from fsdplint.configs.document import parse
from fsdplint.configs.edits import insertion, intact, new_value, removal, renaming
from fsdplint.configs.nodes import Mapping, Scalar
from fsdplint.finding import Edit, Safety, Span
from fsdplint.fixes.edits import apply

BLOCK = "a: 1\n\n# about b\nb: 'x'  # b\nc:\n  - 1\n  - 2\nd: ~"
FLOW = '{\n  "a": 1,\n  "b": "x",\n  "d": null\n}\n'


def root(text: str) -> Mapping:
    node = parse(text, "a.yaml")
    assert isinstance(node, Mapping)
    return node


def without(text: str, name: str) -> tuple[str, Safety]:
    entry = root(text).get(name)
    assert entry is not None
    made = removal("a.yaml", text, root(text), entry)
    assert made is not None
    return apply(text, [made[0]]), made[1]


@pytest.mark.parametrize(
    ("text", "name", "left"),
    [
        (BLOCK, "a", BLOCK.replace("a: 1\n", "")),
        (BLOCK, "b", BLOCK.replace("b: 'x'  # b\n", "")),
        (BLOCK, "c", BLOCK.replace("c:\n  - 1\n  - 2\n", "")),
        (BLOCK, "d", BLOCK.replace("\nd: ~", "")),
        ("a: |\n  x\n  y\n\nb: 1\nc: >-\n  z\n", "a", "\nb: 1\nc: >-\n  z\n"),
        ("b: 1\nc: >-\n  z\n", "c", "b: 1\n"),
        ("b: 1\nc: |+\n  z\n\n", "c", "b: 1\n\n"),
        (FLOW, "a", FLOW.replace('"a": 1,\n  ', "")),
        (FLOW, "b", FLOW.replace(',\n  "b": "x"', "")),
        (FLOW, "d", FLOW.replace(',\n  "d": null', "")),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_an_entry_is_removed(text: str, name: str, left: str, newline: str) -> None:
    made, safety = without(text.replace("\n", newline), name)
    assert made == left.replace("\n", newline)
    assert safety is (Safety.UNSAFE if (text, name) == (BLOCK, "b") else Safety.SAFE)


def test_the_only_entry_stays() -> None:
    text = "a: 1\n"
    assert removal("a.yaml", text, root(text), root(text).entries[0]) is None


def test_keys_and_values_keep_their_quotes() -> None:
    for text, renamed, valued in (
        (BLOCK, BLOCK.replace("b: ", "new: "), BLOCK.replace("'x'", "'y'")),
        (FLOW, FLOW.replace('"b"', '"new"'), FLOW.replace('"x"', '"y"')),
    ):
        entry = root(text).get("b")
        assert entry is not None and isinstance(entry.value, Scalar)
        assert apply(text, [renaming("a.yaml", entry, "new")]) == renamed
        assert apply(text, [new_value("a.yaml", entry.value, "y")]) == valued


def test_an_empty_value_is_set_behind_a_blank() -> None:
    text = "a:\nb: 1\n"
    value = root(text).entries[0].value
    assert isinstance(value, Scalar)
    assert apply(text, [new_value("a.yaml", value, "y")]) == "a: y\nb: 1\n"


def test_other_entries_have_to_stay_the_same() -> None:
    old = "a: 1\nb: {c: [1, .nan], d: 2}\n"
    start = old.index("d: 2")
    edit = Edit(Span("a.yaml", start, start + 4), "e: 3")
    for new, same in (
        (old.replace("d: 2", "e: 3"), True),
        (old.replace("d: 2", "e: 3").replace("a: 1", "a: 2"), False),
        (old.replace("d: 2", "e: 3").replace("[1, .nan]", "[1, 2]"), False),
        (old.replace("d: 2", "e: 3").replace("a: 1\n", ""), False),
        ("a: 1\n---\nb: 1\n", False),
    ):
        assert intact(old, new, "a.yaml", [edit]) is same


def test_an_entry_is_put_before_the_others() -> None:
    text = "s:\r\n    a: 1\r\n"
    section = root(text).entries[0].value
    assert isinstance(section, Mapping)
    made = insertion("a.yaml", text, section, "new", "WORD")
    assert apply(text, [made]) == "s:\r\n    new: WORD\r\n    a: 1\r\n"
    made = insertion("a.json", FLOW, root(FLOW), "new", "WORD")
    assert apply(FLOW, [made]) == FLOW.replace('"a"', '"new": "WORD",\n  "a"')
    made = insertion("a.yaml", "s: {a: 1}", root("s: {a: 1}").entries[0].value, "new", "true")  # type: ignore[arg-type]  # a mapping
    assert apply("s: {a: 1}", [made]) == "s: {new: true, a: 1}"
