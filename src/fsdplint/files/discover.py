"""Find the files of a run: the given paths without those that git or the settings exclude."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.files import disk
from fsdplint.files.decoding import Skipped, SourceError
from fsdplint.files.file import absolute, kind, regular
from fsdplint.suggest import suggest

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SUFFIXES = (".py", ".pyi", ".ipynb")
_MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
SCRIPT_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".job", ".pbs")
CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_IGNORES = 1_000_000  # bytes of a .gitignore; a larger one leaves nothing out
_ROOT_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "fsdplint.toml")
SKIPPED_DIRECTORIES = frozenset(
    {
        ".bzr",
        ".direnv",
        ".eggs",
        ".git",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pants.d",
        ".pytest_cache",
        ".pytype",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "__pypackages__",
        "build",
        "dist",
        "node_modules",
        "venv",
    }
)


@dataclass(frozen=True, slots=True)
class Patterns:
    """Gitignore lines that hold for what is below ``base``."""

    base: str
    lines: tuple[str, ...]
    spec: GitIgnoreSpec

    @classmethod
    def of(cls, base: str, lines: Iterable[str]) -> Patterns:
        """Compile ``lines``.

        Raises:
            ValueError: a line is no pattern.
        """
        from pathspec import GitIgnoreSpec

        lines = tuple(lines)
        spec = GitIgnoreSpec.from_lines(lines)
        for pattern in spec.patterns:
            if pattern.regex is not None:
                pattern.regex = re.compile(_without_backtracking(pattern.regex.pattern))
        return cls(base, lines, spec)

    def decide(self, path: str, directory: bool) -> bool | None:
        """Return whether the last matching pattern excludes ``path``, None without a match."""
        relative = os.path.relpath(path, self.base).replace(os.sep, "/")
        if relative.startswith("../"):
            return None
        return self.spec.check_file(relative + "/" if directory else relative).include


_STARS = re.compile(r"(?:\[\^/\]\*){2,}")
# A star, and what is between it and the next one in the same part of the path.
_STAR = re.compile(r"\[\^/\]\*((?:[^/()\[\\]|\\.|\[(?:\\.|[^\]\\])+\](?!\*))+)(?=\[\^/\]\*)")


def _without_backtracking(regex: str) -> str:
    """Return pathspec's ``regex`` with stars that never take back what they matched.

    One line of a .gitignore with a dozen stars would otherwise take longer than anybody waits. If
    what follows a star is found, finding it further right cannot help: the next star would match
    the difference. So each but the last of a name takes the first place. A group that a lookahead
    matches and that is then repeated is atomic; Python 3.10 has no other way to say so.
    """
    numbers = count()

    def first_place(star: re.Match[str]) -> str:
        name = f"star{next(numbers)}"
        return f"(?=(?P<{name}>[^/]*?{star[1]}))(?P={name})"

    # What is not in brackets may be no slash either, for git and for the argument above.
    inside = re.sub(r"\[\^(?=[^\]/])", "[^/", regex)
    return _STAR.sub(first_place, _STARS.sub("[^/]*", inside))


@dataclass(frozen=True, slots=True)
class Discovery:
    """The files that a search found.

    Attributes:
        files: in order of their path, each once.
        failures: paths that could not be read.
        skipped: paths with the name of a source file that are not files.
        configs: files that may hold settings of other tools or launch training, by their names.
    """

    files: tuple[Path, ...]
    failures: tuple[SourceError, ...]
    skipped: tuple[Skipped, ...] = ()
    configs: tuple[str, ...] = ()


def discover(paths: Sequence[Path], exclude: Sequence[Patterns] = ()) -> Discovery:
    """Return the Python files, notebooks and possible configs at and below ``paths``.

    A path that is given itself is taken whatever excludes it. A directory reached through a
    symbolic link is entered once, and a file that has several names is taken under its own.
    """
    walk = _Walk(tuple(exclude))
    for path in paths:
        if disk.is_folder(path):
            walk.enter(os.fspath(path))
        elif disk.exists(path):
            walk.add(os.fspath(path), disk.real(path))
        else:
            disk.unrepeatable()  # it is one of any names that is suggested
            walk.failures.append(
                SourceError(os.fspath(path), f"no such file or folder{_nearest(path)}")
            )
    walk.follow_links()
    every = sorted(walk.files.values(), key=lambda path: path.replace(os.sep, "/"))
    configs = tuple(path for path in every if is_config(path))
    files = tuple(Path(path) for path in every if not is_config(path))
    return Discovery(files, tuple(walk.failures), tuple(walk.skipped), configs)


def searched(
    paths: Sequence[str], exclude: Sequence[Patterns], folder: str = ""
) -> tuple[str, ...]:
    """Return those of ``paths`` that a search of ``folder``, or the current one, does not exclude.

    What git ignores is taken: a file that a hook passes is one that git tracks all the same.
    """
    start = absolute(folder)
    return tuple(path for path in paths if not _left_out(start, path, exclude))


def _left_out(start: str, given: str, exclude: Sequence[Patterns]) -> bool:
    path = Path(os.path.relpath(given, start))
    # The folders too, since a search enters no excluded one, whatever is taken in again below it.
    steps = [(path, disk.is_folder(given)), *((folder, True) for folder in path.parents)]
    inside = [(step, directory) for step, directory in steps if step.name not in ("", "..")]
    return any(
        (directory and step.name in SKIPPED_DIRECTORIES)
        or any(patterns.decide(absolute(start / step), directory) for patterns in exclude)
        for step, directory in inside
    )


def is_config(path: str) -> bool:
    """Return whether a file may be a config file or have shell commands, by its name."""
    return path.endswith(CONFIG_SUFFIXES) or is_script(path)


def is_script(path: str) -> bool:
    """Return whether a file may have shell commands, by its name."""
    is_one = path.endswith(SCRIPT_SUFFIXES)
    return is_one or is_makefile(path) or is_dockerfile(path) or is_workflow(path)


def is_makefile(path: str) -> bool:
    """Return whether a file is one of make, by its name."""
    return path.endswith(".mk") or _name(path) in _MAKEFILES


def is_dockerfile(path: str) -> bool:
    """Return whether a file builds a container, by its name."""
    return _name(path).startswith("Dockerfile") or path.endswith(".Dockerfile")


def is_workflow(path: str) -> bool:
    """Return whether a file is a workflow of GitHub, by its name."""
    folder = path[: -len(_name(path)) - 1].replace("\\", "/")
    return path.endswith((".yml", ".yaml")) and folder.endswith(".github/workflows")


def _name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def project_root(path: Path) -> Path:
    """Return the nearest directory at or above ``path`` that a project starts in, else its own."""
    # Not resolve(), which would leave a project that is linked to.
    start = Path(os.path.abspath(path if disk.is_folder(path) else path.parent))  # noqa: PTH100
    for directory in (start, *start.parents):
        if is_project(directory):
            return directory
    return start


def is_project(directory: Path) -> bool:
    """Return whether a project starts in ``directory``, by the files that only projects have."""
    return any(disk.exists(directory / marker) for marker in _ROOT_MARKERS)


def repository(directory: Path) -> Path:
    """Return the root of the git repository that ``directory`` is in, else ``directory``."""
    inside = (p for p in (directory, *directory.parents) if disk.exists(p / ".git"))
    return next(inside, directory)


def _nearest(path: Path) -> str:
    try:
        return suggest(path.name, (entry.name for entry in disk.entries(os.fspath(path.parent))))
    except OSError:
        return ""


class _Walk:
    """A search of folders: the files found so far, by their path without links, and what to do.

    Attributes:
        links: symbolic links to follow last, each with the patterns that hold where it is.
        entered: the folders that were searched, by their path without links.
    """

    def __init__(self, exclude: tuple[Patterns, ...]) -> None:
        self.exclude = exclude
        self.files: dict[str, str] = {}
        self.failures: list[SourceError] = []
        self.skipped: list[Skipped] = []
        self.links: list[tuple[str, tuple[Patterns, ...]]] = []
        self.entered: set[str] = set()

    def add(self, path: str, real: str) -> None:
        self.files.setdefault(real, path)

    def skip(self, path: str, special: str) -> None:
        self.skipped.append(Skipped(absolute(path), f"{special}, not a regular file"))

    def enter(self, root: str) -> None:
        self.directory(root, _ignores_above(root))

    def follow_links(self) -> None:
        # Last, so that what a link leads to is known by its own name where it has one.
        while self.links:
            path, ignores = self.links.pop(0)
            special = _special(path)
            if disk.is_folder(path):
                self.directory(path, ignores)
            elif special:
                self.skip(path, special)
            else:
                self.add(path, disk.real(path))

    def directory(self, path: str, ignores: tuple[Patterns, ...]) -> None:
        pending = [(path, disk.real(path), ignores)]
        while pending:
            path, real, ignores = pending.pop()
            if real in self.entered:
                continue
            self.entered.add(real)
            ignores = (*ignores, *_ignores_in(path))
            children = self.children(path, real, ignores)
            pending.extend((child, below, ignores) for child, below in children)

    def children(
        self, path: str, real: str, ignores: tuple[Patterns, ...]
    ) -> Iterator[tuple[str, str]]:
        """Take the files of the directory at ``path`` and give its directories.

        Each with its path without links, which is below the ``real`` one.
        """
        for entry in self.entries(path):
            link, directory = entry.is_symlink(), _is_directory(entry)
            wanted = entry.name not in SKIPPED_DIRECTORIES if directory else _is_source(entry)
            if not wanted or self.left_out(entry.path, directory, ignores):
                continue
            if directory and disk.exists(f"{entry.path}{os.sep}pyvenv.cfg"):
                continue
            below = f"{real.rstrip(os.sep)}{os.sep}{entry.name}"
            if link:
                self.links.append((entry.path, ignores))
            elif directory:
                yield entry.path, below
            elif entry.is_file():
                self.add(entry.path, below)
            else:
                self.skip(entry.path, _special(entry.path))

    def entries(self, path: str) -> list[os.DirEntry[str]]:
        try:
            return disk.entries(path)
        except OSError as error:
            self.failures.append(SourceError(path, error.strerror or str(error)))
            return []

    def left_out(self, path: str, directory: bool, ignores: tuple[Patterns, ...]) -> bool:
        excluded = any(patterns.decide(path, directory) for patterns in self.exclude)
        return excluded or _ignored(path, directory, ignores)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads to itself


def _is_source(entry: os.DirEntry[str]) -> bool:
    """Return whether the name is that of a source file, and not of an editor's lock."""
    name = entry.name
    return (name.endswith(SUFFIXES) or is_config(name)) and not name.startswith(".#")


def _special(path: str) -> str:
    """Return what is at ``path`` if it is no regular file; a broken link fails on reading."""
    found = disk.kind(path)
    return kind(found) if found else ""


def _ignored(path: str, directory: bool, ignores: tuple[Patterns, ...]) -> bool:
    for patterns in reversed(ignores):
        decision = patterns.decide(path, directory)
        if decision is not None:
            return decision
    return False


def _ignores_above(root: str) -> tuple[Patterns, ...]:
    """Return the patterns of the repository around ``root``; none if they ignore ``root``."""
    start = Path(os.path.abspath(root))  # noqa: PTH100 - git does not follow links either
    if disk.exists(start / ".git"):
        return _repository_excludes(start)
    ignores: list[Patterns] = []
    for directory in start.parents:
        ignores[:0] = _ignores_in(os.fspath(directory))
        if disk.exists(directory / ".git"):
            found = (*_repository_excludes(directory), *ignores)
            return () if _ignored(os.fspath(start), True, found) else found
    return ()


def _repository_excludes(directory: Path) -> tuple[Patterns, ...]:
    return tuple(_read_patterns(directory / ".git" / "info" / "exclude", directory))


def _ignores_in(directory: str) -> Iterator[Patterns]:
    return _read_patterns(Path(directory, ".gitignore"), Path(directory))


def _read_patterns(file: Path, base: Path) -> Iterator[Patterns]:
    try:
        if not disk.is_file(file):
            return
        lines = regular(file, _MAX_IGNORES).decode("utf-8", "replace").splitlines()
    except (OSError, SourceError):
        return
    yield Patterns.of(os.fspath(base), _valid(lines))


def _valid(lines: Iterable[str]) -> Iterator[str]:
    from pathspec import GitIgnoreSpec

    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue  # git warns of nothing here either
        yield line
