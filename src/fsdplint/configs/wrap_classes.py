"""The names of the classes that a transformer-based policy wraps, wherever they are given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.nodes import Node, Scalar, Sequence
from fsdplint.configs.trainer import TrainerSettings
from fsdplint.knowledge.accelerate_settings import CLASSES, POLICY, WRAPS_CLASSES
from fsdplint.knowledge.launch_options import plain
from fsdplint.knowledge.transformers_settings import ARGUMENT, AUTO_WRAP, WRAPS_WITHOUT_WORD
from fsdplint.knowledge.transformers_settings import CLASSES as CLASSES_OF_TRAINER
from fsdplint.knowledge.transformers_settings import POLICY as POLICY_OF_TRAINER


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a class to wrap, at its place in ``text``."""

    path: str
    text: str
    name: str
    start: int

    @property
    def end(self) -> int:
        """Where the name ends."""
        return self.start + len(self.name)


def in_config(config: AccelerateConfig) -> Iterator[Named]:
    """Yield the names in a config file for which accelerate searches the model."""
    policy, classes = config.get(POLICY), config.get(CLASSES)
    if config.shards and classes and policy and policy.word == WRAPS_CLASSES:
        yield from in_node(config.path, config.text, classes.entry.value)


def in_trainer(settings: TrainerSettings) -> Iterator[Named]:
    """Yield the names in training arguments, if they may have an effect."""
    classes, policy = settings.get(CLASSES_OF_TRAINER), settings.get(POLICY_OF_TRAINER)
    if classes is None or settings.shards is False or settings.is_for_xla:
        return
    if policy and policy.word != WRAPS_CLASSES:
        return
    words = settings.words
    with_word = words is not None and AUTO_WRAP in words
    if with_word or settings.all(lambda r, version: r.has_effect(WRAPS_WITHOUT_WORD, version)):
        yield from in_node(settings.path, settings.text, classes.entry.value)


def in_launch(script: LaunchScript) -> Iterator[Named]:
    """Yield the names in options of `accelerate launch` and of the scripts that are launched."""
    for launch in script.launches:
        option, policy = launch.get(CLASSES), launch.get(POLICY)
        if option and option.value and policy and policy.value == WRAPS_CLASSES:
            yield from _in_text(script.path, script.text, option.value_start, option.value_end)
        yield from _of_script(script, launch)


def _of_script(script: LaunchScript, launch: Launch) -> Iterator[Named]:
    """Yield the names in what a script is given, which may be the options of transformers."""
    words = [word for word in launch.command.words if word.start >= launch.end]
    given = {
        plain(word.literal): value
        for word, value in pairwise(words)
        if word.literal and word.literal.startswith("--") and value.literal
    }
    fsdp, classes = given.get(ARGUMENT), given.get(CLASSES)
    if fsdp and classes and AUTO_WRAP in (fsdp.literal or "").split():
        yield from _in_text(script.path, script.text, classes.start, classes.end)


def in_node(path: str, text: str, node: Node) -> Iterator[Named]:
    """Yield the names in a text, in which commas separate them, or in a list."""
    for each in node.items if isinstance(node, Sequence) else (node,):
        if isinstance(each, Scalar) and isinstance(each.value, str):
            yield from _in_text(path, text, each.start, each.end)


def _in_text(path: str, text: str, start: int, end: int) -> Iterator[Named]:
    """Yield what commas separate in a text that may be in quotes."""
    for part in text[start:end].split(","):
        name = part.strip(" \t\"'")
        if name.isidentifier():
            yield Named(path, text, name, start + part.index(name))
        start += len(part) + 1
