"""Settings of FSDP in files for axolotl that have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.axolotl import PREFIX, AxolotlSettings, is_on
from fsdplint.configs.edits import insertion, new_value, removal, renaming
from fsdplint.configs.nodes import Entry, Scalar
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.fixes.settings import remove_setting
from fsdplint.knowledge.accelerate_settings import (
    STRATEGIES,
    VERSION,
    WRAPS_BY_SIZE,
    WRAPS_CLASSES,
)
from fsdplint.knowledge.axolotl_settings import (
    BESIDE,
    CLASSES,
    DONE,
    DONE_WITH_2,
    FINAL,
    FINAL_BESIDE,
    FINAL_COUNTS,
    OTHER_NAMES,
    POLICY,
    PRECISION,
    SECTION,
    SIZE,
    SIZE_ALONE,
    STATES,
    STRATEGY,
    STRATEGY_BY_WORD,
)
from fsdplint.knowledge.frameworks import WHOLE_STATE
from fsdplint.knowledge.transformers_settings import ARGUMENT, RESHARD, STRATEGY_WORDS, accepts
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD951",
    summary="a setting of FSDP in a file for axolotl has no effect",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
)

_FULL, _GRAD = "FULL_SHARD", "SHARD_GRAD_OP"
_FULLY = "the model is fully sharded"
_ACROSS = "parameters are sharded over all ranks, not within each node"
_INSTEAD = {
    _GRAD: "parameters are resharded after the forward",
    "NO_SHARD": _FULLY,
    "HYBRID_SHARD": _ACROSS,
    "HYBRID_SHARD_ZERO2": _ACROSS,
}
_NOT_PREFETCHED = {"backward_prefetch": "backward", "forward_prefetch": "forward"}


def axolotl_reports(settings: AxolotlSettings) -> Iterator[Report]:
    """Yield a report for each setting that no release of the project applies."""
    if not settings.shards:
        return
    for setting in settings.settings:
        if settings.none_reads(setting.entry.name) and not _is_done(settings, setting):
            yield _of_setting(settings, setting)
    yield from _words(settings)
    yield from _size(settings)
    yield from _final(settings)
    yield from _beside(settings)


def _is_done(settings: AxolotlSettings, setting: Setting) -> bool:
    """Return whether a setting asks for nothing, or for what is done anyway."""
    version, name = settings.versions[-1][1], setting.name
    if not is_on(setting) or name in DONE or (version == 2 and name in DONE_WITH_2):
        return True
    if name == STRATEGY:
        reshard = settings.get(RESHARD)
        strategy = STRATEGIES.get(setting.word, _FULL)
        by_word = strategy.lower() in _chosen(settings)
        return strategy == _FULL or by_word or (strategy == _GRAD and reshard is not None)
    if name in PRECISION:
        beside = settings.beside(setting.word.lower()[:4])
        return beside is not None and is_on(beside)
    return False


def _chosen(settings: AxolotlSettings) -> list[str]:
    """Return the strategies in `fsdp` that may count."""
    if settings.none_reads(STRATEGY_BY_WORD):
        return []
    return [word for word in settings.words or () if word in STRATEGY_WORDS[1:]]


def _of_setting(settings: AxolotlSettings, setting: Setting) -> Report:
    strategy = STRATEGIES.get(setting.word, "") if setting.name == STRATEGY else ""
    name = _meant(settings, setting)
    hint = f"; did you mean `{name}`?" if name else ""
    if strategy in _INSTEAD and not _chosen(settings):
        version = settings.versions[-1][1]
        hint = f": {_FULLY if version == 1 and strategy == _GRAD else _INSTEAD[strategy]}"
    elif setting.name in _NOT_PREFETCHED:
        hint = f": nothing is prefetched in the {_NOT_PREFETCHED[setting.name]}"
    elif setting.name in PRECISION:
        hint = "; `bf16` and `fp16` beside it choose the precision"
    return Report(
        settings.span(setting.entry),
        f"{settings.axolotl} ignores `{settings.shown(setting.entry)}` without a message{hint}",
        "is ignored",
        (),
        partial(_fix, settings, setting, strategy, name),
    )


def _meant(settings: AxolotlSettings, setting: Setting) -> str:
    """Return the setting that is evidently meant, "" if none is."""
    release, version = settings.versions[-1]
    names = [name for name in release.names(version) if name.isidentifier() and name != ARGUMENT]
    other = OTHER_NAMES.get(setting.name, "")
    full = setting.entry.name.startswith(PREFIX)
    known = sorted({name.removeprefix(PREFIX) for name in names})
    close = [other] if other in known else get_close_matches(setting.name.strip(), known, 1, 0.85)
    if not close or settings.get(close[0]):
        return ""
    spellings = (f"{PREFIX}{close[0]}", close[0]) if full else (close[0], f"{PREFIX}{close[0]}")
    return next(each for each in spellings if each in names)


def _fix(settings: AxolotlSettings, setting: Setting, strategy: str, name: str) -> Fix | Declined:
    path, entry = settings.path, setting.entry
    if strategy:
        reads = settings.all(lambda release, version: release.has_effect(RESHARD, version))
        if strategy != _GRAD or not reads or not isinstance(entry.value, Scalar):
            return Declined("axolotl has no such strategy here; choose another by hand")
        edits = (renaming(path, entry, RESHARD), new_value(path, entry.value, "false"))
        return Fix(f"set `{RESHARD}: false` instead", Safety.UNSAFE, edits)
    if name:
        return Fix(f"rename it to `{name}`", Safety.UNSAFE, (renaming(path, entry, name),))
    return remove_setting(path, settings.text, settings.mapping, entry)


def _words(settings: AxolotlSettings) -> Iterator[Report]:
    """Yield a report for a strategy in `fsdp` that is not applied."""
    words, entry = settings.words, settings.root.get(ARGUMENT)
    named = [word for word in words or () if word in STRATEGY_WORDS[1:]]
    if not named or entry is None or not settings.none_reads(STRATEGY_BY_WORD):
        return
    if not settings.all(lambda release, version: accepts(release, words or (), version)):
        return
    version = settings.versions[-1][1]
    yield Report(
        settings.span(entry),
        f"{settings.axolotl} ignores `{named[0]}` in `{ARGUMENT}` with FSDP{version} without a "
        f"message: {_FULLY if version == 1 else _INSTEAD[named[0].upper()]}",
        "is ignored",
        (),
        lambda: Declined("choose another strategy, or FSDP2, by hand"),
    )


def _size(settings: AxolotlSettings) -> Iterator[Report]:
    """Yield a report if blocks are wrapped by their classes though a size is given."""
    size, policy = settings.get(SIZE), settings.get(POLICY)
    if size is None or not isinstance(size.value, int) or size.value <= 0:
        return
    if (policy and policy.word != WRAPS_CLASSES) or not settings.none_reads(SIZE_ALONE):
        return
    # Where no policy lets it count, it is reported as any other.
    if settings.none_reads(size.entry.name):
        return

    def fix() -> Fix | Declined:
        if policy or settings.get(CLASSES):
            return remove_setting(settings.path, settings.text, settings.mapping, size.entry)
        prefix = PREFIX if size.entry.name.startswith(PREFIX) else ""
        name, mapping = prefix + POLICY, settings.mapping
        edit = insertion(settings.path, settings.text, mapping, name, WRAPS_BY_SIZE)
        return Fix(f"wrap by size with `{name}`", Safety.UNSAFE, (edit,))

    shown = settings.shown(size.entry)
    text = f"`{shown}` has no effect without `{POLICY}: {WRAPS_BY_SIZE}`"
    note = (Evidence(settings.span(policy.entry), "because of this"),) if policy else ()
    yield Report(settings.span(size.entry), text, "has no effect", note, fix)


def _final(settings: AxolotlSettings) -> Iterator[Report]:
    """Yield a report if the last state dict is of another type than the one beside asks for."""
    final = settings.beside(FINAL_BESIDE)
    if final is None or not is_on(final) or not settings.none_reads(FINAL_COUNTS):
        return
    chosen = settings.get(FINAL) or settings.get(STATES)
    decides = chosen.word if chosen else WHOLE_STATE
    if not decides or decides == final.word or not decides.endswith("_STATE_DICT"):
        return
    yield _moved(settings, final.entry, FINAL, f": the model is saved as {decides}")


def _beside(settings: AxolotlSettings) -> Iterator[Report]:
    """Yield a report for each setting beside the section that belongs in it."""
    if not settings.none_reads(BESIDE):
        return
    for entry in settings.root.entries:
        setting = Setting(entry.name.removeprefix(PREFIX), entry)
        if not entry.name.startswith(PREFIX) or entry.name in (SECTION, VERSION, FINAL_BESIDE):
            continue
        known = not settings.none_reads(setting.name)
        if known and is_on(setting) and not _is_done(settings, setting):
            yield _moved(settings, entry, setting.name, f" beside `{SECTION}`")


def _moved(settings: AxolotlSettings, entry: Entry, name: str, why: str) -> Report:
    def fix() -> Fix | Declined:
        path, text = settings.path, settings.text
        gone = removal(path, text, settings.root, entry)
        given, value = settings.get(name), entry.value
        if gone is None or given or not isinstance(value, Scalar):
            return Declined(f"move it to `{SECTION}` by hand")
        shown = text[value.start : value.end]
        edits = (gone[0], insertion(path, text, settings.mapping, name, shown))
        return Fix(f"move it to `{SECTION}` as `{name}`", Safety.UNSAFE, edits)

    text = f"{settings.axolotl} ignores `{settings.shown(entry)}` without a message{why}"
    return Report(settings.span(entry), text, "is ignored", (), fix)
