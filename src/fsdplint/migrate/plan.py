"""The plan of a migration: what its steps find, and the files as they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdplint.check import around, check
from fsdplint.engine.frontend.problem import syntax_problem
from fsdplint.engine.program import analyze
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.relevance import imported_files, programs
from fsdplint.files.decoding import SourceError
from fsdplint.files.discover import discover, project_root
from fsdplint.files.file import SourceFile, absolute
from fsdplint.finding import Edit, Finding, Span
from fsdplint.fixes.apply import fixed
from fsdplint.fixes.edits import apply, touch
from fsdplint.fixes.imports import together
from fsdplint.migrate.step import Change, Context, Found, Kept, Migration, Question
from fsdplint.outcome import Outcome
from fsdplint.process.stack import deep
from fsdplint.settings.config import Settings, settings_for
from fsdplint.sources import Sources

PASSES = 6


class MigrationError(Exception):
    """A migration that cannot be planned; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something found at a line of a file as it was before the migration.

    Attributes:
        key: what the answer to a question is given by; "" for what is no question.
    """

    path: str
    line: int
    found: Found
    key: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a migration does to a program.

    Attributes:
        entries: in order of their places.
        files: each changed file as it is and as it becomes.
        new: findings of `check` in the result that were not there before.
        outcome: the check of the program before the migration.
    """

    entries: tuple[Entry, ...]
    files: tuple[tuple[SourceFile, SourceFile], ...]
    new: tuple[Finding, ...]
    outcome: Outcome

    def of(self, kind: type[Found]) -> list[Entry]:
        """Return the entries of one kind."""
        return [entry for entry in self.entries if isinstance(entry.found, kind)]

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to ask or to do by hand."""
        return not (self.of(Question) or self.of(Kept) or self.new)


def make_plan(migration: Migration, paths: Sequence[str], answers: Mapping[str, str]) -> Plan:
    """Return the plan for the programs that ``paths`` are part of.

    If a question has no answer yet, the plan ends with the questions of that pass.

    Raises:
        MigrationError: the paths are in several projects, or hold nothing to migrate.
        SourceError: a file cannot be read, parsed or written.
    """
    return deep(lambda: _Run(migration, _scope(paths), answers).plan())


@dataclass(frozen=True, slots=True)
class _Scope:
    """The files of a project.

    Attributes:
        given: those that are to be migrated.
        every: all Python files.
        files: those that form programs with the given ones.
    """

    root: Path
    given: tuple[str, ...]
    every: tuple[str, ...]
    files: tuple[str, ...]


def _scope(paths: Sequence[str]) -> _Scope:
    discovery = discover(list(map(Path, paths)))
    if discovery.failures:
        raise discovery.failures[0]
    given = tuple(map(absolute, discovery.files))
    if not given:
        raise MigrationError(f"no Python file in {', '.join(paths)}")
    roots = {project_root(Path(path)) for path in given}
    if len(roots) > 1:
        names = ", ".join(sorted(root.as_posix() for root in roots))
        raise MigrationError(
            f"these files are in several projects ({names}); migrate one at a time"
        )
    root, sources = roots.pop(), Sources()
    every = (*given, *around(root, given, sources.text))
    project = Project(root, sources.text)
    ours = programs(project, dict.fromkeys(map(Path, every), True), list(map(Path, given)))
    closure = _closure(project, map(Path, given))
    files = tuple(path.as_posix() for path in dict.fromkeys([*ours, *closure]))
    return _Scope(root, given, every, files)


def _closure(project: Project, start: Iterable[Path]) -> list[Path]:
    found = list(start)
    for path in found:
        found += [each for each in imported_files(project, path) if each not in found]
    return found


@dataclass(slots=True)
class _Pass:
    """The edits of one pass, by path."""

    edits: dict[str, list[Edit]]

    def before(self, span: Span) -> Span:
        """Return the place before the edits of a place after them; of new code, where it is."""
        shift = 0
        for edit in sorted(self.edits.get(span.path, ()), key=lambda e: (e.span.start, e.span.end)):
            start = edit.span.start + shift
            if span.start < start:
                break
            if span.start < start + len(edit.text):
                return Span(span.path, edit.span.start, edit.span.start)
            shift += len(edit.text) - (edit.span.end - edit.span.start)
        return Span(span.path, span.start - shift, span.end - shift)


class _Run:
    def __init__(self, migration: Migration, scope: _Scope, answers: Mapping[str, str]) -> None:
        self.migration = migration
        self.scope = scope
        self.answers = answers
        self.sources: dict[str, SourceFile] = {}
        self.changed: dict[str, SourceFile] = {}
        self.passes: list[_Pass] = []
        self.entries: list[Entry] = []

    def plan(self) -> Plan:
        before = self._checked(self._settings())
        self._read_all()
        asked = False
        for _ in range(PASSES):
            context = self._context()
            found = [each for step in self.migration.steps for each in step(context)]
            changes = _together(each for each in found if isinstance(each, Change))
            kept = [each for each in found if isinstance(each, Kept)]
            questions = [
                each
                for each in found
                if isinstance(each, Question) and context.answer(each) is None
            ]
            self._note(context, [*changes, *questions, *kept])
            asked = bool(questions)
            if asked or not changes:
                break
            self._apply(changes)
        if not asked:
            self._mend()
            context = self._context()
            self._note(context, [*self.migration.leftovers(context)])
        files = tuple((self.sources[path], new) for path, new in sorted(self.changed.items()))
        after = self._checked(self._settings()) if self.changed and not asked else before
        return Plan(
            tuple(sorted(dict.fromkeys(self.entries), key=lambda e: (e.path, e.line))),
            files,
            tuple(
                finding
                for finding in _added(before.findings, after.findings)
                if finding.rule not in self.migration.unrelated
            ),
            before,
        )

    def _settings(self) -> Settings:
        return settings_for(self.scope.given, None, isolated=False)

    def _checked(self, settings: Settings) -> Outcome:
        return check(self.scope.files, settings, self.changed)

    def _read_all(self) -> None:
        reader = Sources()
        for path in self.scope.files:
            source = reader.read(path)
            if source is None:
                raise reader.failures[-1]
            problem = syntax_problem(source)
            if problem is not None:
                line, _ = source.position(problem.offset)
                raise SourceError(path, f"{source.line_name(line)}: {problem.message}")
            self.sources[path] = source

    def _context(self) -> Context:
        sources = Sources(self.changed)
        every, focus = map(Path, self.scope.every), list(map(Path, self.scope.files))
        program = analyze(self.scope.root, every, sources.text, focus)
        program = replace(program, line_name=sources.line_name)
        return Context(program, frozenset(self.scope.files), self.answers, self._line)

    def _line(self, span: Span) -> int:
        """Return the line of a place as it was before all passes."""
        for each in reversed(self.passes):
            span = each.before(span)
        return self.sources[span.path].position(span.start)[0]

    def _note(self, context: Context, found: Iterable[Found]) -> None:
        for each in found:
            key = context.key(each) if isinstance(each, Question) else ""
            self.entries.append(Entry(each.span.path, self._line(each.span), each, key))

    def _apply(self, changes: Sequence[Change]) -> None:
        edits: dict[str, list[Edit]] = {}
        for edit in dict.fromkeys(edit for change in changes for edit in change.edits):
            edits.setdefault(edit.span.path, []).append(edit)
        imports = (each for change in changes for each in change.imports)
        for edit in together(imports):
            edits.setdefault(edit.span.path, []).append(edit)
        for path, each in edits.items():
            self._replace(path, apply(self._source(path).text, each))
        self.passes.append(_Pass(edits))

    def _source(self, path: str) -> SourceFile:
        return self.changed.get(path, self.sources[path])

    def _replace(self, path: str, text: str) -> None:
        new = self.sources[path].edited(text)
        problem = syntax_problem(new)
        if problem is not None:
            line, _ = new.position(problem.offset)
            raise SourceError(path, f"the migrated {new.line_name(line)} is not valid Python")
        self.changed[path] = new

    def _mend(self) -> None:
        """Apply the fixes of the migration's rules to what the steps have changed."""
        if not self.changed:
            return
        settings = replace(self._settings(), select=self.migration.rules)

        def recheck(overlay: Mapping[str, SourceFile]) -> Outcome:
            return check(self.scope.files, settings, {**self.changed, **overlay})

        changes = fixed(recheck({}), recheck, unsafe=True)
        for finding in changes.fixed:
            assert finding.fix is not None
            # Later fixes are of texts with the earlier ones, so their lines are near at best.
            change = Change(finding.span, finding.fix.title, finding.fix.edits)
            self.entries.append(Entry(finding.span.path, self._line(finding.span), change))
        for before, after in changes.files:
            self._replace(before.path, after.text)


def _together(changes: Iterable[Change]) -> list[Change]:
    """Return changes that can be made in one pass; the others have their turn in the next."""
    chosen: list[Change] = []
    taken: list[Edit] = []
    for change in changes:
        new = [edit for edit in change.edits if edit not in taken]
        if not any(touch(edit, other) for edit in new for other in taken):
            chosen.append(change)
            taken += new
    return chosen


def _added(before: Iterable[Finding], after: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of each rule and file that are more than before."""
    left = [(finding.rule, finding.span.path) for finding in before]
    for finding in after:
        place = finding.rule, finding.span.path
        if place in left:
            left.remove(place)
        else:
            yield finding
