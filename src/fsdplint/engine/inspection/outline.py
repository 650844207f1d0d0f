"""One path through a program as an outline: calls, loops, branches, events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import (
    BuildOptimizer,
    Call,
    Declared,
    DirectForward,
    Event,
    NoSync,
    PlainWrite,
    Repoint,
    Shard,
)
from fsdplint.engine.interpreter.frameworks import framework_of, has_sharded
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.files.lexing import NEWLINE, TOKEN
from fsdplint.finding import Span
from fsdplint.knowledge.calls import WATCHED_CALLS, WATCHED_METHODS

if TYPE_CHECKING:
    from fsdplint.engine.program import Program


# Notes on a branch that not every rank, or not every step of training, takes.
SOME_RANKS, SOME_STEPS = "only some ranks", "only some steps"


@dataclass(frozen=True, slots=True)
class Step:
    """One line of an outline.

    Attributes:
        depth: its indentation in the outline.
        kind: "call", "loop" and "branch" contain other steps; the rest are events: "shard",
            "optimizer", "repoint", "mesh", "forward", "backward", "clip", "step", "zero_grad",
            "no_sync", "state", "load", "save", "write".
        text: the code, on one line.
        note: what the code does not show, e.g. "only some ranks"; mostly empty.
    """

    depth: int
    kind: str
    text: str
    span: Span
    note: str = ""

    @property
    def is_event(self) -> bool:
        return self.kind not in ("call", "loop", "branch")


def outline(program: Program, events: Iterable[Event]) -> tuple[Step, ...]:
    """Return ``events`` in order below the calls, loops and branches that lead to them.

    Repeated steps below the same lines are left out.
    """
    steps: list[Step] = []
    above: list[Step] = []
    seen: set[tuple[str, Span]] = set()
    for event in events:
        chain = [*_around(program, event.site), _described(program, event)]
        placed = [
            Step(depth, s.kind, s.text, s.span, s.note) for depth, s in enumerate(_apart(chain))
        ]
        common = _common(above, placed)
        if len(common) < len(placed) - 1:
            seen.clear()
        # A loop that was executed element by element repeats its steps.
        fresh = [s for s in placed[len(common) :] if (s.kind, s.span) not in seen]
        steps.extend(fresh)
        seen.update((s.kind, s.span) for s in fresh)
        above = placed[:-1]
    return tuple(steps)


def written(program: Program, path: str, node: ir.Node) -> str:
    """Return the code of ``node`` on one line, without comments."""
    source = program.tree(path).slice(node)
    text = " ".join(TOKEN.sub(_without_comment, source).split())
    if NEWLINE.search(source) is None:
        return text
    return _BEFORE_CLOSING.sub("", _AFTER_OPENING.sub("", text))


def _without_comment(token: re.Match[str]) -> str:
    return "" if token.lastgroup == "comment" else token.group()


_AFTER_OPENING = re.compile(r"(?<=[(\[{]) ")
_BEFORE_CLOSING = re.compile(r",? (?=[)\]}])")


def _apart(chain: list[Step]) -> list[Step]:
    """Return ``chain`` without a call that is the event itself, such as an optimizer's class."""
    *around, event = chain
    return [step for step in around if step.span != event.span] + [event]


def _common(first: list[Step], second: list[Step]) -> list[Step]:
    found = []
    for a, b in zip(first, second[:-1], strict=False):
        if a != b:
            break
        found.append(a)
    return found


# Events


def _described(program: Program, event: Event) -> Step:
    kind, note = _kind(event)
    text = written(program, event.site.path, event.site.node)
    if isinstance(event.site.node, ir.ClassDef):
        text = event.site.node.name
    return Step(0, kind, text, program.span(event.site), note)


def _kind(event: Event) -> tuple[str, str]:
    """Return the kind of an event, and a note that the code does not show."""
    if isinstance(event, Shard):
        return "shard", ""
    if isinstance(event, Declared):
        return "shard", f"declared as an {event.generation.value} unit"
    if isinstance(event, BuildOptimizer):
        return "optimizer", ""
    if isinstance(event, Repoint):
        return "repoint", "replaces the optimizer's parameters"
    if isinstance(event, DirectForward):
        return "forward", "bypasses the hooks"
    if isinstance(event, NoSync):
        return "no_sync", "FSDP2 has no such method"
    if isinstance(event, PlainWrite):
        return "write", "only this rank's shard of the state" if event.states else ""
    assert isinstance(event, Call)
    return role(event), "sharded by settings" if has_sharded(event) else ""


def role(event: Call) -> str:
    """Return what a watched call is for; empty if it is no line of the outline."""
    if has_sharded(event):
        return "shard"
    framework = framework_of(event.receiver)
    if framework is not None and event.name in framework.roles:
        return framework.roles[event.name]
    roles = WATCHED_CALLS if event.receiver is None else WATCHED_METHODS
    return roles.get(event.name, event.name)


# The blocks around an event

# Where what nothing calls is started.
_DEFINITIONS = (ir.Function, ir.FunctionDef, ir.ClassDef)


def _around(program: Program, site: Site) -> Iterator[Step]:
    """Yield the calls that lead to a place, outermost first, each after the blocks around it."""
    guards = list(site.guards)
    frames = site.frames()
    for index, (path, node) in enumerate(frames):
        blocks = [*_loops(program, path, node), *_branches(program, path, node, guards)]
        yield from sorted(blocks, key=lambda step: step.span.start)
        if index < len(frames) - 1 and not isinstance(node, _DEFINITIONS):
            span = Span(path, node.start, node.end)
            yield Step(0, "call", written(program, path, node), span)


def _loops(program: Program, path: str, node: ir.Node) -> Iterator[Step]:
    """Yield the loops around ``node`` in its function, comprehensions included."""
    if isinstance(node, (ir.FunctionDef, ir.ClassDef)):
        return
    below = node
    for above in program.tree(path).ancestors(node):
        if isinstance(above, (ir.Function, ir.ClassDef)):
            return
        if isinstance(above, ir.Comprehension) and below is above.element:
            yield from (_loop(program, path, clause) for clause in above.clauses)
        elif isinstance(above, (ir.For, ir.While)) and below in above.body:
            yield _loop(program, path, above)
        below = above


def _loop(program: Program, path: str, node: ir.For | ir.While | ir.Clause) -> Step:
    if isinstance(node, ir.While):
        text, end = f"while {written(program, path, node.test)}", node.test.end
    else:
        target, iterable = (
            written(program, path, node.target),
            written(program, path, node.iterable),
        )
        text, end = f"for {target} in {iterable}", node.iterable.end
    return Step(0, "loop", text, Span(path, node.start, end))


def _branches(program: Program, path: str, node: ir.Node, guards: list[Guard]) -> Iterator[Step]:
    """Yield the branches taken to ``node`` in its function, and remove them from ``guards``."""
    tree = program.tree(path)
    scope = tree.module if isinstance(node, (ir.FunctionDef, ir.ClassDef)) else tree.scope(node)
    around = set(tree.ancestors(node))
    own = [guard for guard in guards if guard.path == path and tree.scope(guard.test) is scope]
    guards[:] = [guard for guard in guards if guard not in own]
    for guard in own:
        # All code after an early exit depends on its condition; only tests of the rank or of the
        # iteration get a line.
        inside = tree.parent(guard.test) in around or guard.test in around
        if inside or guard.divergent or guard.progress:
            step = branch(program, guard)
            if step is not None:
                yield step


def branch(program: Program, guard: Guard) -> Step | None:
    """Return a branch as a step; None if no exception is raised or another case is taken."""
    test = guard.test
    text = written(program, guard.path, test)
    word = "if" if guard.taken else "unless"
    if isinstance(test, (ir.Try, ir.Handler)):
        if not guard.taken:
            return None
        word, text = "except", ""
    elif guard.is_case:
        if not guard.taken:
            return None
        word = "case"
    note = SOME_STEPS if guard.progress else ""
    if program.is_rank_test(guard):
        note = SOME_RANKS
    return Step(0, "branch", f"{word} {text}".strip(), Span(guard.path, test.start, test.end), note)
