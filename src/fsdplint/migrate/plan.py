"""The plan of a migration: what its steps find, and the files as they become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fsdplint.cache.ir_pack import Packs
from fsdplint.check import around, check
from fsdplint.check_configs import candidates, launches_of, named_config, values_of
from fsdplint.engine.frontend.problem import syntax_problem
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.program import Program, analyze
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.relevance import imported_files, programs
from fsdplint.files.decoding import SourceError
from fsdplint.files.discover import discover, is_config, is_project, project_root
from fsdplint.files.file import SourceFile, absolute
from fsdplint.files.pins import pinned
from fsdplint.finding import Edit, Finding, Span
from fsdplint.fixes.apply import fixed
from fsdplint.fixes.edits import apply, touch
from fsdplint.fixes.imports import together
from fsdplint.knowledge.frameworks import uses_launcher
from fsdplint.knowledge.lightning_settings import CLI
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
from fsdplint.settings.config import Settings, settings_for
from fsdplint.settings.rule_selection import OptIn
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
    scope, packs = _scope(paths, migration), Packs(on_disk=False)
    while True:
        try:
            return _Run(migration, scope, answers, packs).plan()
        except _WiderScopeError as wider:
            scope = wider.scope


@dataclass(frozen=True, slots=True)
class _Scope:
    """The files of a project.

    Attributes:
        given: those that are to be migrated.
        every: all Python files.
        files: those that the migration may change.
        configs: config files and launch scripts, given ones and those that may launch the files.
        paths: those that the migration was asked for.
        shared: files with entries of the plan, so that the programs that use them are in it.
    """

    root: Path
    given: tuple[str, ...]
    every: tuple[str, ...]
    files: tuple[str, ...]
    configs: tuple[str, ...]
    paths: Sequence[str]
    shared: frozenset[str]


class _WiderScopeError(Exception):
    """The plan concerns files that further programs use."""

    def __init__(self, scope: _Scope) -> None:
        super().__init__()
        self.scope = scope


def _scope(
    paths: Sequence[str], migration: Migration, shared: frozenset[str] = frozenset()
) -> _Scope:
    """Return the files of the programs that have one of ``paths`` or of the ``shared`` files."""
    discovery = discover(list(map(Path, paths)))
    if discovery.failures:
        raise discovery.failures[0]
    code = tuple(map(absolute, discovery.files))
    configs = tuple(map(absolute, candidates(discovery.configs)))
    given = (*code, *configs)
    if not given:
        raise MigrationError(f"no Python file and no config file of FSDP in {', '.join(paths)}")
    roots = {project_root(Path(path)) for path in given}
    if len(roots) > 1:
        names = ", ".join(sorted(root.as_posix() for root in roots))
        raise MigrationError(
            f"these files are in several projects ({names}); migrate one at a time"
        )
    root, sources = roots.pop(), Sources()
    every = (*code, *around(root, code, sources.text))
    project = Project(root, sources.text)
    found = _closure(project, map(Path, code))
    if not migration.of_script:
        known = dict.fromkeys(map(Path, every), True)
        focus = dict.fromkeys(map(Path, (*code, *sorted(shared))))
        found = [*programs(project, known, list(focus)), *found]
    files = tuple(path.as_posix() for path in dict.fromkeys(found))
    texts = [sources.text(Path(path)) or "" for path in files]
    if is_project(root) and any(uses_launcher(text) or CLI in text for text in texts):
        configs += tuple(map(absolute, candidates(discover([root]).configs)))
    configs = tuple(dict.fromkeys(configs))
    return _Scope(root, given, every, files, configs, paths, shared)


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


@dataclass(frozen=True, slots=True)
class _Checked:
    """A check of the program with some files changed, and what it analyzed."""

    changed: Mapping[str, SourceFile]
    outcome: Outcome
    programs: tuple[Program, ...]


class _Run:
    def __init__(
        self,
        migration: Migration,
        scope: _Scope,
        answers: Mapping[str, str],
        packs: Packs,
    ) -> None:
        self.migration = migration
        self.scope = scope
        self.answers = answers
        self.packs = packs
        self.last: _Checked | None = None
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
        self.before = after = self._checked().outcome
        last = self._run_steps()
        if last is not None:
            if self.changed:
                self._mend()
                self._clean()
                last = self._context()
                after = self._checked().outcome
            left = self.migration.leftovers(last)
            self._note(last, [each for each in left if not self._is_kept(each.span)])
        files = tuple((self.sources[path], new) for path, new in sorted(self.changed.items()))
        new = [
            f for f in filter(self._counts, _new(self.before, after)) if not self._is_kept(f.span)
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

    def _settings(self) -> Settings:
        preview = OptIn(preview=True)
        return settings_for(self.scope.given, None, isolated=False, opt_in=preview)

    def _checked(self, mended: Mapping[str, SourceFile] | None = None) -> _Checked:
        """Return the check of the program as changed so far; the last one is remembered."""
        changed = {**self.changed, **(mended or {})}
        if self.last is None or self.last.changed != changed:
            programs: list[Program] = []
            settings = self._settings()
            outcome = check(self._paths, settings, changed, packs=self.packs, programs=programs)
            self.last = _Checked(changed, outcome, tuple(programs))
        return self.last

    @property
    def _paths(self) -> list[str]:
        return [*self.scope.files, *self.scope.configs]

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
        configs = self._configs()
        program = self._analyzed(configs) if analyzed else self._lowered()
        files, given = frozenset(self.scope.files), frozenset(self.scope.given)
        return Context(program, files, self.answers, self._line, self.asked, given, configs)

    def _lowered(self) -> Program:
        sources, root = Sources(self.changed), self.scope.root
        project = Project(root, sources.text, ir_cache=self.packs.of(root))
        return Program(project, (), (), line_name=sources.line_name, admits=partial(pinned, root))

    def _analyzed(self, configs: Mapping[str, object]) -> Program:
        """Return the program that the check analyzed, if that is all of it and nothing else."""
        launches, every = launches_of(self.scope.root, configs), set(map(Path, self.scope.every))
        for program in self._checked().programs:
            if set(program.files) == every and program.project.launches == launches:
                return program
        empty = self._lowered()
        read, focus = empty.project.read, list(map(Path, self.scope.files))
        program = analyze(self.scope.root, every, read, focus, launches=launches)
        return replace(program, line_name=empty.line_name, admits=empty.admits)

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
        scope = _scope(self.scope.paths, self.migration, shared)
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
            return self._checked(overlay).outcome

        def curing(outcome: Outcome) -> Sequence[Finding]:
            found, unrelated = _new(self.before, outcome), self.migration.unrelated
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
    """Return changes that can be made in one pass; the others have their turn in the next."""
    chosen: list[Change] = []
    taken: list[Edit] = []
    for change in changes:
        new = [edit for edit in change.edits if edit not in taken]
        if not any(touch(edit, other) for edit in new for other in taken):
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


def _new(before: Outcome, after: Outcome) -> tuple[Finding, ...]:
    """Return the findings that were not there before.

    These are as many as a rule has more in a file, and those first whose line had none.
    """
    known = Counter(_identity(before, finding) for finding in before.findings)
    more = Counter(map(_place, after.findings))
    more.subtract(map(_place, before.findings))
    found = []
    for finding in after.findings:
        identity = _identity(after, finding)
        known[identity] -= 1
        if known[identity] < 0 and more[_place(finding)] > 0:
            more[_place(finding)] -= 1
            found.append(finding)
    return tuple(found)


def _place(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.span.path


def _identity(outcome: Outcome, finding: Finding) -> tuple[str, str, str]:
    source = outcome.sources[finding.span.path]
    line, _ = source.position(finding.span.start)
    return finding.rule, finding.span.path, source.line(line).strip()
