"""The variables of the environment that accelerate reads: what has an effect, and when.

The table is measured: `scripts/accelerate_variables.py` has each release make its plugin as a rank
under torchrun does, and as one under `accelerate launch`, which sets variables by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fsdplint.knowledge.accelerate_settings import CLASSES, Settings, read

_TABLE = Path(__file__).with_name("accelerate_variables.csv")
_LAUNCHED = "accelerate launch "

SWITCH = "ACCELERATE_USE_FSDP"
PREFIX = "FSDP_"
VERSION = "FSDP_VERSION"
CLASSES_TO_WRAP = "FSDP_TRANSFORMER_CLS_TO_WRAP"
# Settings whose variable has another name.
OTHER_NAMES: Mapping[str, str] = {
    "FSDP_BACKWARD_PREFETCH_POLICY": "FSDP_BACKWARD_PREFETCH",
    "FSDP_CPU_OFFLOAD": "FSDP_OFFLOAD_PARAMS",
    "FSDP_TRANSFORMER_CLS_NAMES_TO_WRAP": CLASSES_TO_WRAP,
    "FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP": CLASSES_TO_WRAP,
}


@cache
def variables() -> tuple[Settings, ...]:
    """Return the variables of each release, the oldest first."""
    return read(_TABLE)


def of_releases(releases: tuple[Settings, ...]) -> tuple[Settings, ...]:
    """Return the variables of the releases whose settings are given."""
    wanted = {each.release for each in releases}
    return tuple(each for each in variables() if each.release in wanted)


def setting(variable: str) -> str:
    """Return the setting of a config file that a variable stands for."""
    return CLASSES if variable == CLASSES_TO_WRAP else variable.lower()


def names(release: Settings) -> list[str]:
    """Return the variables of FSDP that a release reads."""
    every = dict.fromkeys(name for name, _ in release.rows if name.startswith(PREFIX))
    return [name for name in every if release.is_known(name)]


def turns_on(releases: tuple[Settings, ...], word: str) -> bool | None:
    """Return whether a value of the switch turns FSDP on, None if releases differ.

    The table has the words that somebody may take for true; any other turns nothing on.
    """
    found = {word in (each.takes(SWITCH, 1)) for each in releases}
    return found.pop() if len(found) == 1 else None


def launcher_sets(releases: tuple[Settings, ...], name: str) -> bool:
    """Return whether `accelerate launch` replaces a variable of the environment if it shards."""
    return all(
        each.takes(f"{_LAUNCHED}{name}", version)
        and not each.has_effect(f"{_LAUNCHED}{name}", version)
        for each in releases
        for version in (1, 2)
    )


def launcher_default(release: Settings, name: str) -> str:
    """Return what `accelerate launch` sets a variable to without an option, in capitals."""
    words = release.takes(f"{_LAUNCHED}{name}", 1)
    return next(iter(words)) if len(words) == 1 else ""
