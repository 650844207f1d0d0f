"""The sharding map for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.report.style import Style
from fsdplint.verify.figures import TIMES
from fsdplint.verify.report.layout import columns, wrapped
from fsdplint.verify.report.remarks import counts, remarks
from fsdplint.verify.report.sharding import Model, Node, figures, walk

_HEAD = ("unit", "class", "a rank keeps", "of", "share")
_SIDES = "<<>>>"
_MOST_OUTSIDE = 8

Row = tuple[str, str, str, str, str]


def drawn(model: Model, world_size: int, style: Style, width: int) -> list[str]:
    """The model's units as a tree, what lies outside them, and what every rank keeps of all."""
    several = len({node.api for _, node in walk(model.roots)}) > 1
    rows = [
        _HEAD,
        *(_unit(depth, node, several) for depth, node in walk(model.roots)),
        *_outside(model),
        ("the whole model", "", *figures(model.kept, model.elements)),
    ]
    head, *body = columns(rows, _SIDES, width)
    notes = [line for text in remarks(model, world_size) for line in wrapped(text, width, "  ")]
    return [
        *(
            style(line, "path")
            for line in wrapped(f"sharding of {model.cls}: {counts(model)}", width)
        ),
        style(head, "aside"),
        *body,
        *notes,
    ]


def _unit(depth: int, node: Node, several: bool) -> Row:
    times = f"{len(node.names)} {TIMES} " if len(node.names) > 1 else ""
    api = f" ({node.api.upper()})" if several else ""
    name = f"{'  ' * depth}{node.label or '(root)'}"
    return (name, f"{times}{node.cls}{api}", *figures(node.kept, node.elements))


def _outside(model: Model) -> Iterator[Row]:
    for label, times, piece in model.outside[:_MOST_OUTSIDE]:
        why = "ignored" if piece.parameter.ignored else "in no unit"
        many = f"{times} {TIMES} {why}" if times > 1 else why
        yield (label, many, *figures(piece.kept, piece.elements))
    rest = model.outside[_MOST_OUTSIDE:]
    if rest:
        yield (f"{sum(times for _, times, _ in rest)} more", "in no unit", "", "", "")
