"""`fsdp` and `fsdp_config` of transformers' training arguments, in a file or in a call."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as Mapping_
from dataclasses import dataclass, field

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.accelerate import looks_like as is_for_accelerate
from fsdplint.configs.nodes import UNKNOWN, Entry, Mapping, Node, Scalar, Sequence
from fsdplint.configs.readers import Readers
from fsdplint.finding import Span
from fsdplint.knowledge.accelerate_settings import Settings
from fsdplint.knowledge.transformers_settings import (
    ARGUMENT,
    CLASSES,
    OTHER_NAMES,
    REFUSES_IN_LIST,
    SIZE,
    VERSION,
    XLA,
    accepts,
    default_version,
    strips_prefix,
)

SECTION = "fsdp_config"
PREFIX = "fsdp_"
_ARGUMENTS = frozenset(
    {
        "gradient_accumulation_steps",
        "learning_rate",
        "logging_steps",
        "lr_scheduler_type",
        "num_train_epochs",
        "output_dir",
        "per_device_train_batch_size",
        "save_strategy",
    }
)
_LINE = re.compile(r"^(\w+)[ \t]*:", re.MULTILINE)
_IN_JSON = re.compile(rf'"(?:fsdp_\w+|{CLASSES}|{SIZE})[ \t]*"[ \t]*:')
_LEAST = 3
"""So many other training arguments show that a file is one of them."""
# It hands both arguments on as they are, source: LLaMA-Factory 0.9, `hparams/parser.py`.
_OF_LLAMA_FACTORY = frozenset({"stage", "finetuning_type"})
_OF_AXOLOTL = "base_model"


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """Training arguments that have settings of FSDP.

    Attributes:
        fsdp: the argument of this name.
        is_whole: whether there is no `fsdp` if it is None.
        section: `fsdp_config`, None where a file of its own holds the settings.
        settings: what counts in it, named without `fsdp_`.
        releases: what the releases of transformers that the project admits do with settings.
        given: all arguments, by name, that are certainly given.
    """

    path: str
    text: str
    fsdp: Entry | None
    is_whole: bool
    section: Entry | None
    mapping: Mapping
    settings: tuple[Setting, ...]
    releases: tuple[Settings, ...]
    given: Mapping_[str, Entry] = field(default_factory=dict)

    @property
    def shards(self) -> bool | None:
        """Whether `fsdp` turns FSDP on, None if that is unknown."""
        if self.fsdp is None:
            return False if self.is_whole else None
        value = self.fsdp.value
        if isinstance(value, Sequence):
            return bool(value.items)
        if isinstance(value, Mapping) or value.value is UNKNOWN:
            return None
        return bool(value.value)

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words of `fsdp`, None if they are unknown."""
        value = self.fsdp.value if self.fsdp else None
        items = value.items if isinstance(value, Sequence) else (value,)
        if isinstance(value, Scalar) and value.value is True:
            return ()
        texts = [item.value for item in items if isinstance(item, Scalar)]
        found = [text for text in texts if isinstance(text, str)]
        if len(found) < len(items):
            return None
        return tuple(found if isinstance(value, Sequence) else found[0].split())

    @property
    def versions(self) -> tuple[tuple[Settings, int], ...]:
        """The releases, each with the version of FSDP; none if it is unknown."""
        found = self.get(VERSION)
        if found is None and self.mapping.merged:
            return ()
        if found is None:
            return tuple((release, default_version(release)) for release in self.releases)
        version = {"1": 1, "2": 2}.get(found.word)
        return tuple((release, version) for release in self.releases) if version else ()

    @property
    def is_for_xla(self) -> bool:
        """Whether PyTorch/XLA shards, or may."""
        found = (self.get(name) for name in XLA)
        return any(setting is not None and not setting.is_false for setting in found)

    @property
    def transformers(self) -> str:
        """The releases that are looked at, as users name them."""
        first, last = (".".join(map(str, self.releases[i].release)) for i in (0, -1))
        return f"transformers {last}" if first == last else f"transformers {first} to {last}"

    @property
    def is_python(self) -> bool:
        """Whether the settings are in a call."""
        return self.path.endswith((".py", ".pyi", ".ipynb"))

    def get(self, name: str) -> Setting | None:
        """Return the setting of a name that counts."""
        return next((each for each in self.settings if each.name == name), None)

    def turns_on(self, name: str) -> Entry | None:
        """Return the argument of a name if it is certainly true."""
        entry = self.given.get(name)
        is_true = entry and isinstance(entry.value, Scalar) and entry.value.value is True
        return entry if is_true else None

    def span(self, node: Node | Entry) -> Span:
        """Return the place of a node or an entry."""
        return Span(self.path, node.start, node.end)

    def shown(self, entry: Entry) -> str:
        """Return an entry as it is written, on one line."""
        return " ".join(self.text[entry.start : entry.end].split())

    def all(self, holds: Callable[[Settings, int], bool]) -> bool:
        """Return whether something holds in every release, with the version that is used there."""
        return bool(self.versions) and all(holds(*each) for each in self.versions)

    def refuses(self, words: tuple[str, ...]) -> bool:
        """Return whether every release refuses these words as `fsdp`."""
        in_list = self.fsdp is not None and isinstance(self.fsdp.value, Sequence)
        if in_list and not all(each.has_effect(REFUSES_IN_LIST, 1) for each in self.releases):
            return False
        if self.versions:
            return self.all(lambda release, version: not accepts(release, words, version))
        return not any(accepts(r, words, version) for r in self.releases for version in (1, 2))


NOTHING = Mapping(0, 0, (), False, False)
UNKNOWN_MAPPING = Mapping(0, 0, (), False, True)


def settings_of(
    path: str,
    text: str,
    releases: tuple[Settings, ...],
    *,
    fsdp: Entry | None,
    section: Entry | None,
    is_whole: bool,
    given: Mapping_[str, Entry],
) -> TrainerSettings:
    """Return the settings that two arguments hold; of equal names the last counts."""
    mapping = UNKNOWN_MAPPING if section or not is_whole else NOTHING
    if section is not None and isinstance(section.value, Mapping):
        mapping = section.value
    elif section is not None and isinstance(section.value, Scalar) and section.value.value is None:
        mapping = NOTHING
    settings = _settings(mapping, releases)
    return TrainerSettings(path, text, fsdp, is_whole, section, mapping, settings, releases, given)


def _settings(mapping: Mapping, releases: tuple[Settings, ...] = ()) -> tuple[Setting, ...]:
    """Return the settings whose names mean the same in all releases.

    Args:
        releases: none for a JSON file, where each takes the prefix away.
    """
    stripping = {strips_prefix(release) for release in releases} or {True}
    every = []
    for entry in mapping.entries:
        name = entry.name.removeprefix(PREFIX) if True in stripping else entry.name
        if name and (len(stripping) == 1 or name == entry.name):
            every.append(Setting(name, entry))
    return tuple({each.name: each for each in every}.values())


def looks_like(path: str, text: str) -> bool:
    """Return whether a text that need not parse seems to hold settings of FSDP for transformers."""
    if path.endswith(".json"):
        return _IN_JSON.search(text) is not None
    named = {found[1] for found in _LINE.finditer(text)}
    of_fsdp = not named.isdisjoint((ARGUMENT, SECTION))
    return of_fsdp and len(named & _ARGUMENTS) >= _LEAST and not is_for_accelerate(text)


def read(
    path: str,
    text: str,
    root: Node | None,
    releases: tuple[Settings, ...],
    readers: Readers,
) -> TrainerSettings | None:
    """Return the settings of a file, None if it holds none for transformers."""
    if not isinstance(root, Mapping) or not releases:
        return None
    if _is_config(path, root, releases[-1]):
        if not readers.names_config(path):
            return None
        settings = _settings(root)
        return TrainerSettings(path, text, None, False, None, root, settings, releases)
    names = {entry.name for entry in root.entries if isinstance(entry.value, Scalar)}
    if _OF_AXOLOTL in names or len(names & _ARGUMENTS) < _LEAST:
        return None
    section, fsdp = root.get(SECTION), root.get(ARGUMENT)
    if section is None and fsdp is None:
        return None
    if not (names >= _OF_LLAMA_FACTORY or readers.parses_arguments(path)):
        return None
    given = {entry.name: entry for entry in root.entries}
    found = settings_of(
        path, text, releases, fsdp=fsdp, section=section, is_whole=not root.merged, given=given
    )
    nested = isinstance(fsdp.value, Mapping) if fsdp else False
    unknown = bool(found.mapping.entries) and not _has_known(found.mapping, releases[-1])
    return None if nested or unknown else found


def _is_config(path: str, root: Mapping, release: Settings) -> bool:
    """Return whether a JSON file may be an `fsdp_config` of its own."""
    flat = all(e.name and not isinstance(e.value, Mapping) for e in root.entries)
    return path.endswith(".json") and flat and _has_known(root, release)


def _has_known(mapping: Mapping, release: Settings) -> bool:
    names = [entry.name.removeprefix(PREFIX) for entry in mapping.entries]
    return any(release.is_known(name) or name in OTHER_NAMES for name in names)
