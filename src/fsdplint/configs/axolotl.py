"""Settings of FSDP in a file for axolotl."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.nodes import UNKNOWN, Entry, Mapping, Node, Scalar, Sequence
from fsdplint.files.decoding import SourceError
from fsdplint.files.file import regular
from fsdplint.finding import Span
from fsdplint.knowledge.accelerate_settings import VERSION, Settings
from fsdplint.knowledge.axolotl_settings import (
    DEFAULT,
    MODEL,
    PACKAGE,
    REQUIRED,
    RL,
    RL_AS_OTHERS,
    SECTION,
    SECTION_SHARDS,
    VERSION_COUNTS,
)
from fsdplint.knowledge.torch_range import TorchRange
from fsdplint.knowledge.transformers_settings import ARGUMENT

PREFIX = "fsdp_"
_MOST_BYTES = 100_000
_RELEASE = re.compile(rb"^(?:__version__ = [\"'])?(\d+\.\d+)", re.MULTILINE)
_LINE = re.compile(r"^(\w+)[ \t]*:", re.MULTILINE)
_LEAST = 3
"""So many keys that only axolotl has show that a file is for it."""


@dataclass(frozen=True, slots=True)
class AxolotlSettings:
    """A file for axolotl that has settings of FSDP.

    Attributes:
        root: the whole file.
        section: `fsdp_config`, None if the file has none.
        settings: what counts in it, named without `fsdp_`.
        releases: what the releases of axolotl that the project admits do with settings.
    """

    path: str
    text: str
    root: Mapping
    section: Entry | None
    mapping: Mapping
    settings: tuple[Setting, ...]
    releases: tuple[Settings, ...]

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words of `fsdp`, none if it is not given, None if they are unknown."""
        entry = self.root.get(ARGUMENT)
        if entry is None:
            return None if self.root.merged else ()
        if isinstance(entry.value, Scalar) and entry.value.value is None:
            return ()
        items = entry.value.items if isinstance(entry.value, Sequence) else ()
        found = [each.value for each in items if isinstance(each, Scalar)]
        texts = tuple(each for each in found if isinstance(each, str))
        return texts if texts and len(texts) == len(items) else None

    @property
    def shards(self) -> bool:
        """Whether the file turns FSDP on in every release."""
        # Some releases take a version out of the section, which may be empty then.
        some = any(each.name != "version" for each in self.settings)
        if self.words is None or self.root.merged or not some:
            return False
        return bool(self.words) or self.all(lambda r, v: r.has_effect(SECTION_SHARDS, v))

    @property
    def versions(self) -> tuple[tuple[Settings, int], ...]:
        """The releases, each with the version of FSDP; none if it is unknown."""
        inside, beside = self.get("version"), self.beside(VERSION)
        if self.mapping.merged or self.root.merged:
            return ()
        given = {each.word for each in (inside, beside) if each and each.value is not None}
        if len(given) > 1 or given - {"1", "2"}:
            return ()
        version = int(given.pop()) if given else 0
        return tuple((release, self._version(release, version)) for release in self.releases)

    def _version(self, release: Settings, given: int) -> int:
        inside = self.get("version")
        read = release.has_effect(inside.entry.name, 2) if inside else False
        if given and (read or release.has_effect(VERSION_COUNTS, given)):
            return given
        return 2 if release.has_effect(DEFAULT, 2) else 1

    @property
    def axolotl(self) -> str:
        """The releases that are looked at, as users name them."""
        first, last = (".".join(map(str, self.releases[i].release)) for i in (0, -1))
        return f"axolotl {last}" if first == last else f"axolotl {first} to {last}"

    def get(self, name: str) -> Setting | None:
        """Return the setting in `fsdp_config` of a name that has no `fsdp_`."""
        return next((each for each in self.settings if each.name == name), None)

    def beside(self, name: str) -> Setting | None:
        """Return what is given beside `fsdp_config`."""
        entry = self.root.get(name)
        return Setting(name, entry) if entry else None

    def span(self, node: Node | Entry) -> Span:
        """Return the place of a node or an entry."""
        return Span(self.path, node.start, node.end)

    def shown(self, entry: Entry) -> str:
        """Return an entry as it is written, on one line."""
        return " ".join(self.text[entry.start : entry.end].split())

    def all(self, holds: Callable[[Settings, int], bool]) -> bool:
        """Return whether something holds in every release, with the version that is used there."""
        return bool(self.versions) and all(holds(*each) for each in self.versions)

    def none_reads(self, name: str) -> bool:
        """Return whether a name of the table has no effect in any release."""
        return self.all(lambda release, version: not release.has_effect(name, version))


def own_release(root: Path) -> TorchRange | None:
    """Return the release that a checkout of axolotl is of, None if a project is another."""
    package = root / "src" / PACKAGE / "__init__.py"
    for path in (root / "VERSION", package) if package.is_file() else ():
        with suppress(OSError, SourceError):
            found = _RELEASE.search(regular(path, _MOST_BYTES))
            if found:
                return TorchRange.parse(f"=={found[1].decode()}.*")
    # Of an unknown release, nothing is known.
    return TorchRange.parse("<0.1") if package.is_file() else None


def looks_like(text: str) -> bool:
    """Return whether a text that need not parse seems to be for axolotl and to have FSDP."""
    named = {found[1] for found in _LINE.finditer(text)}
    of_fsdp = any(name.startswith(ARGUMENT) for name in named)
    return of_fsdp and MODEL in named and len(named & REQUIRED) >= _LEAST


def read(
    path: str, text: str, root: Node | None, releases: tuple[Settings, ...]
) -> AxolotlSettings | None:
    """Return the settings of a file, None if it is not for axolotl or has none."""
    if not isinstance(root, Mapping) or not releases or not looks_like(text):
        return None
    rl = root.get(RL)
    trained = rl is not None and not (isinstance(rl.value, Scalar) and rl.value.value is None)
    if trained and releases[0].release < RL_AS_OTHERS:
        return None
    section = root.get(SECTION)
    value = section.value if section else None
    empty = isinstance(value, Scalar) and value.value is None
    if value is not None and not isinstance(value, Mapping) and not empty:
        return None
    mapping = value if isinstance(value, Mapping) else Mapping(0, 0, (), False, False)
    every = (Setting(each.name.removeprefix(PREFIX), each) for each in mapping.entries if each.name)
    settings = tuple({each.name: each for each in every}.values())
    return AxolotlSettings(path, text, root, section, mapping, settings, releases)


def is_on(setting: Setting) -> bool:
    """Return whether a value asks for something: it is known, and neither empty nor false."""
    off = ("", "FALSE", "NO", "OFF", "NONE", "NULL", "0")
    return setting.value is not UNKNOWN and setting.word not in off
