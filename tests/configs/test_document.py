"""YAML and JSON become nodes at their places, and what they cannot be is said or left unknown."""

from __future__ import annotations

import pytest

from fsdplint.configs.document import MOST, parse
from fsdplint.configs.edits import intact
from fsdplint.configs.nodes import UNKNOWN, Mapping, Node, Scalar, Sequence, values
from fsdplint.files.invalid import InvalidSyntax

TEXT = """\
# A comment: with a colon
kind: FSDP   # why
empty:
quoted: 'it''s'
flag: yes
section:
  one: 1
  two: 2.5  # two

  names: [A, "B"]
  block:
    - x
    - y: ~
last: |
  text
"""


def read(text: str, path: str = "a.yaml") -> Mapping:
    node = parse(text, path)
    assert isinstance(node, Mapping)
    return node


def leaves(text: str, path: str = "a.yaml") -> dict[str, object]:
    return {".".join(place): scalar.value for place, scalar in values(read(text, path))}


def test_values_are_those_of_yaml_1_1() -> None:
    assert leaves(TEXT) == {
        "kind": "FSDP",
        "empty": None,
        "quoted": "it's",
        "flag": True,
        "section.one": 1,
        "section.two": 2.5,
        "section.names.0": "A",
        "section.names.1": "B",
        "section.block.0": "x",
        "section.block.1.y": None,
        "last": "text\n",
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_places_are_those_in_the_text(newline: str) -> None:
    text = TEXT.replace("\n", newline)
    root = read(text)

    def shown(node: Node) -> str:
        return text[node.start : node.end]

    assert [text[e.start : e.end] for e in root.entries[:4]] == [
        "kind: FSDP",
        "empty:",
        "quoted: 'it''s'",
        "flag: yes",
    ]
    section = root.get("section")
    assert section is not None and isinstance(section.value, Mapping)
    inner = section.value
    assert shown(inner).startswith("one: 1") and shown(inner).endswith("y: ~")
    assert [shown(entry.value) for entry in inner.entries[:3]] == ["1", "2.5", '[A, "B"]']
    assert isinstance(inner.entries[2].value, Sequence) and inner.entries[2].value.flow


def test_json_is_read_with_its_tabs() -> None:
    text = '{\n\t"a": {"b": true},\n\t"c": "x\\ty",\t"d": [1, null]\n}\n'
    assert leaves(text, "a.json") == {"a.b": True, "c": "x\ty", "d.0": 1, "d.1": None}
    place = read(text, "a.json").entries[0].key
    assert text[place.start : place.end] == '"a"'


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("a: [1\nb: 2\n", "a.yaml", "expected ',' or ']', but got ':'"),
        ("a: 1\n\tb: 2\n", "a.yaml", "found character '\\t' that cannot start any token"),
        ("a: b: c\n", "a.yaml", "mapping values are not allowed here"),
        ("a: *nobody\n", "a.yaml", "found undefined alias 'nobody'"),
        ("a: \x01\n", "a.yaml", "special characters are not allowed"),
        ('{"a": 1,}', "a.json", "Expecting property name enclosed in double quotes"),
        ("a: 1\n", "a.json", "Expecting value"),
        ("[" * 5000, "a.yaml", "it is nested too deeply"),
        ("[" * 50_000 + "]" * 50_000, "a.json", "it is nested too deeply"),
        ("a: 1\n" * (MOST // 4), "a.yaml", "it has more than 1,000,000 characters"),
    ],
)
def test_what_cannot_be_parsed_is_refused(text: str, path: str, reason: str) -> None:
    with pytest.raises(InvalidSyntax) as refused:
        parse(text, path)
    assert refused.value.message.startswith(reason)
    assert 0 <= refused.value.offset <= len(text)


def test_several_documents_are_none() -> None:
    assert parse("a: 1\n---\nb: 2\n", "a.yaml") is None
    assert parse("# nothing\n", "a.yaml") is None


def test_aliases_do_not_multiply() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    root = read("\n".join(lines))
    assert len(root.entries) == 30
    assert len(list(values(root))) == 10
    text = "\n".join(lines)
    assert intact(text, text, "a.yaml", [])


def test_what_contains_itself_ends() -> None:
    assert leaves("a: &a\n  b: *a\n") == {"a.b": UNKNOWN}


@pytest.mark.parametrize(
    "value",
    [
        "${oc.env:HOME}",
        '"{{ ansible }}"',
        "!ENV x",
        "!!python/object/apply:os.system [id]",
        "a%(x)s",
    ],
)
def test_what_others_fill_in_is_unknown(value: str) -> None:
    found = list(values(read(f"a: {value}\n")))
    assert all(scalar.value in (UNKNOWN, "id") for _, scalar in found)


@pytest.mark.parametrize("digits", ["9" * 6000, "0x" + "f" * 6000, "-" + "9" * 30])
def test_a_huge_integer_is_unknown(digits: str) -> None:
    assert leaves(f"a: {digits}\n") == {"a": UNKNOWN}
    if "x" not in digits:
        root = parse(f'{{"a": {digits}}}', "a.json")
        assert root is not None and [each.value for _, each in values(root)] == [UNKNOWN]


def test_a_merge_is_noted() -> None:
    assert read("a: &a {x: 1}\nb:\n  <<: *a\n").get("b").value.merged  # type: ignore[union-attr]  # it is there
    assert not read("a: 1\n").merged


def test_of_equal_keys_the_last_counts() -> None:
    entry = read("a: 1\nb: 2\na: 3\n").get("a")
    assert entry is not None and isinstance(entry.value, Scalar) and entry.value.value == 3
