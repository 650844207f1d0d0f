"""The plan of a migration: what its steps find, and the files as they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fsdplint.cache.ir_pack import Packs
from fsdplint.check_configs import named_config, values_of
from fsdplint.engine.frontend.problem import syntax_problem
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.program import Program
from fsdplint.files.decoding import SourceError
from fsdplint.files.discover import is_config
from fsdplint.files.file import SourceFile
from fsdplint.finding import Edit, Finding, Span
from fsdplint.fixes.apply import fixed
from fsdplint.fixes.edits import apply, touch
from fsdplint.fixes.imports import together
from fsdplint.migrate.analyses import Analyses
from fsdplint.migrate.new_findings import new_findings
from fsdplint.migrate.scope import Scope, scope_of
from fsdplint.migrate.step import (
    Change,
    Context,
    Found,
    Kept,
    Migration,
    MigrationError,
    Question,
)
from fsdplint.outcome import Outcome
from fsdplint.process.stack import deep
from fsdplint.report.places import failure_line
from fsdplint.sources import Sources

PASSES = 10
# Rules on the releases that a project admits, which a migration to a newer API narrows.
_OF_RELEASES = frozenset({"old-import-path"})
# Passes of the cleanup, each of which removes a name of each import statement.
_MAX_REMOVALS = 30


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
        late: such findings on names that some of the releases lack that the project admits.
        unasked: the keys of answers that no question asks for.
        only_root: the migration found no blocks to shard beside the root of the model.
        corrected: the files in which the program as it is has mistakes, and each without them.
    """

    entries: tuple[Entry, ...]
    files: tuple[tuple[SourceFile, SourceFile], ...]
    new: tuple[Finding, ...]
    outcome: Outcome
    late: tuple[Finding, ...] = ()
    unasked: tuple[str, ...] = ()
    only_root: bool = False
    corrected: tuple[tuple[SourceFile, SourceFile], ...] = ()

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
    return deep(lambda: _plan(migration, paths, answers))


def _plan(migration: Migration, paths: Sequence[str], answers: Mapping[str, str]) -> Plan:
    """Return the plan for the programs of ``paths``, and for those that use a file in it, too."""
    scope, packs = scope_of(paths, migration), Packs(on_disk=False)
    while True:
        try:
            return _Run(migration, scope, answers, packs).plan()
        except _WiderScopeError as wider:
            scope = wider.scope


class _WiderScopeError(Exception):
    """The plan concerns files that further programs use."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope


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
    def __init__(
        self,
        migration: Migration,
        scope: Scope,
        answers: Mapping[str, str],
        packs: Packs,
    ) -> None:
        self.migration = migration
        self.scope = scope
        self.answers = answers
        self.analyses = Analyses(scope, packs)
        self.sources: dict[str, SourceFile] = {}
        self.changed: dict[str, SourceFile] = {}
        self.corrected: dict[str, SourceFile] = {}
        self.passes: list[_Pass] = []
        self.entries: list[Entry] = []
        self.kept: list[tuple[str, range]] = []
        self.asked: set[str] = set()
        self.before = Outcome((), {})

    def plan(self) -> Plan:
        self._read_all()
        self.before = after = self.analyses.outcome(self.changed)
        for failure in self.before.failures:
            raise MigrationError(failure_line(self.before, failure))
        last = self._run_steps()
        if last is not None:
            if self.changed:
                self._mend()
                self._clean()
                last = self._context()
                after = self.analyses.outcome(self.changed)
            left = self.migration.leftovers(last)
            self._note(last, [each for each in left if not self._is_kept(each.span)])
        files = tuple((self.sources[path], new) for path, new in sorted(self.changed.items()))
        new = [
            f
            for f in filter(self._counts, new_findings(self.before, after))
            if not self._is_kept(f.span)
        ]
        return Plan(
            _ordered(self.entries),
            files,
            tuple(f for f in new if f.rule not in _OF_RELEASES),
            self.before,
            tuple(f for f in new if f.rule in _OF_RELEASES),
            tuple(sorted(self.answers.keys() - self.asked)) if last is not None else (),
            last is not None and self._shards_only_roots(last.program),
            tuple((self.sources[path], new) for path, new in sorted(self.corrected.items())),
        )

    def _shards_only_roots(self, program: Program) -> bool:
        if not self.changed or not self.migration.chooses_units:
            return False
        counts = [sum(1 for _ in trace.of(Shard)) for trace in program.traces]
        return max(counts, default=0) == 1

    def _run_steps(self) -> Context | None:
        """Run the steps until they change nothing; return the last pass, None if it asks.

        Raises:
            MigrationError: they go on changing the program.
        """
        for _ in range(PASSES):
            context = self._context()
            if self._mend_first(context):
                continue
            found = [each for step in self.migration.steps for each in step(context)]
            changes = _together(each for each in found if isinstance(each, Change))
            kept = [each for each in found if isinstance(each, Kept)]
            asked = [each for each in found if isinstance(each, Question)]
            self._note(context, [*changes, *asked, *kept])
            if asked:
                return None
            if not any(change.edits for change in changes):
                return context
            self._correct(changes)
            self._apply(changes)
        raise MigrationError(f"the steps do not end after {PASSES} passes, please report it")

    def _mend_first(self, context: Context) -> bool:
        """Make the changes that the steps build on; return whether there are any."""
        found = self.migration.first(context) if self.migration.first is not None else ()
        changes = _together(each for each in found if isinstance(each, Change))
        if changes:
            self._note(context, changes)
            first = self.changed == self.corrected
            self._apply(changes)
            self.corrected = dict(self.changed) if first else self.corrected
        return bool(changes)

    def _correct(self, changes: Sequence[Change]) -> None:
        """Keep a copy of the program with its mistakes corrected and nothing else changed."""
        if self.changed != self.corrected:
            return
        edits = _by_path(edit for change in changes for edit in change.corrects)
        self.corrected |= {path: _edited(self._source(path), each) for path, each in edits.items()}

    def _counts(self, finding: Finding) -> bool:
        tolerated = finding.fix is None and finding.rule in self.migration.tolerated
        return finding.rule not in self.migration.unrelated and not tolerated

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
        self.sources |= {path: named_config(path) for path in self.scope.configs}

    def _context(self, *, analyzed: bool = True) -> Context:
        """Return the program as changed so far; not ``analyzed``, without units and traces."""
        configs, analyses = self._configs(), self.analyses
        if analyzed:
            program = analyses.program(self.changed, configs)
        else:
            program = analyses.lowered(self.changed)
        files, given = frozenset(self.scope.files), frozenset(self.scope.given)
        return Context(program, files, self.answers, self._line, self.asked, given, configs)

    def _configs(self) -> dict[str, object]:
        """Return what the config files and launch scripts hold, as changed so far."""
        return dict(values_of({path: self._source(path) for path in self.scope.configs}))

    def _line(self, span: Span) -> int:
        """Return the line of a place as it was before all passes."""
        for each in reversed(self.passes):
            span = each.before(span)
        return self.sources[span.path].position(span.start)[0]

    def _is_kept(self, span: Span) -> bool:
        """Return whether a place is inside one that is kept, whose reason is enough."""
        if span.path not in self.sources:
            return False  # a trace leads through files that the migration does not read
        line = self._line(span)
        return any(path == span.path and line in lines for path, lines in self.kept)

    def _note(self, context: Context, found: Iterable[Found]) -> None:
        for each in found:
            if isinstance(each, Kept) and self._is_kept(each.span):
                continue
            key = context.key(each) if isinstance(each, Question) else ""
            line, path = self._line(each.span), each.span.path
            self.entries.append(Entry(path, line, each, key))
            if isinstance(each, Kept):
                end = self._line(Span(path, each.span.end, each.span.end))
                self.kept.append((path, range(line, end + 1)))
        self._check_scope()

    def _check_scope(self) -> None:
        """Raise `_WiderScopeError` if programs that the plan leaves out use a file with entries."""
        shared = self.scope.shared | {entry.path for entry in self.entries}
        if shared == self.scope.shared or self.migration.of_script:
            return
        scope = scope_of(self.scope.paths, self.migration, shared)
        if scope.files != self.scope.files:
            raise _WiderScopeError(scope)
        self.scope = scope

    def _apply(self, changes: Sequence[Change]) -> None:
        edits = _by_path(edit for change in changes for edit in change.edits)
        imports = (each for change in changes for each in change.imports)
        for edit in together(imports):
            edits.setdefault(edit.span.path, []).append(edit)
        for path, each in edits.items():
            self._keep(_edited(self._source(path), each))
        self.passes.append(_Pass(edits))

    def _source(self, path: str) -> SourceFile:
        return self.changed.get(path, self.sources[path])

    def _keep(self, new: SourceFile) -> None:
        problem = None if is_config(new.path) else syntax_problem(new)
        if problem is not None:
            line, _ = new.position(problem.offset)
            raise SourceError(new.path, f"the migrated {new.line_name(line)} is not valid Python")
        self.changed[new.path] = new

    def _mend(self) -> None:
        """Apply the fixes of the findings that the steps cause, and of the migration's rules."""

        def recheck(overlay: Mapping[str, SourceFile]) -> Outcome:
            return self.analyses.outcome({**self.changed, **overlay})

        def curing(outcome: Outcome) -> Sequence[Finding]:
            found, unrelated = new_findings(self.before, outcome), self.migration.unrelated
            wanted = [finding for finding in found if finding.rule not in unrelated]
            wanted += [f for f in outcome.findings if f.rule in self.migration.rules]
            return tuple(f for f in dict.fromkeys(wanted) if f.rule not in _OF_RELEASES)

        changes = fixed(recheck({}), recheck, unsafe=True, curing=curing)
        for finding in changes.fixed:
            assert finding.fix is not None
            # Later fixes are of texts with the earlier ones, so their lines are near at best.
            change = Change(finding.span, finding.fix.title, finding.fix.edits)
            self.entries.append(Entry(finding.span.path, self._line(finding.span), change))
        self._check_scope()
        for _, after in changes.files:
            self._keep(after)

    def _clean(self) -> None:
        """Remove what is unused in the files that were changed, without an entry in the plan."""
        for _ in range(_MAX_REMOVALS):
            context = self._context(analyzed=False)
            found = [each for each in self.migration.cleanup(context) if isinstance(each, Change)]
            changes = _together(each for each in found if each.span.path in self.changed)
            if not changes:
                return
            self._apply(changes)


def _by_path(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    found: dict[str, list[Edit]] = {}
    for edit in dict.fromkeys(edits):
        found.setdefault(edit.span.path, []).append(edit)
    return found


def _edited(source: SourceFile, edits: Sequence[Edit]) -> SourceFile:
    """Return ``source`` with the edits; in a notebook one by one, so that each finds its cell."""
    if source.notebook is None:
        return source.edited(apply(source.text, edits))
    for edit in sorted(edits, reverse=True):
        source = source.edited(apply(source.text, [edit]))
    return source


def _together(changes: Iterable[Change]) -> list[Change]:
    """Return changes that can be made in one pass; the others have their turn in the next.

    One whose edits are all those of others is made by them.
    """
    chosen: list[Change] = []
    taken: list[Edit] = []
    for change in changes:
        new = [edit for edit in change.edits if edit not in taken]
        made = bool(change.edits) and not new
        if not made and not any(touch(edit, other) for edit in new for other in taken):
            chosen.append(change)
            taken += new
    return chosen


def _ordered(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries by place, each once; of several for a line that is kept, the first."""
    found: dict[object, Entry] = {}
    for entry in entries:
        kept = isinstance(entry.found, Kept)
        found.setdefault((entry.path, entry.line, "kept" if kept else entry.found), entry)
    return tuple(sorted(found.values(), key=lambda entry: (entry.path, entry.line)))
