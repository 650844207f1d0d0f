"""The kinds of files that are checked beside Python.

Each has its names of files, words of which one is in all its files, and a module here that reads
them; a rule's module has a function for the kinds that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fsdplint.configs.projects import Projects
from fsdplint.files.discover import CONFIG_SUFFIXES, is_script
from fsdplint.files.file import SourceFile
from fsdplint.files.lexing import LogicalLine, logical_lines
from fsdplint.knowledge.launch_words import WORDS

SECTION = "fsdp_config"


def lines_of_code(source: SourceFile) -> Iterable[LogicalLine]:
    """Return the logical lines of a file, by Python's rules, which hold for YAML's comments too."""
    return logical_lines(source.text)


def _unchanged(value: object, _: Projects) -> object:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of files.

    Attributes:
        name: what the functions of rules are called by.
        names: whether a file may be of this kind, by its path.
        words: one of them is in each of its files.
        read: returns what rules judge, None if the file is of another kind.
        judged: the class of that.
        lines: returns the logical lines of a file, which comments are for.
        tells_launch: whether it tells how code of the project is launched.
        alone: returns what rules judge without what other files of the project replace.
    """

    name: str
    names: Callable[[str], bool]
    words: tuple[str, ...]
    read: Callable[[SourceFile, Projects], object | None]
    judged: str
    lines: Callable[[SourceFile], Iterable[LogicalLine]] = lines_of_code
    tells_launch: bool = True
    alone: Callable[[object, Projects], object] = _unchanged

    def is_of(self, source: SourceFile) -> bool:
        """Return whether a file may be of this kind."""
        return self.names(source.path) and any(word in source.text for word in self.words)

    def admits(self, path: str, data: bytes) -> bool:
        """Return whether a file that is no text may be of this kind."""
        return self.names(path) and any(word.encode() in data for word in self.words)


def _read_accelerate(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import accelerate
    from fsdplint.configs.document import parse

    if not accelerate.looks_like(source.text):
        return None
    node = parse(source.text, source.path)
    return accelerate.read(source.path, source.text, node, projects.accelerate(Path(source.path)))


def _without_replaced(value: object, projects: Projects) -> object:
    from fsdplint.configs.accelerate import AccelerateConfig
    from fsdplint.configs.launched import without_replaced

    assert isinstance(value, AccelerateConfig)
    return without_replaced(value, projects.readers)


def _read_trainer(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import trainer
    from fsdplint.configs.document import parse

    if not trainer.looks_like(source.path, source.text):
        return None
    node = parse(source.text, source.path)
    releases = projects.transformers(Path(source.path))
    return trainer.read(source.path, source.text, node, releases, projects.readers)


def _read_axolotl(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import axolotl
    from fsdplint.configs.document import parse

    if not axolotl.looks_like(source.text):
        return None
    node = parse(source.text, source.path)
    return axolotl.read(source.path, source.text, node, projects.axolotl(Path(source.path)))


def _read_strategy(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import lightning
    from fsdplint.configs.document import parse

    if not lightning.looks_like(source.text):
        return None
    node = parse(source.text, source.path)
    releases = projects.lightning(Path(source.path))
    return lightning.read(source.path, source.text, node, releases, projects.readers)


def _read_launch(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import launch_lines

    releases = projects.accelerate(Path(source.path))
    return launch_lines.read(source.path, source.text, releases, projects.readers)


def _read_verl(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import verl_lines

    return verl_lines.read(source.path, source.text, projects.verl(Path(source.path)))


def _lines_of_shell(source: SourceFile) -> Iterable[LogicalLine]:
    from fsdplint.configs.launch_lines import shell_of

    return shell_of(source.path, source.text).lines


KINDS = (
    Kind(
        "config",
        lambda path: path.endswith(CONFIG_SUFFIXES),
        (SECTION, "distributed_type"),
        _read_accelerate,
        "fsdplint.configs.accelerate.AccelerateConfig",
        alone=_without_replaced,
    ),
    Kind(
        "launch",
        is_script,
        WORDS,
        _read_launch,
        "fsdplint.configs.launch_lines.LaunchScript",
        lines=_lines_of_shell,
    ),
    Kind(
        "trainer",
        lambda path: path.endswith(CONFIG_SUFFIXES),
        ("fsdp", "_to_wrap"),
        _read_trainer,
        "fsdplint.configs.trainer.TrainerSettings",
        tells_launch=False,
    ),
    Kind(
        "axolotl",
        lambda path: path.endswith((".yaml", ".yml")),
        ("base_model",),
        _read_axolotl,
        "fsdplint.configs.axolotl.AxolotlSettings",
        tells_launch=False,
    ),
    Kind(
        "strategy",
        lambda path: path.endswith((".yaml", ".yml")),
        ("FSDPStrategy", "ModelParallelStrategy", "fsdp"),
        _read_strategy,
        "fsdplint.configs.lightning.StrategySettings",
        tells_launch=False,
    ),
    Kind(
        "verl",
        is_script,
        ("actor_rollout_ref.",),
        _read_verl,
        "fsdplint.configs.verl_lines.VerlScript",
        lines=_lines_of_shell,
        tells_launch=False,
    ),
)
