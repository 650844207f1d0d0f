"""The rules and causes of an error, for people and, as JSON, for other programs.

The JSON document is an object: ``version`` (1), ``rules`` (a list of ``rule``, ``code``,
``summary``, ``message``: what the error has of the rule's page, ``finds`` and ``harm``: the page in
short, the rule that more speaks for leading), ``causes`` (``message``, ``cause`` and ``cure`` of
errors that no rule can see in the code), ``findings`` of these rules in the given files, as
`check` has them, ``failures`` (``path`` and ``reason`` of what could not be checked) and ``lines``:
a list of ``path`` and ``line`` of the given files that the error names. For flight recorder dumps
there is ``divergences``: for each process group whose ranks call different collectives, ``group``,
``collective`` (its number), ``calls`` (``ranks``, ``name``, ``number``, ``sizes``, ``path``,
``line`` and ``function``), ``behind`` (``ranks`` and their ``last`` call, or null) and ``unknown``
(ranks without a dump).
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from fsdplint.outcome import Outcome
from fsdplint.pages import harm, page, section, unmarked
from fsdplint.pages.diagnosis import Cause, Frame, Match
from fsdplint.pages.flight_recorder import Divergence, Issued
from fsdplint.process.terminal import printable
from fsdplint.report.json import failures_as_json, finding_as_json
from fsdplint.report.places import relative, shown
from fsdplint.report.style import Style
from fsdplint.report.text import described
from fsdplint.urls import rule_url

NOTHING = "No rule and no known cause matches this error."
_MOST_CAUSES = 3
TOGETHER = (
    "All ranks called the same collectives; none is behind. Check the network, the GPUs, and "
    "code that is slow on one rank between two collectives."
)


def hang_as_text(found: Sequence[Divergence], width: int) -> str:
    """Return where the ranks diverge, process group by process group."""
    if not found:
        return "\n".join(textwrap.wrap(TOGETHER, width)) + "\n"
    return "\n\n".join("\n".join(_divergence(each)) for each in found) + "\n"


def _divergence(found: Divergence) -> Iterator[str]:
    group = printable(found.group)
    yield f"The ranks diverge at collective {found.number} of the process group `{group}`:"
    verb = ("waits", "wait") if len(found.calls) == 1 else ("is", "are")
    for ranks, issued in found.calls:
        yield f"  {_ranks(ranks)} {verb[len(ranks) > 1]} in {_call(issued)}"
    for ranks, last in found.behind:
        has = "have" if len(ranks) > 1 else "has"
        after = "" if last is None else f"; last call: {_call(last)}, collective {last.number}"
        yield f"  {_ranks(ranks)} {has} not called it{after}"
    if found.unknown:
        yield f"  no dump from {_ranks(found.unknown)}"


def _call(issued: Issued) -> str:
    where = f" at {issued.path}:{issued.line} in {issued.function}" if issued.path else ""
    return printable(f"{issued.name.lstrip('_')}{where}")


def _ranks(ranks: Sequence[int]) -> str:
    """Return the ranks with runs of them in short, e.g. "ranks 0-3 and 6"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    *most, last = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    text = f"{', '.join(most)} and {last}" if most else last
    return f"rank{'s' if len(ranks) > 1 else ''} {text}"


def hang_as_json(found: Sequence[Divergence]) -> list[dict[str, object]]:
    """Return the value of ``divergences``, as the module describes it."""
    return [
        {
            "group": each.group,
            "collective": each.number,
            "calls": [{"ranks": ranks, **asdict(issued)} for ranks, issued in each.calls],
            "behind": [
                {"ranks": ranks, "last": None if last is None else asdict(last)}
                for ranks, last in each.behind
            ],
            "unknown": each.unknown,
        }
        for each in found
    ]


def diagnosis_as_text(
    matches: Sequence[Match],
    causes: Sequence[Cause],
    outcome: Outcome,
    lines: Sequence[Frame],
    style: Style,
    width: int,
) -> str:
    """Return causes, rules with their page in short, then what is suspect in the given files.

    Rules come first if one of them finds something, else behind the causes that are likelier.
    """
    causes = causes[:_MOST_CAUSES]
    if not matches:
        told = ["\n".join(_cause(each, width)) for each in causes]
        last = "\n".join([*(() if causes else (NOTHING,)), *_named(outcome, lines)])
        return "\n\n".join(filter(None, [*told, last])) + "\n"
    first = [each for each in causes if not outcome.findings and each.leads(matches)]
    parts = ["\n".join(_cause(each, width)) for each in first]
    parts += ["\n".join(_rule(match, style, width)) for match in matches]
    parts += ["\n".join(_cause(each, width)) for each in causes if each not in first]
    parts += ["\n".join(described(outcome, f, style)) for f in outcome.findings]
    if not outcome.findings and outcome.checked:
        parts.append(
            "\n".join(["These rules find nothing in the given paths.", *_named(outcome, lines)])
        )
    return "\n\n".join(parts) + "\n"


def diagnosis_as_json(
    matches: Sequence[Match],
    causes: Sequence[Cause],
    outcome: Outcome,
    lines: Sequence[Frame],
    hang: Sequence[Divergence] | None = None,
) -> str:
    """Return the document that the module describes."""
    document = {
        "version": 1,
        "rules": [_described(match) for match in matches],
        "causes": [
            {"message": error.message, "cause": error.cause, "cure": error.cure}
            for error in (each.error for each in causes)
        ],
        "findings": [finding_as_json(outcome, finding) for finding in outcome.findings],
        "failures": failures_as_json(outcome),
        "lines": [
            {"path": relative(outcome, frame.path.as_posix()), "line": frame.line}
            for frame in lines
        ],
        **({} if hang is None else {"divergences": hang_as_json(hang)}),
    }
    return json.dumps(document, indent=2) + "\n"


def _rule(match: Match, style: Style, width: int) -> Iterator[str]:
    code = style(match.rule.code, match.rule.severity.value)
    yield f"{code} {match.rule.name}: {match.rule.summary}"
    yield from _wrapped(match.message, width, "  error: ")
    yield from _wrapped(unmarked(harm(page(match.rule.name))), width, "  ")
    yield f"  page: fsdplint explain {match.rule.name}"


def _cause(cause: Cause, width: int) -> Iterator[str]:
    error = cause.error
    yield from _wrapped(error.message, width, "error: ")
    for sentence in (error.cause, error.cure):
        yield from _wrapped(unmarked(sentence), width, "  ")


def _wrapped(text: str, width: int, first: str) -> list[str]:
    return textwrap.wrap(
        printable(" ".join(text.split())),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _named(outcome: Outcome, lines: Sequence[Frame]) -> Iterator[str]:
    if lines:
        yield "The error names these lines:"
    for frame in lines:
        path = frame.path.as_posix()
        source = outcome.sources.get(path)
        known = source is not None and frame.line <= source.text.count("\n") + 1
        code = source.line(frame.line).strip() if source and known else ""
        yield f"  {shown(outcome, path)}:{frame.line}: {printable(code)}".rstrip(": ")


def _described(match: Match) -> dict[str, str]:
    text = page(match.rule.name)
    return {
        "rule": match.rule.name,
        "code": match.rule.code,
        "summary": match.rule.summary,
        "message": match.message,
        "finds": section(text, "What it finds"),
        "harm": harm(text),
        "url": rule_url(match.rule.name),
    }
