"""The files of a new project, from the templates.

A template is a file of the project in which some lines belong to some projects only: those between
`#: if FEATURE`, or `#: if not FEATURE`, and `#: end`, with `#: else` between them where needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fsdplint import __version__

_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Names that pyproject.toml may give to a project."""
_REQUIRED = frozenset(
    {"accelerate", "fsdplint", "mypy", "numpy", "pre-commit", "pytest", "ruff", "torch"}
)
"""What new projects require, so that none of them can have the name."""
_NOT_WITH_ACCELERATE = {
    "tp": "accelerate 1.15 fails to prepare a model whose layers PyTorch splits, and itself splits "
    "only models of transformers",
    "meta": "accelerate 1.15 tells parameters apart by their address, and those on the meta device "
    "have none, so that the optimizer would train only one of them",
}
"""Features that accelerate does not have, and why."""


@dataclass(frozen=True, slots=True)
class Features:
    """What a new project has."""

    tp: bool = False
    hsdp: bool = False
    meta: bool = False
    dcp: bool = False
    accelerate: bool = False


class UnsupportedError(Exception):
    """A name that no project can have, or features that exclude each other."""


def render(name: str, features: Features) -> dict[str, str]:
    """Return the texts of the files of a project called ``name``, by their paths in it.

    Raises:
        UnsupportedError: the name is no name of a project, or the features exclude each other.
    """
    _expect_name(name)
    for feature, reason in _NOT_WITH_ACCELERATE.items():
        if features.accelerate and getattr(features, feature):
            raise UnsupportedError(
                f"--accelerate cannot be combined with --{feature}: {reason}; "
                f"use --{feature} without --accelerate"
            )
    known = _conditions(features)
    files = {}
    for folder in (_TEMPLATES / "both", _TEMPLATES / _launcher(features)):
        for template in folder.rglob(f"*{_SUFFIX}"):
            text = _chosen(template.read_text("utf-8"), known)
            text = text.replace("{{name}}", name).replace("{{version}}", __version__)
            files[template.relative_to(folder).as_posix().removesuffix(_SUFFIX)] = text
    return files


def _expect_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UnsupportedError(
            f"{name!r} is not a valid name of a project: use letters, digits, '.', '_' and '-', "
            "with a letter or digit at both ends"
        )
    if re.sub(r"[._-]+", "-", name.lower()) in _REQUIRED:
        raise UnsupportedError(f"{name!r} is the name of a package that the project requires")


def _launcher(features: Features) -> str:
    return "accelerate" if features.accelerate else "torchrun"


def _conditions(features: Features) -> Mapping[str, bool]:
    """Return what a template can ask for, besides its negation."""
    return {
        **asdict(features),
        "torchrun": not features.accelerate,
        "grid": features.tp or features.hsdp,
    }


def _chosen(template: str, known: Mapping[str, bool]) -> str:
    """Return the lines of ``template`` whose conditions hold."""
    lines: list[str] = []
    conditions: list[bool] = []
    for line in template.splitlines(keepends=True):
        match line.split():
            case ["#:", "if", "not", feature]:
                conditions.append(not known[feature])
            case ["#:", "if", feature]:
                conditions.append(known[feature])
            case ["#:", "else"]:
                conditions.append(not conditions.pop())
            case ["#:", "end"]:
                conditions.pop()
            case _ if all(conditions):
                lines.append(line)
    return "".join(lines)
