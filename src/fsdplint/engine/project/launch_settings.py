"""The settings of FSDP that a launcher reads from a file, and hands to the code that it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchSettings:
    """Settings of accelerate's plugin that a config file names.

    Attributes:
        path: the config file.
        start: where its settings begin.
        end: where they end.
        keywords: the arguments of the plugin that they come to.
        scripts: the files that are launched with them, None if all but `others` are.
        others: files that are launched without a config file.
    """

    path: str
    start: int
    end: int
    keywords: Mapping[str, str | int | bool]
    scripts: frozenset[str] | None = None
    others: frozenset[str] = frozenset()
