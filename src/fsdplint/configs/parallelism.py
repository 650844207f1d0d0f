"""`parallelism_config` of accelerate's config files: how the ranks are divided."""

from __future__ import annotations

from collections.abc import Mapping as Mapping_
from dataclasses import dataclass

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.nodes import Entry, Mapping, Scalar
from fsdplint.knowledge.accelerate_settings import PARALLELISM, Settings
from fsdplint.knowledge.parallelism_settings import SIZES, of


@dataclass(frozen=True, slots=True)
class Parallelism:
    """The section of a file that shards.

    Attributes:
        releases: what the releases of accelerate that the project admits do with its settings.
    """

    section: Entry
    mapping: Mapping
    releases: tuple[Settings, ...]

    def is_read(self, name: str) -> bool:
        """Return whether a release reads a setting."""
        return any(release.is_known(name) for release in self.releases)

    @property
    def names(self) -> list[str]:
        """The settings that the newest release reads."""
        return self.releases[-1].names(2)

    @property
    def sizes(self) -> Mapping_[str, int] | None:
        """The sizes that accelerate reads, 1 where none is given; None if one is unknown."""
        if self.mapping.merged:
            return None
        found = {name: integer(self.mapping.get(name), 1) for name in SIZES}
        known = {name: size for name, size in found.items() if size is not None}
        return known if len(known) == len(found) else None


def read(config: AccelerateConfig) -> Parallelism | None:
    """Return the section of a file, None if it has none or if some release does not take it."""
    section, releases = config.root.get(PARALLELISM), of(config.releases)
    if not config.shards or config.root.merged or not releases:
        return None
    if section is None or not isinstance(section.value, Mapping) or not section.value.entries:
        return None
    return Parallelism(section, section.value, releases)


def integer(entry: Entry | None, default: int | None = None) -> int | None:
    """Return the number that an entry has, None if that is unknown."""
    if entry is None:
        return default
    value = entry.value.value if isinstance(entry.value, Scalar) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
