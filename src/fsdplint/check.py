"""The run: files in, findings out. Nothing here prints or writes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from fsdplint.config import Settings
from fsdplint.discover import discover
from fsdplint.finding import Finding, Span
from fsdplint.outcome import Outcome
from fsdplint.source import SourceError, SourceFile, from_text, load
from fsdplint.source.file import absolute
from fsdplint.suppression import suppress

_STACK = 64 * 1024 * 1024
_RECURSION = 20_000

_TOO_DEEP = (RecursionError, MemoryError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """Why a file is not Python, and the offset where the parser gave up."""

    message: str
    offset: int


@dataclass(slots=True)
class Sources:
    """Files of a run, each read once; ``overlay`` holds what is to be seen in their place."""

    overlay: Mapping[str, SourceFile] = field(default_factory=dict)
    files: dict[str, SourceFile | None] = field(default_factory=dict)
    failures: list[SourceError] = field(default_factory=list)

    def read(self, path: str | Path) -> SourceFile | None:
        """The file at ``path``, or None if it cannot be read, which is noted as a failure."""
        key = absolute(path)
        if key not in self.files:
            try:
                self.files[key] = self.overlay.get(key) or load(Path(key))
            except SourceError as error:
                self.failures.append(error)
                self.files[key] = None
        return self.files[key]

    def loaded(self) -> dict[str, SourceFile]:
        """The files that could be read."""
        return {path: source for path, source in self.files.items() if source is not None}


def check(
    paths: Sequence[str | Path],
    settings: Settings,
    overlay: Mapping[str, SourceFile] | None = None,
) -> Outcome:
    """Findings in the files at and below ``paths``.

    Args:
        overlay: by absolute path, what to read in the place of a file on disk.
    """
    overlay = overlay or {}
    discovery = discover([Path(path) for path in paths], settings.exclude)
    sources = Sources(overlay)
    wanted = [source for file in discovery.files if (source := sources.read(file)) is not None]
    failures = [*discovery.failures, *sources.failures]
    given = frozenset(absolute(path) for path in paths)
    findings = _deep(lambda: _findings(wanted, given, settings))
    return Outcome(
        findings=tuple(sorted(findings, key=lambda f: (f.span, f.code, f.message))),
        sources=sources.loaded(),
        checked=len(wanted),
        failures=tuple(failures),
        base=Path.cwd().as_posix(),
    )


def check_text(text: str, path: str = "snippet.py") -> list[Finding]:
    """Findings of every rule in ``text`` alone, as if it stood in a file at ``path``."""
    source = from_text(text, path)
    return list(check([source.path], Settings(), {source.path: source}).findings)


def _findings(
    wanted: Sequence[SourceFile],
    given: frozenset[str],
    settings: Settings,
) -> list[Finding]:
    from fsdplint.rules import RULES

    raised, invalid = _analysis(wanted)
    by_path: dict[str, list[Finding]] = {source.path: [] for source in wanted}
    for finding in raised:
        by_path.get(finding.span.path, []).append(finding)
    kept: list[Finding] = []
    for source in wanted:
        enabled = settings.enabled(source.path)
        problem = invalid.get(source.path)
        if problem is None and source.path in given:
            problem = _syntax_problem(source)
        if problem is not None:
            kept += [f for f in [_invalid_syntax(source, problem)] if f.rule in enabled]
        else:
            found = [f for f in by_path[source.path] if f.rule in enabled]
            kept += suppress(source, found, RULES, enabled)
    return kept


def _analysis(
    wanted: Sequence[SourceFile],
) -> tuple[list[Finding], dict[str, SyntaxProblem]]:
    """What the rules raise anywhere, and the files met on the way that do not parse."""
    relevant = [source for source in wanted if "fsdp" in source.text or "shard" in source.text]
    problems = {source.path: _syntax_problem(source) for source in relevant}
    return [], {path: problem for path, problem in problems.items() if problem is not None}


def _syntax_problem(source: SourceFile) -> SyntaxProblem | None:
    """Why ``source`` does not parse, or None; what CPython takes is not asked of LibCST."""
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source.text)
    except (SyntaxError, ValueError, *_TOO_DEEP):
        return _parser_problem(source)
    return None


def _parser_problem(source: SourceFile) -> SyntaxProblem | None:
    from fsdplint.source.syntax import InvalidSyntax, parse

    try:
        parse(source.text)
    except InvalidSyntax as error:
        return SyntaxProblem(error.message, error.offset)
    except _TOO_DEEP:
        return SyntaxProblem("the code is nested too deeply to be parsed", 0)
    return None


def _invalid_syntax(source: SourceFile, problem: SyntaxProblem) -> Finding:
    from fsdplint.rules import RULES

    rule = next(rule for rule in RULES if rule.name == "invalid-syntax")
    span = Span(source.path, problem.offset, min(problem.offset + 1, len(source.text)))
    return Finding(rule.name, rule.code, rule.severity, problem.message, span, "not understood")


def _deep(work: Callable[[], T]) -> T:
    """What ``work`` returns, run with room for the recursion that deeply nested code takes."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
    # A daemon, so that an interrupt ends the process without waiting for it.
    thread = threading.Thread(target=run, daemon=True)
    try:
        sys.setrecursionlimit(max(limit, _RECURSION))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    if errors:
        raise errors[0]
    return results[0]
