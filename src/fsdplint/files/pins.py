"""The releases of PyTorch, or of another package, that a project's own requirements admit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.files.file import regular
from fsdplint.knowledge.torch_range import EARLIEST, TorchRange

_MAX_SIZE = 20_000_000  # bytes; lock files are long
_LOCKED = r'^name = "{}"\r?\nversion = "([^"]+)"'
_LISTED = r"""["']{}\s*([<>=~!][^"';]*)"""
_OF_POETRY = r"""^{}\s*=\s*(?:\{{.*?version\s*=\s*)?["']([^"']+)["']"""
_LINE = r"^{}\s*([<>=~!][^;#\s,]*(?:\s*,\s*[^;#\s,]+)*)"
_OF_CONDA = r"^\s*-\s*{}\s*([<>=~][^#\s]*)"
_IN_CONDA = {"torch": "(?:pytorch|torch)"}
_MARKERS = re.compile(r"^resolution-markers = \[(.*?)^\]", re.MULTILINE | re.DOTALL)
_MACOS = re.compile(r"""sys_platform\s*==\s*["']darwin["']|platform_system\s*==\s*["']Darwin["']""")
_CLAUSE = re.compile(r"(>=|<=|==|~=|>|<|=|\^|~)?\s*(\d+(?:\.\d+){0,2})(\.\*)?(?:\+\w+|\.post\d+)?")

# What says which releases are installed, before what admits several.
_FILES = (
    ("uv.lock", _LOCKED),
    ("poetry.lock", _LOCKED),
    ("pdm.lock", _LOCKED),
    ("pyproject.toml", _LISTED),
    ("pyproject.toml", _OF_POETRY),
    ("requirements.txt", _LINE),
    ("requirements/requirements.txt", _LINE),
    ("environment.yml", _OF_CONDA),
    ("environment.yaml", _OF_CONDA),
)


def pinned(directory: Path, package: str) -> TorchRange | None:
    """Return the releases that the nearest requirements admit, in ``directory`` or above it.

    The search ends at the root of the git repository. Where several requirements are listed, as for
    kinds of devices, what any of them admits counts. Those for macOS alone do not: on Intel's, 2.2
    is the last release, and no GPU there runs NCCL. A file that cannot be read says nothing, and so
    does a requirement without an oldest release: the newest that it admits is installed.
    """
    for folder in (directory, *directory.parents):
        for name, form in _FILES:
            named = _IN_CONDA.get(package, package) if form is _OF_CONDA else package
            pattern = re.compile(form.format(named), re.MULTILINE)
            found = list(_ranges(folder / name, pattern, form is _LOCKED))
            if found:
                lower, upper = min(r.lower for r in found), max(r.upper for r in found)
                return TorchRange(lower, upper, name)
        if disk.exists(folder / ".git"):
            return None
    return None


def _ranges(file: Path, pattern: re.Pattern[str], locked: bool) -> Iterator[TorchRange]:
    if not disk.is_file(file):
        return
    try:
        text = regular(file, _MAX_SIZE).decode()
    except (OSError, SourceError, UnicodeDecodeError):
        return
    for match in pattern.finditer(text):
        if _is_for_macos(text, match, locked):
            continue
        try:
            found = TorchRange.parse(",".join(_clauses(match[1])))
        except ValueError:
            continue
        if found.lower != EARLIEST:
            yield found


def _is_for_macos(text: str, requirement: re.Match[str], locked: bool) -> bool:
    """True if the environment markers of a requirement leave no system but macOS."""
    if locked:
        package = text[requirement.end() :].partition("[[package]]")[0]
        listed = _MARKERS.search(package)
        markers = [line for line in listed[1].splitlines() if line.strip()] if listed else []
    else:
        quote = text[requirement.start()]
        line = text[requirement.end() :].partition("\n")[0]
        marker = line.partition(quote)[0] if quote in "\"'" else line
        markers = [marker] if marker.lstrip().startswith(";") else []
    return bool(markers) and all(_MACOS.search(m) and " or " not in m for m in markers)


def _clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a requirement as PEP 440 has them; Poetry's and conda's are others.

    Raises:
        ValueError: a clause is unsupported, such as one of a nightly build.
    """
    for clause in map(str.strip, text.split(",")):
        if clause.startswith("!="):
            continue
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise ValueError(f"{clause!r} is no clause of a release")
        sign, version, star = match[1] or "==", match[2], match[3] or ""
        if sign == "^":
            yield f">={version}"
            yield f"<{int(version.partition('.')[0]) + 1}"
        elif sign == "~":
            yield f"~={version}" if "." in version else f"=={version}.*"
        elif sign == "=":
            yield f"=={version}" if version.count(".") == 2 else f"=={version}.*"
        else:
            yield f"{sign}{version}{star}"
