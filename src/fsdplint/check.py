"""The run: files in, findings out. Nothing here prints or writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.check_configs import ConfigOutcome, check_configs, launches_in, read_around
from fsdplint.engine.frontend.problem import syntax_problem
from fsdplint.files import disk
from fsdplint.files.decoding import Skipped, SourceError
from fsdplint.files.discover import (
    Patterns,
    discover,
    is_config,
    is_project,
    project_root,
    repository,
)
from fsdplint.files.file import SourceFile, absolute, from_text, load
from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.files.links import leaves, without_writes
from fsdplint.files.pins import pinned
from fsdplint.finding import TOP_LEVEL, EarlyStop, Finding, Span, relocated
from fsdplint.knowledge.torch_range import EVERY_RELEASE, TorchRange
from fsdplint.outcome import Account, Outcome, OutdatedError, State, never, united
from fsdplint.process.stack import deep
from fsdplint.settings.config import Settings, defaults
from fsdplint.settings.rule_selection import EVERYTHING
from fsdplint.sources import Sources
from fsdplint.suppression.comments import UNUSED, suppress

if TYPE_CHECKING:
    from fsdplint.cache.ir_pack import Packs
    from fsdplint.engine.inspection.summary import Inspection
    from fsdplint.engine.program import Program
    from fsdplint.engine.project.launch_settings import LaunchSettings
    from fsdplint.engine.project.project import Project, Reader


_UNRELATED = "not part of a program that shards"
_NO_RULE = "per-file-ignores disables all rules for it"
# Characters up to which every file is parsed. In a larger tree, which takes CPython's parser longer
# than all the rest, only those that take part in sharding are.
_MAX_PARSED = 5_000_000


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one project, and which of them are to be checked."""

    root: Path
    every: tuple[str, ...]
    checked: tuple[str, ...]


@dataclass(slots=True)
class Record:
    """Files that a run could not check, or not completely.

    Attributes:
        programs: takes what was analyzed, if the caller wants it.
    """

    failures: list[SourceError]
    problems: dict[str, InvalidSyntax] = field(default_factory=dict)
    partly: list[EarlyStop] = field(default_factory=list)
    irrelevant: dict[str, str] = field(default_factory=dict)
    programs: list[Program] | None = None


def check(
    paths: Sequence[str | Path],
    settings: Settings,
    overlay: Mapping[str, SourceFile] | None = None,
    *,
    alone: bool = False,
    packs: Packs | None = None,
    programs: list[Program] | None = None,
    is_outdated: Callable[[], bool] = never,
) -> Outcome:
    """Return the findings in the files at and below ``paths``.

    Args:
        overlay: by absolute path, what to read instead of a file on disk.
        alone: whether the files of the overlay are all there is.
        packs: the IR of files from other runs, which this one extends.
        programs: takes what was analyzed, if given.
        is_outdated: whether nobody waits any more; asked after each entry and each rule.

    Raises:
        OutdatedError: nobody waits any more.
    """
    overlay = overlay or {}
    given = frozenset(absolute(path) for path in paths)
    discovery = discover([Path(p) for p in paths if absolute(p) not in overlay], settings.exclude)
    sources = Sources(overlay, alone, packs, is_outdated=is_outdated)
    files = [
        *map(absolute, discovery.files),
        *(path for path in given if path in overlay and not is_config(path)),
    ]
    named = {path for path in given if is_config(path)}
    configs = check_configs(discovery.configs, named, settings, overlay, alone=alone)
    wanted = [file for file in sorted(files) if sources.read(file) is not None]
    failures = [*discovery.failures, *sources.failures]
    if not wanted and not failures and not configs.accounts:
        failures = [SourceError(absolute(p), _nothing_in(Path(p))) for p in paths]
    record = Record(failures, programs=programs)
    findings = deep(lambda: _findings(wanted, given, sources, settings, record, configs, alone))
    failures += sources.lost
    held = {**sources.held(), **configs.sources}
    findings = [finding for finding in findings if finding.paths <= held.keys()]
    findings += configs.findings
    failures += configs.failures
    linked = _linked(findings, given, overlay)
    findings = list(without_writes(findings, linked))
    found = {*map(absolute, files), *(error.path for error in discovery.skipped)}
    ruleless = [Skipped(path, _NO_RULE) for path in wanted if not settings.enabled(path)]
    accounts = _accounts(found, record, [*discovery.skipped, *ruleless, *failures], sources)
    return Outcome(
        findings=tuple(sorted(findings, key=lambda f: (f.span, f.code, f.message))),
        sources=held,
        failures=tuple(failures),
        base=Path.cwd().as_posix(),
        partly=tuple(record.partly),
        accounts=united([*accounts, *configs.accounts]),
        rules=settings.select,
        linked=linked,
        root=repository(Path.cwd()).as_posix(),
    )


def _linked(
    findings: Iterable[Finding], given: frozenset[str], overlay: Mapping[str, SourceFile]
) -> frozenset[str]:
    """Return the files of ``findings`` that are behind links out of the project."""
    named = frozenset[str]().union(*(finding.paths for finding in findings))
    # What is read instead of a file is not written to it.
    return frozenset(path for path in named - overlay.keys() if leaves(path, given))


def _nothing_in(path: Path) -> str:
    """Return why there is no file to check in ``path``."""
    excluded = len(discover([path]).files)
    if not excluded:
        return "contains no Python file to check"
    if excluded == 1:
        return "its only Python file is excluded"
    return f"all {excluded} Python files in it are excluded"


def check_text(
    text: str,
    path: str = "snippet.py",
    torch: TorchRange = EVERY_RELEASE,
    beside: Iterable[tuple[str, str]] = (),
) -> list[Finding]:
    """Return the findings of every rule in ``text`` alone, as if it were a file at ``path``.

    Args:
        torch: the releases of PyTorch that it is to run on.
        beside: paths and texts of other files that there are.

    Raises:
        SourceError: it was not looked at, or a rule failed on it, so that findings may be missing.
    """
    source = from_text(text, path)
    overlay = {each.path: each for each in (source, *(from_text(t, name) for name, t in beside))}
    settings = replace(defaults(EVERYTHING), target_torch=torch)
    outcome = check([source.path], settings, overlay, alone=True)
    if outcome.failures:
        raise outcome.failures[0]
    return list(outcome.findings)


def inspect(
    path: str | Path, overlay: Mapping[str, SourceFile] | None = None
) -> tuple[Inspection, Outcome]:
    """Return the analysis of the script at ``path``, as part of its program.

    Args:
        overlay: by absolute path, what to read instead of a file on disk.

    Returns:
        The inspection, and an outcome without findings that holds the sources of its places.

    Raises:
        SourceError: the file cannot be read, or is not Python.
    """
    from fsdplint.engine.inspection import summary
    from fsdplint.engine.program import analyze
    from fsdplint.engine.project.project import Project
    from fsdplint.engine.project.relevance import import_closure

    overlay = overlay or {}
    source = _python(overlay.get(absolute(path)) or load(Path(path)))
    sources = Sources({**overlay, source.path: source}, most=sys.maxsize)
    root = project_root(Path(source.path))
    configs = ConfigOutcome()
    if is_project(root):
        read_around(discover([root]).configs, configs)
    launches = launches_in(root, configs)
    own = sources.with_scripts([source.path])
    files = [*own, *around(root, [source.path], sources.text)]

    def analyzed() -> Inspection:
        project = Project(root, sources.text)
        closure = dict.fromkeys(
            file for each in own for file in import_closure(project, Path(each))
        )
        found = summary.inspect(analyze(root, closure, sources.text, launches=launches), *own)
        if any(e.path in own and e.name == TOP_LEVEL for e in found.entries):
            return found
        # A file that is no program is shown as part of the programs that import it.
        program = analyze(root, list(map(Path, files)), sources.text, launches=launches)
        return summary.inspect(program, *own)

    found = deep(analyzed)
    held = sources.held() | {
        path: replace(script, path=path) for path, script in sources.written.items()
    }
    return found, Outcome((), held, tuple(sources.failures), Path.cwd().as_posix())


def _python(source: SourceFile) -> SourceFile:
    """Return ``source`` if it is valid Python.

    Raises:
        SourceError: it is not, or it takes too much to parse.
    """
    try:
        problem = syntax_problem(source)
    except TooDemanding as error:
        raise SourceError(source.path, error.message) from error
    if problem is not None:
        line, _ = source.position(problem.offset)
        raise SourceError(source.path, f"{source.line_name(line)}: {problem.message}")
    return source


def _findings(
    wanted: Sequence[str],
    given: frozenset[str],
    sources: Sources,
    settings: Settings,
    record: Record,
    configs: ConfigOutcome,
    alone: bool,
) -> list[Finding]:
    """Return the findings in the files ``wanted``, program by program, without suppressed ones.

    Of a file that is named, its program's are too that stand in another file: a script's helper.
    What could not be checked goes into ``record``.
    """
    all_parsed = sources.characters <= _MAX_PARSED
    found: dict[str, list[Finding]] = {path: [] for path in wanted}
    elsewhere: dict[str, list[Finding]] = {}
    single = frozenset() if alone else given
    for root, files in _programs(wanted, given).items():
        for finding in _in_program(root, files, single, sources, settings, record, configs):
            at = found if finding.span.path in found else elsewhere
            at.setdefault(finding.span.path, []).append(finding)
    kept = [
        finding
        for path, findings in elsewhere.items()
        for finding in _of_imported(path, findings, sources, settings)
    ]
    for path in wanted:
        # A notebook may hold syntax of IPython that is not known here: parsed where it matters.
        parsed = path in given or (all_parsed and not path.endswith(".ipynb"))
        if sources.is_left(path) and not parsed:
            _note_unparsed(record, path)
            continue
        source = sources.read(path)
        if source is None:  # it was changed in the meantime
            continue
        enabled = settings.enabled(path)
        problem = _problem(source, record, parsed)
        if problem is None:
            chosen = [finding for finding in found[path] if finding.rule in enabled]
            kept += suppress(source, chosen, enabled, settings.target_torch)
            continue
        sources.hold(path)
        if (finding := _invalid_syntax(source, problem)).rule in enabled:
            kept.append(finding)
        else:  # its rule is off, but the others could not check the file either
            record.failures.append(SourceError(path, _not_python(source, problem)))
    return kept


def _in_program(
    root: Path,
    files: Sequence[str],
    single: frozenset[str],
    sources: Sources,
    settings: Settings,
    record: Record,
    configs: ConfigOutcome,
) -> Iterator[Finding]:
    """Yield the findings of the rules in a program, each in the file on disk that has its place.

    Args:
        single: files that are checked with the files around them that use them.
    """
    named = [file for file in files if file in single]
    beside = around(root, named, sources.text, settings.exclude)
    every = sources.with_scripts((*files, *beside))
    if named and is_project(root) and _uses_launcher(every, sources):
        read_around(discover([root], settings.exclude).configs, configs)
    program = Files(root, every, sources.with_scripts(files))
    focus = sources.with_scripts(named)
    launches = launches_in(root, configs)
    for finding in _raised(program, focus, sources, record, settings.target_torch, launches):
        yield relocated(finding, sources.on_disk)


def _uses_launcher(paths: Sequence[str], sources: Sources) -> bool:
    """Return whether a file shards by what it is launched with."""
    from fsdplint.knowledge.frameworks import uses_launcher

    readable = (Path(path) for path in paths if not sources.is_left(path))
    return any(uses_launcher(sources.text(path) or "") for path in readable)


def _of_imported(
    path: str, findings: Iterable[Finding], sources: Sources, settings: Settings
) -> Iterator[Finding]:
    """Yield the findings in a file that a named one imports, which are shown and not fixed."""
    source = sources.read(path)
    enabled = settings.enabled(path) - {UNUSED}
    chosen = [finding for finding in findings if finding.rule in enabled]
    for finding in suppress(source, chosen, enabled, settings.target_torch) if source else ():
        reason = f"{Path(path).name} is not among the checked paths; add it to apply the fix"
        yield replace(finding, fix=None, fix_declined=reason)


def _problem(source: SourceFile, record: Record, parsed: bool) -> InvalidSyntax | None:
    """Return why a file is not Python, in CPython's words if it is to be ``parsed``."""
    refused = record.problems.pop(source.path, None)
    problem = None
    try:
        if parsed or refused is not None:
            problem = syntax_problem(source)
    except TooDemanding:
        parsed = False
    if problem is not None:
        record.problems[source.path] = problem
    elif refused is not None:
        line, _ = source.position(refused.offset)
        where = source.line_name(line)
        reason = f"{where}: the parser does not support this syntax: {refused.message}"
        record.failures.append(SourceError(source.path, reason))
    elif not parsed:
        _note_unparsed(record, source.path)
    return problem


def _note_unparsed(record: Record, path: str) -> None:
    if path in record.irrelevant:
        record.irrelevant[path] += ", so not parsed"


def _programs(wanted: Sequence[str], given: frozenset[str]) -> dict[Path, list[str]]:
    """Return the files by the root of their project, within which imports are resolved."""
    roots = sorted({project_root(Path(path)) for path in given}, key=str, reverse=True)
    programs: dict[Path, list[str]] = {}
    for path in wanted:
        holding = (root for root in roots if Path(path).is_relative_to(root))
        programs.setdefault(next(holding, Path(path).parent), []).append(path)
    return programs


def around(
    root: Path, given: Sequence[str], read: Reader, exclude: Sequence[Patterns] = ()
) -> list[str]:
    """Return the files that form a program with files ``given`` one by one, e.g. by a hook.

    Below a directory that is known for a project's these are all that a search of it finds;
    elsewhere, which may be a home directory, those beside the given ones and what they import.
    """
    if not given:
        return []
    found = discover([root], exclude).files if is_project(root) else _beside(root, given, read)
    return [path for path in dict.fromkeys(map(absolute, found)) if path not in given]


def _beside(root: Path, given: Sequence[str], read: Reader) -> list[Path]:
    directories = sorted({Path(path).parent for path in given})
    beside = [
        directory / entry.name
        for directory in directories
        if disk.is_folder(directory)  # that of standard input need not be there
        for entry in disk.entries(str(directory))
        if entry.name.endswith(".py")
    ]
    return beside + _imported(root, map(Path, given), read)


def _imported(root: Path, given: Iterable[Path], read: Reader) -> list[Path]:
    """Return the files that ``given`` ones import from folders beside them, transitively."""
    from fsdplint.engine.project.imports import imports

    found: list[Path] = []
    for path in given:
        modules = imports(read(path) or "", {}).modules
        # Most files import none, and the engine takes long to import.
        if any(disk.is_folder(path.parent / module.split(".")[0]) for module, _ in modules):
            from fsdplint.engine.project.project import Project
            from fsdplint.engine.project.relevance import import_closure

            found += import_closure(Project(root, read), path)
    return found


def _raised(
    program_files: Files,
    named: Sequence[str],
    sources: Sources,
    record: Record,
    torch: TorchRange,
    launches: tuple[LaunchSettings, ...],
) -> Iterator[Finding]:
    """Yield what every rule finds in the files to be checked, and in the programs of named ones.

    Files that do not parse are noted.
    """
    from fsdplint.engine.project.prefilter import mentions_sharding
    from fsdplint.knowledge.frameworks import uses_launcher

    root, every = program_files.root, list(map(Path, program_files.every))
    texts = (sources.text(path) or "" for path in every if not sources.is_left(path))
    if not any(mentions_sharding(text) or (launches and uses_launcher(text)) for text in texts):
        record.irrelevant.update(
            dict.fromkeys(map(sources.on_disk, program_files.checked), _UNRELATED)
        )
        return
    from fsdplint.engine.program import analyze  # the engine, which takes long to import
    from fsdplint.rules import RULES
    from fsdplint.run_rules import judge, spans_on_paths_from

    focus = list(map(Path, program_files.checked))
    ir_cache = sources.ir_cache(root)
    left, outdated = sources.is_left, sources.is_outdated
    program = analyze(root, every, sources.text, focus, torch, ir_cache, left, outdated, launches)
    program = replace(program, line_name=sources.line_name, admits=partial(pinned, root))
    if record.programs is not None:
        record.programs.append(program)
    for rule in RULES:
        if sources.is_outdated():
            raise OutdatedError
        judgement = judge(rule, program)
        record.failures.extend(judgement.faults)
        inside = frozenset(program_files.checked)
        if named and any(finding.span.path not in inside for finding in judgement.findings):
            shown = spans_on_paths_from(named, rule, program)
        else:
            shown = frozenset[Span]()
        for finding in judgement.findings:
            if finding.span.path in inside or finding.span in shown:
                yield finding
    # At the end, since suites are lowered as they are needed, by rules too.
    program.project.note_refused()
    _note(record, program_files, program.project, sources)


def _note(record: Record, files: Files, project: Project, sources: Sources) -> None:
    """Record what the engine did not analyze, and keep the sources of what it did."""
    from fsdplint.run_rules import internal

    at = sources.on_disk
    stops = (replace(stop, path=at(stop.path)) for stop in project.early_stops)
    record.partly.extend(sorted(stops))
    record.problems.update((at(path), problem) for path, problem in project.failures.items())
    record.failures.extend(Skipped(at(path), why) for path, why in sorted(project.unread.items()))
    record.failures.extend(
        SourceError(at(path), internal("the engine", error))
        for path, error in sorted(project.crashes.items())
    )
    related = {at(path) for path, unit in project.units.items() if unit and unit.lowered}
    related |= set(map(at, project.broken))
    for path in related:
        sources.hold(path)
    unrelated = (at(path) for path in files.checked if at(path) not in related)
    record.irrelevant.update(dict.fromkeys(unrelated, _UNRELATED))


def _accounts(
    files: Iterable[str], record: Record, errors: Sequence[SourceError], sources: Sources
) -> tuple[Account, ...]:
    """Return how the check of each of ``files`` ended."""
    accounts = {path: Account(path, State.CHECKED) for path in files}
    for path, reason in record.irrelevant.items():
        accounts[path] = Account(path, State.IRRELEVANT, reason)
    for path, problem in record.problems.items():
        source = sources.files[path]
        if path in accounts and source is not None:
            accounts[path] = Account(path, State.FAILED, _not_python(source, problem))
    for error in errors:
        if error.path in accounts:
            state = State.SKIPPED if isinstance(error, Skipped) else State.FAILED
            accounts[error.path] = Account(error.path, state, error.reason)
    return tuple(accounts[path] for path in sorted(accounts))


def _not_python(source: SourceFile, problem: InvalidSyntax) -> str:
    where = source.line_name(source.position(problem.offset)[0])
    return f"{where} is not valid Python: {problem.message}"


def _invalid_syntax(source: SourceFile, problem: InvalidSyntax) -> Finding:
    from fsdplint.rules.invalid_syntax import RULE

    span = Span(source.path, problem.offset, min(problem.offset + 1, len(source.text)))
    message = f"this file cannot be parsed and is not checked: {problem.message}"
    return Finding(RULE.name, RULE.code, RULE.severity, message, span, "parsing fails here")
