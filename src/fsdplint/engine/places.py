"""Where a fix can stand: the function that two places have in common, and what each is in it."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.engine import ir
from fsdplint.engine.site import Site
from fsdplint.engine.values import Parameters


def common_frame(first: Site, second: Site) -> tuple[str, ir.Node, ir.Node] | None:
    """The deepest function active at both sites: its file, and the two nodes in it.

    A node is the site's own where the site stands in that function, else the call that leads to it.
    """
    for (path, a), (other, b) in zip(first.frames(), second.frames(), strict=False):
        if path != other:
            return None
        if a is not b:
            return path, a, b
    return None


def nodes_in_frame(captures: Iterable[Parameters], site: Site, node: ir.Node) -> list[ir.Node]:
    """The places, in the function where ``node`` leads to ``site``, that took ``captures``."""
    frames = site.frames()
    depth = next(index for index, (_, each) in enumerate(frames) if each is node)
    found = []
    for capture in captures:
        steps = capture.source.frames()
        if steps[:depth] == frames[:depth] and len(steps) > depth and steps[depth][1] is not node:
            found.append(steps[depth][1])
    return found
