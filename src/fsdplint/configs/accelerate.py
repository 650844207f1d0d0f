"""Config files of accelerate: what `accelerate launch --config_file` reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.configs.document import parse
from fsdplint.configs.nodes import UNKNOWN, Entry, Mapping, Node, Scalar
from fsdplint.finding import Span
from fsdplint.knowledge.accelerate_settings import RAM_EFFICIENT, SYNC, Settings

_SECTION = "fsdp_config"
TYPE = "distributed_type"
_PREFIX = "fsdp_"
# What `str_to_bool` of accelerate reads as well, source: accelerate 1.15, `utils/environment.py`.
_TRUE = frozenset({"Y", "YES", "T", "TRUE", "ON", "1"})
_SAME = _TRUE | {"N", "NO", "F", "OFF"}
_LOOKS_SO = re.compile(
    rf"(?:^|[{{,])[ \t]*[\"']?(?:{TYPE}|compute_environment)[\"']?[ \t]*:", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class OtherConfig:
    """A config file without settings of FSDP, by which the same code may be launched."""

    path: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of FSDP.

    Attributes:
        name: as accelerate's command line has it, with `fsdp_` in front.
    """

    name: str
    entry: Entry

    @property
    def value(self) -> object:
        """The value as YAML reads it, `UNKNOWN` if it is no scalar."""
        value = self.entry.value
        return value.value if isinstance(value, Scalar) else UNKNOWN

    @property
    def word(self) -> str:
        """The value as accelerate compares it, in capitals; "" if it is unknown, NULL for none."""
        if self.value is UNKNOWN:
            return ""
        return "NULL" if self.value is None else str(self.value).upper()

    @property
    def is_on(self) -> bool:
        """Whether the plugin takes the value for true."""
        return self.word in _TRUE

    @property
    def is_false(self) -> bool:
        """Whether Python takes the value for false, as `accelerate launch` does."""
        return self.value is not UNKNOWN and not self.value


@dataclass(frozen=True, slots=True)
class AccelerateConfig:
    """A config file that has settings of FSDP.

    Attributes:
        root: the whole file.
        section: `fsdp_config`.
        settings: what counts in it: of equal names the last.
        overridden: settings that a later one of the same name replaces, with that one.
        releases: what the releases of accelerate that the project admits do with settings.
    """

    path: str
    text: str
    root: Mapping
    section: Entry
    mapping: Mapping
    settings: tuple[Setting, ...]
    overridden: tuple[tuple[Setting, Setting], ...]
    releases: tuple[Settings, ...]

    @property
    def version(self) -> int | None:
        """The version of FSDP, None if it is unknown: 1 where none is given."""
        found = self.get("fsdp_version")
        if found is None:
            return None if self.mapping.merged else 1
        return {"1": 1, "2": 2}.get(found.word)

    @property
    def shards(self) -> bool | None:
        """Whether the file itself makes accelerate shard, None if that is unknown."""
        entry = self.root.get(TYPE)
        if entry is None or not isinstance(entry.value, Scalar) or entry.value.value is UNKNOWN:
            return None
        return str(entry.value.value).upper() == "FSDP"

    def get(self, name: str) -> Setting | None:
        """Return the setting of a name that counts."""
        return next((each for each in self.settings if each.name == name), None)

    def span(self, node: Node | Entry) -> Span:
        """Return the place of a node or an entry."""
        return Span(self.path, node.start, node.end)

    @property
    def accelerate(self) -> str:
        """The releases that are looked at, as users name them."""
        first, last = (".".join(map(str, self.releases[i].release)) for i in (0, -1))
        return f"accelerate {last}" if first == last else f"accelerate {first} to {last}"

    def shown(self, setting: Setting) -> str:
        """Return a setting as it is written, on one line."""
        return " ".join(self.text[setting.entry.start : setting.entry.end].split())

    def refuses(self, setting: Setting, version: int) -> bool:
        """Return whether every release refuses the value of a setting."""
        if not setting.word:
            return False
        # What is false the launcher refuses for another reason, and takes as a text.
        if setting.name == SYNC:
            loading = self.get(RAM_EFFICIENT)
            off = loading is not None and loading.is_false
            if setting.word in ("FALSE", "0") or (setting.is_false and not off):
                return False
        takes = [release.takes(setting.name, version) for release in self.releases]
        return all(words and not _takes(words, setting.word) for words in takes)

    def words(self, name: str, version: int) -> tuple[str, ...]:
        """Return the words that the newest release takes for a setting, in order."""
        return tuple(sorted(self.releases[-1].takes(name, version)))

    def have_effect(self, name: str, version: int) -> bool | None:
        """Return whether a setting has an effect, None if releases differ."""
        found = {release.has_effect(name, version) for release in self.releases}
        return found.pop() if len(found) == 1 else None


def looks_like(text: str) -> bool:
    """Return whether a text that need not parse seems to be a config file."""
    return _LOOKS_SO.search(text) is not None


def read(
    path: str, text: str, root: Node | None, releases: tuple[Settings, ...]
) -> AccelerateConfig | OtherConfig | None:
    """Return the config file that a document is, None if it is none."""
    if not isinstance(root, Mapping) or not looks_like(text):
        return None
    section = root.get(_SECTION)
    if section is None or not isinstance(section.value, Mapping) or not section.value.entries:
        return OtherConfig(path) if root.get(TYPE) else None
    every = [Setting(_full(entry.name), entry) for entry in section.value.entries if entry.name]
    last = {each.name: each for each in every}
    gone = tuple(_replaced(every, last))
    settings = tuple(last.values())
    return AccelerateConfig(path, text, root, section, section.value, settings, gone, releases)


def section_of(text: str, path: str) -> Mapping:
    """Return the settings of FSDP in the text of a config file that has some."""
    root = parse(text, path)
    assert isinstance(root, Mapping)
    section = root.get(_SECTION)
    assert section is not None and isinstance(section.value, Mapping)
    return section.value


def _full(name: str) -> str:
    """Return the name as accelerate completes it (`commands/launch.py`, accelerate 1.15)."""
    return name if name.startswith("fsdp") else _PREFIX + name


def _replaced(every: list[Setting], last: dict[str, Setting]) -> Iterator[tuple[Setting, Setting]]:
    for each in every:
        if last[each.name] is not each:
            yield each, last[each.name]


def _takes(words: frozenset[str], word: str) -> bool:
    """Return whether a value is one of ``words``; what takes a 6 takes any number."""
    number = word.isdigit() and "6" in words
    return word in words or number or (word in _SAME and "YES" in words)
