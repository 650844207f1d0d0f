"""Settings of FSDP in files for axolotl that stop the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.axolotl import AxolotlSettings
from fsdplint.configs.edits import new_value
from fsdplint.configs.nodes import UNKNOWN, Entry, Scalar, Sequence
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import BOOLEANS, WRAPS_BY_SIZE, Settings
from fsdplint.knowledge.axolotl_settings import (
    BOTH_CHECKPOINTINGS,
    CLASSES,
    CLASSES_LISTED,
    GRADIENT_CHECKPOINTING,
    LIST_SHARDS,
    OTHER_CHECKPOINTING,
    POLICY,
    SECTION,
    SIZE,
    TEXT,
)
from fsdplint.knowledge.transformers_settings import ARGUMENT, CHECKPOINTING, accepts
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD953",
    summary="a file for axolotl has a setting of FSDP that stops the run",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)

_YES = frozenset({"Y", "YES", "T", "ON", "TRUE", "1", "N", "NO", "F", "OFF", "FALSE", "0"})
"""What pydantic takes for a bool, source: pydantic 2.12."""


def axolotl_reports(settings: AxolotlSettings) -> Iterator[Report]:
    """Yield a report for each setting that stops every release of the project."""
    yield from _argument(settings)
    if not settings.shards:
        return
    for setting in settings.settings:
        by_size = (policy := settings.get(POLICY)) is not None and policy.value == WRAPS_BY_SIZE
        if setting.name == CLASSES:
            yield from _classes(settings, setting)
        elif (setting.name != SIZE or by_size) and settings.all(partial(_refuses, setting)):
            yield _of_setting(settings, setting)
    yield from _checkpointing(settings)


def _argument(settings: AxolotlSettings) -> Iterator[Report]:
    entry, words = settings.root.get(ARGUMENT), settings.words
    if entry is None:
        return
    value = entry.value.value if isinstance(entry.value, Scalar) else None
    if value is True or (isinstance(value, str) and value):
        if settings.none_reads(TEXT):
            yield _stops(settings, entry, "it takes a list", partial(_as_list, settings, entry))
    elif words and _is_empty(settings):
        if settings.none_reads(LIST_SHARDS):
            why = f"it needs `{SECTION}` beside it"
            yield _stops(settings, entry, why, lambda: _declined(f"add `{SECTION}` by hand"))
    elif words and _refuses_words(settings, words):
        alone = [word for word in words if _refuses_words(settings, (word,))]
        version = settings.versions[-1][1]
        why = f"FSDP{version} has no `{alone[0]}`" if alone else "the words exclude each other"
        yield _stops(settings, entry, why, lambda: _declined("choose the words by hand"))


def _refuses_words(settings: AxolotlSettings, words: tuple[str, ...]) -> bool:
    return settings.all(lambda release, version: not accepts(release, words, version))


def _is_empty(settings: AxolotlSettings) -> bool:
    return not settings.mapping.entries and not settings.root.merged


def _as_list(settings: AxolotlSettings, entry: Entry) -> Fix | Declined:
    value = entry.value
    assert isinstance(value, Scalar)
    words = value.value.replace(",", " ").split() if isinstance(value.value, str) else []
    known = {word for r in settings.releases for v in (1, 2) for word in r.takes(ARGUMENT, v)}
    if not words or not known.issuperset(words):
        return _declined("write the words as a list by hand")
    text = f"[{', '.join(words)}]"
    made = new_value(settings.path, Scalar(value.start, value.end, value.value, ""), text)
    return Fix("make it a list", Safety.UNSAFE, (made,))


def _classes(settings: AxolotlSettings, classes: Setting) -> Iterator[Report]:
    value = classes.entry.value
    if isinstance(value, Sequence) and value.items and settings.none_reads(CLASSES_LISTED):

        def fix() -> Fix | Declined:
            first = value.items[0]
            if len(value.items) > 1 or not isinstance(first, Scalar) or not value.flow:
                return _declined("give one name by hand")
            name = settings.text[first.start : first.end]
            made = new_value(settings.path, value, name)
            return Fix("give the name alone", Safety.UNSAFE, (made,))

        yield _stops(settings, classes.entry, "it takes one text", fix)


def _refuses(setting: Setting, release: Settings, version: int) -> bool:
    takes, value = release.takes(setting.entry.name, version), setting.value
    if not takes or value is UNKNOWN or value is None or isinstance(value, float):
        return False
    word = value if isinstance(value, str) else setting.word
    if isinstance(value, int) and not isinstance(value, bool) and "6" in takes:
        return value < 1 and str(value) not in takes
    is_true = takes >= BOOLEANS and word.upper() in _YES
    # Digits in a text are a number for some releases.
    same = word.upper() in takes and word.lower() in takes
    return not (word in takes or same or is_true or word.strip().isdigit())


def _of_setting(settings: AxolotlSettings, setting: Setting) -> Report:
    release, version = settings.versions[-1]
    takes = release.takes(setting.entry.name, version)
    names = sorted(word for word in takes if "_" in word) or (
        ["true", "false"] if takes >= BOOLEANS else []
    )
    why = f"it takes {', '.join(names)}" if names else f"not with FSDP{version}"

    def fix() -> Fix | Declined:
        value = setting.entry.value
        close = get_close_matches(setting.word, [name.upper() for name in names], 1, 0.6)
        if not close or not isinstance(value, Scalar):
            return _declined("the intended value is unclear; choose one by hand")
        word = next(name for name in names if name.upper() == close[0])
        made = new_value(settings.path, value, word)
        return Fix(f"set `{setting.entry.name}` to `{word}`", Safety.UNSAFE, (made,))

    return _stops(settings, setting.entry, why, fix)


def _checkpointing(settings: AxolotlSettings) -> Iterator[Report]:
    """Yield a report if activations are to be checkpointed twice."""
    other = settings.beside(GRADIENT_CHECKPOINTING)
    inside = settings.get(CHECKPOINTING)
    if not inside or not other or inside.value is not True or other.value is not True:
        return
    replaced = any(settings.root.get(name) for name in OTHER_CHECKPOINTING)
    if replaced or not settings.none_reads(BOTH_CHECKPOINTINGS):
        return

    def fix() -> Fix | Declined:
        value = other.entry.value
        assert isinstance(value, Scalar)
        made = new_value(settings.path, value, "false")
        return Fix(f"set `{GRADIENT_CHECKPOINTING}: false`", Safety.UNSAFE, (made,))

    note = Evidence(settings.span(inside.entry), "FSDP checkpoints activations")
    why = f"`{settings.shown(inside.entry)}` is in `{SECTION}`"
    yield _stops(settings, other.entry, why, fix, (note,))


def _declined(reason: str) -> Declined:
    return Declined(reason)


def _stops(
    settings: AxolotlSettings,
    entry: Entry,
    why: str,
    fix: Callable[[], Fix | Declined],
    notes: tuple[Evidence, ...] = (),
) -> Report:
    text = f"{settings.axolotl} stops at `{settings.shown(entry)}`: {why}"
    return Report(settings.span(entry), text, "stops the run", notes, fix)
