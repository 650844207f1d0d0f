"""`TrainingArguments(fsdp=…, fsdp_config=…)` of transformers, in code and in config files.

Source: transformers 5.24 (`training_args.py`, `_process_fsdp_args`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fsdplint.configs.edits import new_value, removal
from fsdplint.configs.nodes import Entry, Scalar
from fsdplint.configs.trainer import TrainerSettings
from fsdplint.engine.facts.training_arguments import training_arguments
from fsdplint.finding import Edit, Span
from fsdplint.fixes.code import NoFixError
from fsdplint.knowledge.accelerate_settings import (
    BY_SIZE_WITH_2,
    RESHARDS,
    STRATEGIES,
    WRAPS_BY_SIZE,
)
from fsdplint.knowledge.transformers_settings import (
    POLICY,
    RESHARD,
    STATES_SINCE,
    STRATEGY_BY_WORD,
    STRATEGY_WORDS,
    VERSION,
    VERSION_SINCE,
)
from fsdplint.migrate.fsdp2.launches import if_launched
from fsdplint.migrate.step import Change, Context, Found, Kept, Question

DIFFERS = "rank 0's weights are not handed out, except with `cpu_ram_efficient_loading`"
_SAVES = "checkpoints are sharded"
SINCE = ".".join(map(str, VERSION_SINCE))
TOO_OLD = (
    f"transformers has FSDP2 since {SINCE}, and the project admits older releases; require "
    f"`transformers>={SINCE}`, then migrate again"
)
_APPLIED = "`shard_grad_op` takes effect, which transformers ignores with FSDP1: more memory"


def trainers(context: Context) -> Iterator[Found]:
    """Yield a change for training arguments of which a release uses FSDP1."""
    found = [s for s in training_arguments(context.program) if s.path in context.files]
    found += [v for v in context.configs.values() if isinstance(v, TrainerSettings)]
    for settings in found:
        if settings.shards is False or settings.is_for_xla:
            continue
        for each in _migrated(context, settings):
            yield from (each,) if settings.is_python else if_launched(context, each)


def _migrated(context: Context, settings: TrainerSettings) -> Iterator[Found]:
    entry = settings.section or settings.fsdp
    span = settings.span(entry) if entry else Span(settings.path, 0, 0)
    what = f"`{settings.shown(entry)}`" if entry else "the settings of FSDP"
    versions = {version for _, version in settings.versions}
    if versions == {2}:
        return
    if not versions:
        text = "Which version of FSDP does `fsdp_config` select?"
        question = Question(span, "fsdp-version", text, ("2", "1"))
        if context.answer(question) == "1":
            yield Kept(span, what, 'set `"version": 2` in `fsdp_config` by hand')
        elif context.answer(question) is None:
            yield question
        return
    try:
        edits = _edits(settings)
    except NoFixError as reason:
        yield Kept(span, what, str(reason))
        return
    differs = "; ".join(_differs(settings, edits))
    yield Change(span, "have transformers shard with FSDP2", tuple(edits), differs=differs)


def _differs(settings: TrainerSettings, edits: list[Edit]) -> Iterator[str]:
    yield DIFFERS
    if any(release.release < STATES_SINCE for release in settings.releases):
        yield _SAVES
    ignored = not settings.releases[-1].has_effect(STRATEGY_BY_WORD, 1)
    if ignored and any("False" in each.text or "false" in each.text for each in edits):
        yield _APPLIED


def _edits(settings: TrainerSettings) -> list[Edit]:
    if any(release.release < VERSION_SINCE for release in settings.releases):
        raise NoFixError(TOO_OLD)
    policy = settings.get(POLICY)
    if policy and policy.word == WRAPS_BY_SIZE:
        raise NoFixError(f"{BY_SIZE_WITH_2}; name the classes of the blocks by hand")
    words = settings.words
    if words is None:
        raise NoFixError("the words of `fsdp` are not known; pass `fsdp=True` by hand")
    version, reshard = settings.get(VERSION), settings.get(RESHARD)
    strategies = [each.upper() for each in words if each in STRATEGY_WORDS]
    strategies += [STRATEGIES.get(reshard.word, "")] if reshard else []
    if any(each not in RESHARDS for each in strategies):
        raise NoFixError("FSDP2 has no such strategy; choose `full_shard` by hand")
    gone = [each.entry for each in settings.settings if _only_1_reads(settings, each.name)]
    kept = [each for each in settings.mapping.entries if each not in gone]
    if not kept:
        raise NoFixError('pass `fsdp_config={"version": 2}` by hand')
    edits = _without(settings, gone, kept)
    off, on = ("False", "True") if settings.is_python else ("false", "true")
    if reshard and isinstance(reshard.entry.value, Scalar):
        text = on if RESHARDS[strategies[-1]] else off
        edits.append(_set(settings, reshard.entry, text))
    added = {} if reshard or False not in map(RESHARDS.get, strategies) else {RESHARD: off}
    if version is None:
        added = {VERSION: "2", **added}
    else:
        edits.append(_set(settings, version.entry, "2"))
    return [*edits, *_added(settings, kept[0], added)]


def _only_1_reads(settings: TrainerSettings, name: str) -> bool:
    """Return whether a setting is one of FSDP1 only."""
    release = settings.releases[-1]
    return release.has_effect(name, 1) and not release.has_effect(name, 2)


def _without(settings: TrainerSettings, gone: list[Entry], kept: list[Entry]) -> list[Edit]:
    """Delete entries, each with one comma or with its line.

    Raises:
        NoFixError: a comment would go with them.
    """
    path, text, mapping = settings.path, settings.text, settings.mapping
    if mapping.flow:
        every, first = mapping.entries, kept[0]
        places = [(every[0].start, first.start)] if every[0] is not first else []
        for before, entry in pairwise(every):
            if entry in gone and entry.start > first.start:
                places.append((before.end, entry.end))
        edits = [Edit(Span(path, *place), "") for place in places]
    else:
        removals = [removal(path, text, mapping, entry) for entry in gone]
        edits = [each[0] for each in removals if each is not None]
    if any("#" in text[edit.span.start : edit.span.end] for edit in edits):
        raise NoFixError("a comment is beside a setting that FSDP2 lacks; remove both by hand")
    return edits


def _set(settings: TrainerSettings, entry: Entry, text: str) -> Edit:
    value = entry.value
    assert isinstance(value, Scalar)
    return new_value(settings.path, Scalar(value.start, value.end, value.value, ""), text)


def _added(settings: TrainerSettings, first: Entry, entries: dict[str, str]) -> Iterator[Edit]:
    """Yield the edit that puts entries before the first one that stays."""
    line = settings.text[: first.start].rpartition("\n")[2]
    comma = "," if settings.mapping.flow else ""
    between = f"{comma}\n{line}" if not line.strip() else f"{comma} "
    quote = first.key.quote
    text = "".join(f"{quote}{name}{quote}: {value}{between}" for name, value in entries.items())
    if text:
        yield Edit(Span(settings.path, first.start, first.start), text)
