"""The files of a new project, from the templates.

A template is a file of the project in which some lines belong to some projects only: those between
`#: if FEATURE`, or `#: if not FEATURE`, and `#: end`, with `#: else` between them where needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsdplint import __version__
from fsdplint.urls import REPOSITORY

_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"


@dataclass(frozen=True, slots=True)
class Features:
    """What a new project has."""

    tp: bool = False
    hsdp: bool = False
    meta: bool = False
    dcp: bool = False
    accelerate: bool = False


def render(name: str, features: Features) -> dict[str, str]:
    """Return the texts of the files of a project called ``name``, by their paths in it."""
    words = {"{{name}}": name, "{{version}}": __version__, "{{repository}}": REPOSITORY}
    known = _conditions(features)
    files = {}
    for folder in (_TEMPLATES / "both", _TEMPLATES / _launcher(features)):
        for template in sorted(path for path in folder.rglob(f"*{_SUFFIX}")):
            text = _chosen(template.read_text("utf-8"), known)
            for word, value in words.items():
                text = text.replace(word, value)
            files[template.relative_to(folder).as_posix().removesuffix(_SUFFIX)] = text
    return files


def _launcher(features: Features) -> str:
    return "accelerate" if features.accelerate else "torchrun"


def _conditions(features: Features) -> Mapping[str, bool]:
    """Return what a template can ask for, besides its negation."""
    return {
        "tp": features.tp,
        "hsdp": features.hsdp,
        "meta": features.meta,
        "dcp": features.dcp,
        "accelerate": features.accelerate,
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
