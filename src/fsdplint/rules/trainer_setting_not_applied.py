"""Settings of FSDP that transformers knows, and that have no effect beside the others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.edits import insertion, new_value
from fsdplint.configs.nodes import Entry, Scalar
from fsdplint.configs.trainer import TrainerSettings
from fsdplint.engine.facts.training_arguments import training_arguments
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.fixes.settings import remove_setting
from fsdplint.knowledge.accelerate_settings import WRAPS_BY_SIZE, Settings
from fsdplint.knowledge.transformers_settings import (
    CLASSES,
    OFFLOAD,
    POLICY,
    RESHARD,
    SIZE,
    STRATEGY_BY_WORD,
    STRATEGY_WORDS,
    VERSION,
    WRAPS_WITHOUT_WORD,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD922",
    summary="a setting for FSDP has no effect beside the other training arguments",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
)

_FORWARD_PREFETCH = "forward_prefetch"
_YES = ("TRUE", "YES", "1")
_NO = ("FALSE", "NO", "0")
_FULL, _GRAD, _AUTO_WRAP, _OFFLOADS = "full_shard", "shard_grad_op", "auto_wrap", "offload"
_RESHARDS = {_FULL: _YES, _GRAD: _NO}


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in training_arguments(program):
        yield from trainer_reports(settings)


def trainer_reports(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report for each setting that every release of the project leaves without effect."""
    if settings.shards is False or settings.is_for_xla:
        return
    yield from _of_fsdp1(settings)
    yield from _size(settings)
    yield from _classes(settings)
    yield from _strategy(settings)
    yield from _overridden(settings)


def _of_fsdp1(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report if FSDP2 gets no forward prefetch."""
    setting = settings.get(_FORWARD_PREFETCH)
    if setting and setting.word in _YES and settings.all(partial(_only_1_reads, setting.name)):
        shown = settings.shown(setting.entry)
        why = "transformers does not pass it on to FSDP2"
        fix = partial(_remove, settings, setting)
        yield _report(settings, setting.entry, f"`{shown}` has no effect: {why}", VERSION, fix)


def _only_1_reads(name: str, release: Settings, version: int) -> bool:
    return version == 2 and not release.has_effect(name, 2) and release.has_effect(name, 1)


def _size(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report if blocks are wrapped by their classes though a size is given."""
    size, policy = settings.get(SIZE), settings.get(POLICY)
    if size is None or not isinstance(size.value, int) or size.value <= 0:
        return
    by_size = policy is not None and policy.word in ("", WRAPS_BY_SIZE)
    if not by_size and settings.all(partial(_reads, POLICY)):
        text = f"`{settings.shown(size.entry)}` has no effect without `{POLICY}: {WRAPS_BY_SIZE}`"
        fix = partial(_wrap_by_size, settings, size)
        yield _report(settings, size.entry, text, POLICY, fix)


def _classes(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report if nothing is wrapped though classes, or a size, are given."""
    words, chosen = settings.words, settings.get(CLASSES) or settings.get(SIZE)
    if not chosen or not settings.shards or words is None or _AUTO_WRAP in words:
        return
    if settings.all(partial(_only_with_word, chosen.name)):
        text = (
            f"`{chosen.entry.name}` has no effect without `{_AUTO_WRAP}` in `fsdp`: unless "
            "`accelerate launch` sets a policy, the whole model is one FSDP unit"
        )
        fix = partial(_add_word, settings, words)
        yield _report(settings, chosen.entry, text, "", fix)


def _reads(name: str, release: Settings, version: int) -> bool:
    return release.has_effect(name, version)


def _only_with_word(name: str, release: Settings, version: int) -> bool:
    without = release.has_effect(WRAPS_WITHOUT_WORD, version)
    return release.has_effect(name, version) and not without


def _strategy(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report if FSDP1 shards fully, whatever strategy is named."""
    if not settings.all(lambda r, version: version == 1 and not r.has_effect(STRATEGY_BY_WORD, 1)):
        return
    setting = settings.get(RESHARD)
    named = [word for word in settings.words or () if word in STRATEGY_WORDS]
    entry, strategy = settings.fsdp, named[0] if named else ""
    if setting is not None:
        entry, strategy = setting.entry, setting.word.lower()
    if entry is not None and strategy in STRATEGY_WORDS and strategy != _FULL:
        text = (
            f"`{settings.shown(entry)}` has no effect with FSDP1: {settings.transformers} shards "
            "fully unless `accelerate launch` sets a strategy"
        )
        yield _report(settings, entry, text, VERSION, partial(_use_2, settings, strategy))


def _overridden(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report for each word of `fsdp` that a setting, or a word before it, replaces."""
    words, fsdp = settings.words, settings.fsdp
    if not words or fsdp is None or settings.refuses(words):
        return
    if not settings.all(partial(_reads, RESHARD)):
        return
    first, *others = [word for word in words if word in _RESHARDS] or [""]
    reshard, offload = settings.get(RESHARD), settings.get(OFFLOAD)
    for setting, word, same in (
        (reshard, first, _RESHARDS.get(first, ())),
        (offload, _OFFLOADS if _OFFLOADS in words else "", _YES),
    ):
        if setting and word and setting.word in (*_YES, *_NO) and setting.word not in same:
            text = f"`{word}` in `fsdp` has no effect: `{settings.shown(setting.entry)}` decides"
            note = Evidence(settings.span(setting.entry), "this decides")
            yield Report(settings.span(fsdp), text, "has no effect", (note,), _unclear)
            return
    if others and others[0] != first and reshard is None:
        text = f"`{others[0]}` in `fsdp` has no effect after `{first}`"
        yield Report(settings.span(fsdp), text, "has no effect", (), _unclear)


def _report(
    settings: TrainerSettings,
    entry: Entry,
    message: str,
    because: str,
    fix: partial[Fix | Declined],
) -> Report:
    found = settings.get(because)
    evidence = (Evidence(settings.span(found.entry), "because of this"),) if found else ()
    return Report(settings.span(entry), message, "has no effect", evidence, fix)


def _unclear() -> Declined:
    return Declined("which of both is meant is unclear; remove one by hand")


def _remove(settings: TrainerSettings, setting: Setting) -> Fix | Declined:
    return remove_setting(settings.path, settings.text, settings.mapping, setting.entry)


def _wrap_by_size(settings: TrainerSettings, size: Setting) -> Fix | Declined:
    if settings.get(POLICY) or settings.get(CLASSES):
        return _remove(settings, size)
    if settings.mapping.merged:
        return Declined(f"`{POLICY}` may be set elsewhere; set it by hand")
    edit = insertion(settings.path, settings.text, settings.mapping, POLICY, WRAPS_BY_SIZE)
    return Fix(f"wrap by size with `{POLICY}`", Safety.UNSAFE, (edit,))


def _add_word(settings: TrainerSettings, words: tuple[str, ...]) -> Fix | Declined:
    value = settings.fsdp.value if settings.fsdp else None
    if not isinstance(value, Scalar) or (settings.is_python and not value.quote):
        return Declined(f"`fsdp` is no text; add `{_AUTO_WRAP}` by hand")
    text = " ".join((*(words or (_FULL,)), _AUTO_WRAP))
    return Fix(f"add `{_AUTO_WRAP}`", Safety.UNSAFE, (new_value(settings.path, value, text),))


def _use_2(settings: TrainerSettings, strategy: str) -> Fix | Declined:
    version = settings.get(VERSION)
    value = version.entry.value if version else None
    if strategy != _GRAD or settings.get(RESHARD) or not isinstance(value, Scalar):
        return Declined(
            "FSDP2 has no such setting; set `FSDP_SHARDING_STRATEGY` in the environment"
        )
    return Fix("use FSDP2", Safety.UNSAFE, (new_value(settings.path, value, "2"),))
