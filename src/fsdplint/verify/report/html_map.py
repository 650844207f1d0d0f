"""The sharding map as nested boxes; in each a stair shows what every rank keeps of a unit."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.verify.figures import TIMES, percent
from fsdplint.verify.report.markup import Markup, tag
from fsdplint.verify.report.sharding import (
    Kept,
    Model,
    Node,
    Piece,
    counts,
    figures,
    placed,
    remarks,
    shares,
)

_MOST_PIECES = 200


def drawn(model: Model, world_size: int) -> Markup:
    """The whole model, its units, what lies outside them, and remarks."""
    legend = (
        "A row of a picture is a rank, rank 0 on top; filled is what the rank keeps of the unit's "
        "own parameters: a stair is divided among the ranks, a block lies whole on each."
    )
    return tag(
        "div",
        tag("p", counts(model)),
        tag("ul", *(tag("li", text) for text in remarks(model, world_size)), class_="remarks"),
        tag("p", legend, class_="aside"),
        tag("div", *_boxes(model), class_="map"),
    )


def _boxes(model: Model) -> list[Markup]:
    whole = _row("the whole model", model.cls, model.kept, model.elements)
    boxes = [tag("div", whole, class_="unit all"), *map(_unit, model.roots)]
    for label, times, piece in model.outside:
        why = "ignored by FSDP" if piece.parameter.ignored else "in no unit"
        row = _row(
            label, f"{times} {TIMES} {why}" if times > 1 else why, piece.kept, piece.elements
        )
        boxes.append(tag("div", row, class_="unit outside"))
    return boxes


def _unit(node: Node) -> Markup:
    times = f"{len(node.names)} {TIMES} " if len(node.names) > 1 else ""
    return tag(
        "div",
        _row(node.label or "(root)", f"{times}{node.cls}", node.kept, node.elements),
        _parameters(node),
        *map(_unit, node.children),
        class_="unit",
    )


def _row(label: str, kind: str, kept: Kept, elements: int) -> Markup:
    part, whole, share = figures(kept, elements)
    return tag(
        "div",
        tag("div", tag("b", label), " ", tag("span", kind, class_="aside"), class_="name"),
        stair(shares(kept, elements), [rank for rank, _ in kept]),
        tag("div", f"{part} of {whole}", tag("b", share), class_="figures"),
        class_="row",
    )


def stair(parts: Sequence[float], numbers: Sequence[int]) -> Markup:
    """A picture of how some ranks divide a whole: one bar a rank, each where the last one ended."""
    height = len(parts)
    bars = [
        tag(
            "rect",
            x=f"{100 * start:.3f}",
            y=f"{at + 0.04:.2f}",
            width=f"{100 * part:.3f}",
            height="0.92",
            class_="whole" if part > 0.999 and height > 1 else f"tone{at % 2}",
        )
        for at, (part, start) in enumerate(zip(parts, _starts(parts), strict=True))
    ]
    spoken = ", ".join(f"rank {n} {percent(p)}" for n, p in zip(numbers, parts, strict=True))
    picture = tag(
        "svg",
        tag("title", spoken),
        *bars,
        viewBox=f"0 0 100 {max(height, 1)}",
        preserveAspectRatio="none",
        role="img",
        style=f"height:{min(max(14, 5 * height), 64)}px",
    )
    return tag("div", picture, class_="stair")


def _starts(parts: Sequence[float]) -> list[float]:
    """Where each part begins: after the one before, from 0 again where a copy is full; where the
    parts make no whole copies, evenly spread."""
    total, starts = 0.0, []
    if abs(sum(parts) - round(sum(parts))) > 1e-6:
        last = max(1, len(parts) - 1)
        return [at / last * (1 - part) for at, part in enumerate(parts)]
    for part in parts:
        if total + part > 1 + 1e-6:
            total = 0.0
        starts.append(total)
        total += part
    return starts


def _parameters(node: Node) -> Markup:
    if not node.pieces:
        return Markup()
    head = tag("tr", *(tag("th", text) for text in ("parameter", "whole", "rank 0", "type", "")))
    rows = [_piece(piece, node.names[0]) for piece in node.pieces[:_MOST_PIECES]]
    count = f"{len(node.pieces)} parameter{'s'[: len(node.pieces) != 1]}"
    each = f" each, here of {node.names[0]}" if len(node.names) > 1 else ""
    scroll = tag("div", tag("table", head, *rows), class_="scroll")
    return tag("details", tag("summary", f"{count}{each}"), scroll)


def _piece(piece: Piece, unit: str) -> Markup:
    parameter = piece.parameter
    name = parameter.name.removeprefix(f"{unit}.") if unit else parameter.name
    notes = [placed(piece)]
    notes += [] if parameter.trainable else ["frozen"]
    notes += ["in no optimizer"] if parameter.trainable and not parameter.held else []
    shapes = (_shape(parameter.shape), _shape(parameter.local_shape), parameter.dtype)
    return tag("tr", *(tag("td", text) for text in (name, *shapes, ", ".join(notes))))


def _shape(shape: Sequence[int]) -> str:
    return f" {TIMES} ".join(map(str, shape)) or "scalar"
