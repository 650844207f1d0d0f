"""What a run knows of the projects that files are in: releases of packages, and other files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.configs.readers import Readers
from fsdplint.files.discover import project_root
from fsdplint.files.file import SourceFile
from fsdplint.files.pins import pinned

if TYPE_CHECKING:
    from fsdplint.knowledge.accelerate_settings import Settings as Release

Releases = Callable[[Path], "tuple[Release, ...]"]


@dataclass(frozen=True, slots=True)
class Projects:
    """What a run knows of the projects that files are in.

    Attributes:
        accelerate: what the releases of accelerate do that a project admits.
        transformers: the same of transformers.
        axolotl: the same of axolotl.
        lightning: the same of Lightning.
        verl: the same of verl.
        readers: who reads a file.
    """

    accelerate: Releases
    transformers: Releases
    axolotl: Releases
    lightning: Releases
    verl: Releases
    readers: Readers


def projects_of(overlay: Mapping[str, SourceFile], *, alone: bool = False) -> Projects:
    """Return what is known of projects, which is looked up when it is needed.

    Args:
        overlay: by absolute path, what to read instead of a file on disk.
        alone: whether the files of the overlay are all there is.
    """

    return Projects(
        accelerate=cache(_releases),
        transformers=cache(_releases_of_transformers),
        axolotl=cache(_releases_of_axolotl),
        lightning=cache(_releases_of_lightning),
        verl=cache(_releases_of_verl),
        readers=Readers(overlay, alone=alone),
    )


def _releases(path: Path) -> tuple[Release, ...]:
    """Return what the releases of accelerate do that the project around ``path`` admits.

    Without requirements, and where they admit no release that is known, that is the newest.
    """
    from fsdplint.knowledge.accelerate_settings import settings

    found, every = pinned(project_root(path), "accelerate"), settings()
    if found is None:
        return every[-1:]
    return tuple(s for s in every if found.overlaps(*s.releases)) or every[-1:]


def _releases_of_transformers(path: Path) -> tuple[Release, ...]:
    """Return what the releases of transformers do that the project around ``path`` admits."""
    from fsdplint.knowledge.transformers_settings import admitted

    return admitted(pinned(project_root(path), "transformers"))


def _releases_of_axolotl(path: Path) -> tuple[Release, ...]:
    """Return what the releases of axolotl do that the project around ``path`` admits.

    In a checkout of axolotl itself, that is its own release.
    """
    from fsdplint.configs.axolotl import own_release
    from fsdplint.knowledge.axolotl_settings import PACKAGE, admitted

    root = project_root(path)
    return admitted(own_release(root) or pinned(root, PACKAGE))


def _releases_of_lightning(path: Path) -> tuple[Release, ...]:
    """Return what the releases of Lightning do that the project around ``path`` admits."""
    from fsdplint.knowledge.lightning_settings import admitted

    return admitted(partial(pinned, project_root(path)))


def _releases_of_verl(path: Path) -> tuple[Release, ...]:
    """Return what the releases of verl do that the project around ``path`` admits."""
    from fsdplint.knowledge.verl_settings import admitted

    return admitted(pinned(project_root(path), "verl"))
