"""Edits of settings files: the text but for the edited entries stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Sequence as Sequence_

from fsdplint.configs.document import parse
from fsdplint.configs.nodes import Entry, Mapping, Node, Scalar, Sequence, children, values
from fsdplint.finding import Edit, Safety, Span

_NEWLINE = re.compile(r"\r\n|\r|\n")


def removal(path: str, text: str, mapping: Mapping, entry: Entry) -> tuple[Edit, Safety] | None:
    """Return the edit that removes an entry, None if another entry has to stay beside it.

    It is unsafe if a comment goes with the entry.
    """
    if len(mapping.entries) == 1:
        return None
    start, end = _flow(mapping, entry) if mapping.flow else _block(text, entry)
    gone = text[start:end].replace(text[entry.start : entry.end], "", 1)
    safety = Safety.UNSAFE if "#" in gone else Safety.SAFE
    return Edit(Span(path, start, end), ""), safety


def _flow(mapping: Mapping, entry: Entry) -> tuple[int, int]:
    """Return the place of an entry with the comma that it needs."""
    index = mapping.entries.index(entry)
    if index:
        return mapping.entries[index - 1].end, entry.end
    return entry.start, mapping.entries[1].start


def _block(text: str, entry: Entry) -> tuple[int, int]:
    """Return the place of an entry's lines."""
    start = _line_start(text, entry.start)
    found = _NEWLINE.search(text, entry.end)
    if found:
        return start, found.end()
    # The last line of a file takes the line end before it along.
    above = re.search(r"(?:\r\n|\r|\n)\Z", text[:start])
    return (above.start() if above else start), len(text)


def renaming(path: str, entry: Entry, name: str) -> Edit:
    """Return the edit that gives an entry another key."""
    key = entry.key
    return Edit(Span(path, key.start, key.end), f"{key.quote}{name}{key.quote}")


def new_value(path: str, node: Scalar | Sequence, value: str) -> Edit:
    """Return the edit that gives a node another value, which needs no quotes."""
    quote = node.quote if isinstance(node, Scalar) else ""
    lead = "" if node.start < node.end else " "
    return Edit(Span(path, node.start, node.end), f"{lead}{quote}{value}{quote}")


def one_edit(path: str, old: str, new: str) -> Edit:
    """Return the edit that makes ``new`` of ``old``, without what they begin and end with."""
    most = min(len(old), len(new))
    start = next((n for n in range(most) if old[n] != new[n]), most)
    tail = next((n for n in range(most - start) if old[-n - 1] != new[-n - 1]), most - start)
    return Edit(Span(path, start, len(old) - tail), new[start : len(new) - tail])


def insertion(path: str, text: str, mapping: Mapping, name: str, value: str) -> Edit:
    """Return the edit that puts an entry before the others; a word as value needs no quotes."""
    first = mapping.entries[0]
    if not mapping.flow:
        start = _line_start(text, first.start)
        indent = text[start : first.start]
        newline = _NEWLINE.search(text)
        end = newline[0] if newline else "\n"
        return Edit(Span(path, start, start), f"{indent}{name}: {value}{end}")
    quote = first.key.quote
    word = value if value in ("true", "false") or value.isdigit() else f"{quote}{value}{quote}"
    between = text[mapping.start + 1 : first.start] or " "
    entry = f"{quote}{name}{quote}: {word},{between}"
    return Edit(Span(path, first.start, first.start), entry)


def intact(old: str, new: str, path: str, edits: Sequence_[Edit]) -> bool:
    """Return whether each entry that no edit touches has the same value in ``new``.

    Raises:
        InvalidSyntax: one of the texts cannot be parsed.
    """
    before, after = parse(old, path), parse(new, path)
    if before is None or after is None:
        return False
    known = {place: repr(scalar.value) for place, scalar in values(after)}  # nan is not nan
    spans = [edit.span for edit in edits if edit.span.start < edit.span.end]
    renamed = {
        id(entry.value)
        for entry in _entries(before)
        if any(span.start <= entry.key.end and entry.start <= span.end for span in spans)
    }
    return all(
        known.get(place) == repr(scalar.value)
        for place, scalar in values(before, renamed)
        if not any(span.start <= scalar.end and scalar.start <= span.end for span in spans)
    )


def _entries(node: Node) -> Iterator[Entry]:
    """Yield the entries in a node, those that aliases refer to once."""
    seen: set[int] = set()
    left = [node]
    while left:
        each = left.pop()
        if isinstance(each, Scalar) or id(each) in seen:
            continue
        seen.add(id(each))
        left += [child for _, child in children(each)]
        if isinstance(each, Mapping):
            yield from each.entries


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
