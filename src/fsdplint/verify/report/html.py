"""A verification as one page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from fsdplint.verify.events import Place
from fsdplint.verify.report.ending import Error, errors, headline, result, where
from fsdplint.verify.report.excerpt import Excerpt, excerpts
from fsdplint.verify.report.html_map import drawn
from fsdplint.verify.report.html_ranks import communication, memory, table
from fsdplint.verify.report.markup import Markup, prose, tag
from fsdplint.verify.report.sharding import models
from fsdplint.verify.verdict import Status, Verdict, Verification

_CLASSES = {
    Status.CONFIRMED: ("confirmed", "✓"),
    Status.VIOLATED: ("violated", "✗"),
    Status.NOT_EXERCISED: ("skipped", "-"),
}
_OUTCOMES = ("confirmed", "violated", "failed")


def as_html(verification: Verification, directory: Path) -> str:
    """The page; `directory` is what places are relative to."""
    style = (files(__package__) / "page.css").read_text("utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{verification.script}: fsdplint verify"),
        tag("style", Markup(style)),
    )
    body = tag("body", tag("main", *_sections(verification, directory)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _sections(verification: Verification, directory: Path) -> Iterator[Markup]:
    yield _header(verification)
    clauses = _section("Clauses", *(_clause(v, directory) for v in _ordered(verification)))
    if verification.failure:
        failure = _section("What ended the script", *_failure(verification))
        # What is read first is what explains the other.
        yield from (clauses, failure) if verification.violated else (failure, clauses)
    else:
        yield clauses
    for model in models(verification):
        yield _section(f"Sharding of {model.cls}", drawn(model, verification.world_size))
    if verification.ranks:
        yield _section("Ranks", table(verification.ranks))
        charts = (memory(verification.ranks), communication(verification.ranks))
        yield tag("div", *filter(None, charts), class_="charts")


def _section(title: str, *content: str) -> Markup:
    return tag("section", tag("h2", title), *content)


def _header(verification: Verification) -> Markup:
    command = " ".join([verification.script, *verification.arguments])
    outcome = _OUTCOMES[verification.exit_code]
    return tag(
        "header",
        tag("p", "fsdplint verify", class_="tool"),
        tag("h1", command),
        tag("p", headline(verification), class_="facts"),
        *(tag("p", note, class_="facts") for note in verification.notes),
        tag("p", result(verification), class_=f"outcome {outcome}"),
    )


def _ordered(verification: Verification) -> list[Verdict]:
    """What is violated comes first, what was not exercised last."""
    order = (Status.VIOLATED, Status.CONFIRMED, Status.NOT_EXERCISED)
    return sorted(verification.verdicts, key=lambda verdict: order.index(verdict.status))


def _clause(verdict: Verdict, directory: Path) -> Markup:
    class_, mark = _CLASSES[verdict.status]
    seen = [tag("p", prose(verdict.figures))]
    if verdict.status is not Status.NOT_EXERCISED:
        seen.append(tag("p", verdict.contract, class_="contract"))
    if verdict.status is Status.VIOLATED:
        seen += _evidence(verdict, directory)
    return tag(
        "article",
        tag("span", mark, class_="mark", title=verdict.status.value),
        tag("h3", verdict.clause, title=verdict.contract),
        tag("div", *seen, class_="seen"),
        class_=f"clause {class_}",
    )


def _evidence(verdict: Verdict, directory: Path) -> Iterator[Markup]:
    if verdict.details:
        yield tag("pre", prose("\n".join(verdict.details)), class_="details")
    read = list(excerpts(verdict.places, directory))
    yield from map(_excerpt, read)
    shown = {place for excerpt in read for place in excerpt.places}
    rest = [str(place) for place in verdict.places if place not in shown]
    if rest:
        yield tag("p", f"at {', '.join(rest)}")


def _excerpt(excerpt: Excerpt) -> Markup:
    width = len(str(excerpt.lines[-1][0]))
    marked = {place.line for place in excerpt.places}
    lines = [
        tag(
            "span",
            tag("i", f"{number:>{width}}  "),
            f"{text}\n",
            class_="line here" if number in marked else "line",
        )
        for number, text in excerpt.lines
    ]
    caption = tag("figcaption", ", ".join(dict.fromkeys(map(_where, excerpt.places))))
    return tag("figure", caption, tag("pre", *lines), class_="code")


def _where(place: Place) -> str:
    return f"{place} in {place.function}" if place.function else str(place)


def _failure(verification: Verification) -> Iterator[Markup]:
    found = errors(verification)
    yield from (_error(error, open_=not verification.violated) for error in found)
    if not found:
        yield tag("pre", verification.failure.strip())


def _error(error: Error, open_: bool) -> Markup:
    line = (": ", tag("code", error.line)) if error.line else ()
    summary = tag("summary", f"{error.said}{where(error)}", *line)
    opened: dict[str, str] = {"open": ""} if open_ else {}
    return tag("details", summary, tag("pre", error.text), class_="error", **opened)
