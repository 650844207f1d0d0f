"""Values of `fsdp` and of settings in `fsdp_config` that transformers refuses."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.edits import new_value, removal
from fsdplint.configs.nodes import UNKNOWN, Entry, Scalar
from fsdplint.configs.trainer import TrainerSettings
from fsdplint.engine.facts.training_arguments import training_arguments
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import BOOLEANS, WRAPS_BY_SIZE, Settings
from fsdplint.knowledge.transformers_settings import (
    BOTH,
    CLASSES,
    POLICY,
    SIZE,
    STRATEGY_WORDS,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD924",
    summary="training arguments have a value for FSDP that transformers refuses",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)

_OTHER_WORDS = ("auto_wrap", "offload")
_EITHER = ["true", "false"]
_YES = frozenset({"Y", "YES", "T", "ON", "TRUE", "1", "N", "NO", "F", "OFF", "FALSE", "0"})
"""What `str_to_bool` reads, source: transformers 5.24 and accelerate 1.15."""


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in training_arguments(program):
        yield from trainer_reports(settings)


def trainer_reports(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report for each value that no release of the project takes."""
    if settings.shards is False or settings.is_for_xla:
        return
    words = settings.words
    if settings.fsdp and words and settings.refuses(words):
        yield _of_argument(settings, settings.fsdp, words)
    section = settings.section
    if settings.shards and section and _is_yaml(section):
        yield _of_file(settings, section)
    for setting in settings.settings:
        if _is_read(settings, setting) and settings.all(partial(_refuses, setting)):
            yield _of_setting(settings, setting)
    size, classes = settings.get(SIZE), settings.get(CLASSES)
    if size and classes and settings.shards and _is_positive(size):
        named = not isinstance(classes.entry.value, Scalar) or isinstance(classes.value, str)
        if named and settings.all(lambda release, version: not release.has_effect(BOTH, version)):
            yield _of_both(settings, size, classes)


def _is_yaml(section: Entry) -> bool:
    value = section.value.value if isinstance(section.value, Scalar) else None
    return isinstance(value, str) and value.endswith((".yaml", ".yml"))


def _of_file(settings: TrainerSettings, section: Entry) -> Report:
    return Report(
        settings.span(section),
        f"{settings.transformers} reads the file of `{settings.shown(section)}` as JSON, and fails",
        "is refused",
        (),
        lambda: Declined("write the settings to a JSON file by hand, without `fsdp_config` around"),
    )


def _is_read(settings: TrainerSettings, setting: Setting) -> bool:
    """Return whether a value is looked at: a size is where blocks are wrapped by size."""
    policy = settings.get(POLICY)
    return setting.name != SIZE or (policy is not None and policy.value == WRAPS_BY_SIZE)


def _refuses(setting: Setting, release: Settings, version: int) -> bool:
    takes, value = release.takes(setting.name, version), setting.value
    if not takes or value is UNKNOWN or value is None or isinstance(value, float):
        return False
    word = value if isinstance(value, str) else setting.word
    if isinstance(value, int) and "6" in takes:
        return False
    same = word.upper() in takes and word.lower() in takes
    is_text = isinstance(value, str) and "yes" in takes
    is_true = (is_text or _listed(takes) == _EITHER) and word.upper() in _YES
    return not (word in takes or same or is_true)


def _is_positive(size: Setting) -> bool:
    return isinstance(size.value, int) and size.value > 0


def _of_argument(settings: TrainerSettings, fsdp: Entry, words: tuple[str, ...]) -> Report:
    known = (*STRATEGY_WORDS, *_OTHER_WORDS)
    unknown = [word for word in words if word not in known]
    close = {word: get_close_matches(word.lower(), known, 1, 0.8) for word in unknown}
    if any("," in word for word in unknown):
        reason = "blanks separate the words"
    elif unknown:
        reason = f"it has no option `{unknown[0]}`"
    else:
        reason = _reason(settings, words)

    def fix() -> Fix | Declined:
        parts = [part for word in words for part in word.split(",") if part]
        if all(part in known for part in parts) and unknown:
            text = " ".join(parts)
        elif unknown and all(close.values()):
            text = " ".join(close[word][0] if word in close else word for word in words)
        else:
            return Declined("the intended strategy is unclear; choose one by hand")
        if not isinstance(fsdp.value, Scalar) or settings.refuses(tuple(text.split())):
            return Declined("the intended strategy is unclear; choose one by hand")
        edit = new_value(settings.path, fsdp.value, text)
        return Fix(f"set `fsdp` to `{text}`", Safety.UNSAFE, (edit,))

    return Report(
        settings.span(fsdp),
        f"{settings.transformers} refuses `{settings.shown(fsdp)}`: {reason}",
        "is refused",
        (),
        fix,
    )


def _reason(settings: TrainerSettings, words: tuple[str, ...]) -> str:
    """Return why words are refused that exist."""
    alone = [word for word in words if settings.refuses((word,))]
    if not alone:
        strategies = [word for word in words if word in STRATEGY_WORDS]
        return f"`{'` and `'.join(strategies)}` exclude each other"
    if alone == ["offload"]:
        return "`offload` needs a strategy"
    return f"FSDP2, the default, has no `{alone[0]}`"


def _listed(takes: frozenset[str]) -> list[str]:
    """Return how users write the words that a setting takes."""
    names = sorted(word for word in takes if "_" in word and word.isupper())
    if takes == {"yes"}:
        return [f'"{word}"' for word in _EITHER]
    return names or (_EITHER if takes >= BOOLEANS else ["an integer"])


def _of_setting(settings: TrainerSettings, setting: Setting) -> Report:
    release, version = settings.versions[-1]
    names = _listed(release.takes(setting.name, version))
    listed = ", ".join(names)

    def fix() -> Fix | Declined:
        value = setting.entry.value
        close = get_close_matches(setting.word, [name.upper() for name in names], 1, 0.6)
        if not close or not isinstance(value, Scalar) or (settings.is_python and not value.quote):
            return Declined(f"the intended value is unclear; choose one by hand: {listed}")
        word = next(name for name in names if name.upper() == close[0])
        edit = new_value(settings.path, value, word)
        return Fix(f"set `{setting.entry.name}` to `{word}`", Safety.UNSAFE, (edit,))

    return Report(
        settings.span(setting.entry),
        f"{settings.transformers} refuses `{settings.shown(setting.entry)}`: it takes {listed}",
        "is refused",
        (),
        fix,
    )


def _of_both(settings: TrainerSettings, size: Setting, classes: Setting) -> Report:
    def fix() -> Fix | Declined:
        made = removal(settings.path, settings.text, settings.mapping, size.entry)
        assert made is not None  # the classes are beside it
        return Fix("wrap by classes only", Safety.UNSAFE, (made[0],))

    return Report(
        settings.span(size.entry),
        f"{settings.transformers} refuses `{SIZE}` together with `{CLASSES}`",
        "is refused",
        (Evidence(settings.span(classes.entry), "this names the classes to wrap"),),
        fix,
    )
