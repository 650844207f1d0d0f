"""A verification for a terminal: wrapped paragraphs, and tables with aligned columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from fsdplint.process.terminal import printable
from fsdplint.report.style import Style
from fsdplint.verify.events import Place
from fsdplint.verify.figures import TIMES, plural, ranks_in_words, size
from fsdplint.verify.remedies import FAILURE
from fsdplint.verify.report import sharding
from fsdplint.verify.report.ending import Error, errors, headline, how, summary, unexplained, where
from fsdplint.verify.report.excerpt import framed
from fsdplint.verify.report.sharding import Model, Node, counts, figures, remarks, walk
from fsdplint.verify.verdict import RankSummary, Status, Traffic, Verdict, Verification

_KEPT_TOGETHER = re.compile(
    r"(?<=\d) (?=[KMGT]?i?B\b|calls?\b)|(?<=\u00d7) (?=\d)|(?<=\bexit) (?=\d)"
)
_NARROWEST = 8
_TIE = "\N{NO-BREAK SPACE}"
_HEAD = ("unit", "class", "per rank", "total", "share")
_SIDES = "<<>>>"
_MOST_OUTSIDE = 8
Row = tuple[str, str, str, str, str]
_MARKS = {Status.CONFIRMED: "✓", Status.VIOLATED: "✗", Status.NOT_EXERCISED: "-"}
_DETAILED = ("resume", "equivalence")
"""Clauses that compare two runs; their details are printed even if they are confirmed."""
_ROLES = {Status.CONFIRMED: "added", Status.VIOLATED: "error", Status.NOT_EXERCISED: "aside"}
_MOST_PLACES = 6
_TAB = "\t"


def as_text(
    verification: Verification, directory: Path, style: Style, width: int, quiet: bool = False
) -> str:
    """Return what was run, each clause, what is violated, the sharding map, ranks and the summary.

    Args:
        directory: what places are relative to.
        width: of the terminal, in columns.
        quiet: only what is violated, why the script ended, and the summary.
    """
    around = [_header(verification, style, width), _clauses(verification, style, width)]
    ranks = [*table(verification.ranks, style, width), *communication(verification.ranks, width)]
    sections = [
        *([] if quiet else around),
        *(
            [*_violated(v, directory, style, width), *_remedy(verification, v.clause, width)]
            for v in verification.violated
        ),
        *_errors(verification, style, width),
        _remedy(verification, FAILURE, width),
        *_printed(verification, style),
        *([] if quiet else [*_maps(verification, style, width), ranks]),
        [style(line, "path") for line in wrapped(summary(verification), width)],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _header(verification: Verification, style: Style, width: int) -> list[str]:
    command = printable(" ".join([verification.script, *verification.arguments]))
    lines = [style(command, "path"), *wrapped(headline(verification), width)]
    return lines + [line for note in verification.notes for line in wrapped(note, width, "note: ")]


def _clauses(verification: Verification, style: Style, width: int) -> list[str]:
    """Return the clauses; if the run failed, without those that were not exercised."""
    known = [
        verdict
        for verdict in verification.verdicts
        if verification.exit_code != 2 or verdict.status is not Status.NOT_EXERCISED
    ]
    room = max((len(verdict.clause) for verdict in known), default=0)
    return list(chain.from_iterable(_clause(verdict, room, style, width) for verdict in known))


def _clause(verdict: Verdict, room: int, style: Style, width: int) -> Iterator[str]:
    role, name = _ROLES[verdict.status], verdict.clause.ljust(room)
    head = f"{_MARKS[verdict.status]} {name}  "
    lines = wrapped(verdict.figures, width, head, " " * len(head))
    if verdict.status is Status.NOT_EXERCISED:
        yield from (style(line, role) for line in lines)
        return
    if verdict.clause in _DETAILED and verdict.status is Status.CONFIRMED:
        for detail in verdict.details:
            lines += wrapped(detail, width, " " * len(head), " " * len(head))
    coloured = style(head[0], role) + " "
    coloured += style(name, role) if verdict.status is Status.VIOLATED else name
    yield coloured + lines[0][len(head) - 2 :]
    yield from lines[1:]


def _violated(verdict: Verdict, directory: Path, style: Style, width: int) -> list[str]:
    where = f" at {verdict.places[0]}" if verdict.places else ""
    lines = [style(f"✗ {verdict.clause}", "error") + style(printable(where), "path")]
    lines += wrapped(verdict.contract, width, "  expected: ")
    lines += wrapped(verdict.figures, width, "  observed: ")
    for detail in verdict.details:
        for line in detail.splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            lines += wrapped(line.strip(), width, f"            {indent}")
    places = verdict.places[:_MOST_PLACES]
    frame = [f"  {line}" for line in framed(places, directory, style)]
    return lines + frame + _more(verdict.places[_MOST_PLACES:], width)


def _remedy(verification: Verification, clause: str, width: int) -> list[str]:
    """Return the rule, the fix and the command for a violated clause, or for a failure."""
    remedy = verification.remedies.get(clause)
    if remedy is None:
        return []
    command = [f"  run:      {printable(remedy.command)}"] if remedy.command else []  # to be copied
    return [
        *(wrapped(remedy.rule, width, "  rule:     ") if remedy.rule else []),
        *(wrapped(remedy.fix, width, "  fix:      ") if remedy.fix else []),
        *command,
    ]


def _printed(verification: Verification, style: Style) -> Iterator[list[str]]:
    """Yield the last output of ranks, if the script did not finish and no clause says why;
    ranks with the same output together."""
    if verification.exit_code != 2:
        return
    by_output: dict[str, list[int]] = {}
    for rank in verification.ranks:
        if rank.output.strip() and rank.output not in rank.error:
            by_output.setdefault(rank.output.strip("\n"), []).append(rank.rank)
    for output, ranks in by_output.items():
        head = style(f"last output of {ranks_in_words(ranks)}", "path")
        yield [head, *(f"  {printable(line, _TAB)}" for line in output.splitlines())]


def _more(places: Sequence[Place], width: int) -> list[str]:
    return wrapped(f"also at {', '.join(map(str, places))}", width, "  ") if places else []


def _maps(verification: Verification, style: Style, width: int) -> list[list[str]]:
    models = sharding.models(verification)
    return [drawn(model, verification.world_size, style, width) for model in models]


def _errors(verification: Verification, style: Style, width: int) -> Iterator[list[str]]:
    """Yield what ended the script: in short if a violated clause says why, else in full."""
    if not verification.failure:
        return
    found, alone = errors(verification), unexplained(verification)
    for index, error in enumerate(found):
        yield _error(error, style, width, whole=not index and error in alone)
    if not found:
        head, *rest = verification.failure.strip().splitlines()
        more = [] if verification.violated else [f"  {printable(line, _TAB)}" for line in rest]
        yield [style(f"! {printable(head)}", "error"), *more]


def _error(error: Error, style: Style, width: int, whole: bool) -> list[str]:
    head = style(f"! {error.said}", "error")
    lines = [head + style(printable(where(error)), "path")]
    if not whole:
        return lines + (wrapped(error.line, width, "  ") if error.line else [])
    return lines + [f"  {printable(line, _TAB)}" for line in error.text.splitlines()]


def drawn(model: Model, world_size: int, style: Style, width: int) -> list[str]:
    """Return the model's units as a tree, what is outside them, and what every rank holds."""
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


def table(summaries: Sequence[RankSummary], style: Style, width: int) -> Iterator[str]:
    """Yield a line for each rank: device, steps, memory, how it ended."""
    if not summaries:
        return
    cuda = any(rank.memory and rank.memory.cuda for rank in summaries)
    head = ["rank", "device", "steps", *(["CUDA peak"] if cuda else []), "peak memory", "outcome"]
    rows = [head, *(_row(rank, cuda) for rank in summaries)]
    first, *rest = columns(rows, "<<>>><" if cuda else "<<>><", width)
    yield style("ranks", "path")
    yield style(first, "aside")
    yield from rest


def _row(rank: RankSummary, cuda: bool) -> list[str]:
    memory = rank.memory
    peak = "unknown"
    if memory:
        peak = f"{size(memory.process)} (+{size(max(0, memory.process - memory.before))})"
    on_device = [size(memory.cuda) if memory else "unknown"] if cuda else []
    return [str(rank.rank), rank.device or "unknown", str(rank.steps), *on_device, peak, how(rank)]


def communication(summaries: Sequence[RankSummary], width: int) -> Iterator[str]:
    """Yield what the ranks sent, grouping ranks that sent the same."""
    by_traffic: dict[tuple[Traffic, ...], list[int]] = {}
    for rank in summaries:
        by_traffic.setdefault(rank.traffic, []).append(rank.rank)
    for traffic, group in by_traffic.items():
        if traffic:
            who = "each rank" if len(by_traffic) == 1 else ranks_in_words(group)
            yield from wrapped(_sent(traffic), width, f"  sent by {who}: ", "    ")


def _sent(traffic: Sequence[Traffic]) -> str:
    ordered = sorted(traffic, key=lambda each: -each.size)
    return ", ".join(
        f"{t.operation} {f'{size(t.size)} ' if t.size else ''}({plural(t.calls, 'call')})"
        for t in ordered
    )


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Return ``text`` in lines of ``width`` columns after ``first``, later ones after ``rest``.

    Words that are longer than a line, such as paths, stay whole.
    """
    rest = " " * len(first) if rest is None else rest
    lines = textwrap.wrap(
        _KEPT_TOGETHER.sub(_TIE, printable(text, "\t\n")),
        max(width, len(first) + 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TIE, " ") for line in lines] or [first.rstrip()]


def columns(
    rows: Sequence[Sequence[str]], right: str, width: int, indent: str = "  "
) -> Iterator[str]:
    """Yield the rows as a table; texts are cut where the table is too wide.

    Args:
        right: per column ``>`` where it is aligned to the right, else ``<``.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = _shrunk(
        [max(map(len, column)) for column in zip(*rows, strict=True)],
        [at for at, side in enumerate(right) if side == "<"],
        width - len(indent) - 2 * (len(right) - 1),
    )
    for row in rows:
        cells = [f"{_cut(c, w):{side}{w}}" for c, side, w in zip(row, right, widths, strict=True)]
        yield f"{indent}{'  '.join(cells)}".rstrip()


def _shrunk(widths: Sequence[int], texts: Sequence[int], room: int) -> list[int]:
    """Return the widths with the widest texts narrowed to fit the room; figures stay whole."""
    widths = list(widths)
    for _ in range(sum(widths) - room):
        widest = max(texts, key=lambda at: widths[at])
        widths[widest] -= widths[widest] > _NARROWEST
    return widths


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
