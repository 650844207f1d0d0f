"""Inlay hints and code lenses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol import types

from fsdplint.engine.inspection.outline import SOME_RANKS
from fsdplint.engine.inspection.summary import Inspection
from fsdplint.finding import Span
from fsdplint.server.documents import Document

INSPECT, VERIFY = "fsdplint.inspect", "fsdplint.verify"
_TITLES = {INSPECT: "Inspect", VERIFY: "Verify on 2 ranks (runs this script)"}
_MAIN = re.compile(r"""^if[ (]+__name__\s*==\s*["']__main__["']""", re.MULTILINE)


def inlay_hints(
    inspection: Inspection, document: Document, uri: str, encoding: str
) -> Iterator[types.InlayHint]:
    """Yield a label after each sharding call, and after each test of the rank."""
    labels: dict[Span, str] = {}
    for entry in inspection.entries:
        for model in entry.models:
            for sharding in model.shardings:
                targets = ", ".join(target or model.name for target in sharding.targets)
                labels.setdefault(sharding.span, f"{sharding.generation} unit: {targets}")
        for step in entry.steps:
            if step.note == SOME_RANKS:
                labels.setdefault(step.span, SOME_RANKS)
    for span, label in sorted(labels.items()):
        place = document.location(span.end, span.end, encoding)
        if span.path == document.path and place is not None and place.uri == uri:
            yield types.InlayHint(place.range.start, label, padding_left=True)


def code_lenses(document: Document, encoding: str) -> Iterator[types.CodeLens]:
    """Yield the commands for a script, where it starts."""
    main = _MAIN.search(document.source.text)
    if main is None:
        return
    place = document.location(main.start(), main.end(), encoding)
    for name, title in _TITLES.items():
        if place is not None:
            command = types.Command(title, name, arguments=[document.uri])
            yield types.CodeLens(place.range, command)
