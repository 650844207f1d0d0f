"""Values that accelerate refuses."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig, Setting
from fsdplint.configs.edits import insertion, new_value
from fsdplint.configs.nodes import Mapping, Scalar, Sequence
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import (
    BOOLEANS,
    CHECKPOINTING,
    CLASSES,
    OFFLOAD_ACTIVATIONS,
    POLICY,
    SIZE,
    WRAPS_BY_SIZE,
    WRAPS_CLASSES,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD904",
    summary="accelerate refuses the value of a setting",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report for each value that no release of the project takes."""
    version = config.version
    if not config.shards:
        return
    number = config.get("fsdp_version")
    if version is None and number is not None and number.word:
        yield _report(config, number, "FSDP has the versions 1 and 2", ("1", "2"))
    if version is None:
        return
    yield from _offload(config)
    policy = config.get(POLICY)
    by_size = policy is not None and policy.word == WRAPS_BY_SIZE
    for setting in config.settings:
        if setting.name == SIZE and not by_size:
            continue
        if setting.name == CLASSES:
            yield from _classes(config, setting)
        elif config.refuses(setting, version):
            words = config.words(setting.name, version)
            yield _report(config, setting, f"it takes {_listed(words)}", words)


def _offload(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report if activations are to be offloaded that are not checkpointed."""
    offload, checkpoint = config.get(OFFLOAD_ACTIVATIONS), config.get(CHECKPOINTING)
    if offload is None or not offload.is_on or config.version != 2 or config.mapping.merged:
        return
    if checkpoint is not None and (checkpoint.is_on or not checkpoint.word):
        return
    if not config.have_effect(OFFLOAD_ACTIVATIONS, 2):
        return

    def fix() -> Fix | Declined:
        if checkpoint is None:
            edit = insertion(config.path, config.text, config.mapping, CHECKPOINTING, "true")
        elif isinstance(checkpoint.entry.value, Scalar):
            edit = new_value(config.path, checkpoint.entry.value, "true")
        else:
            return Declined("the other setting is no word; correct it by hand")
        return Fix(f"set `{CHECKPOINTING}: true`", Safety.UNSAFE, (edit,))

    yield Report(
        config.span(offload.entry),
        f"accelerate refuses `{config.shown(offload)}` without `{CHECKPOINTING}: true`",
        "is refused",
        (Evidence(config.span(checkpoint.entry), "this is not on"),) if checkpoint else (),
        fix,
    )


def _listed(words: tuple[str, ...]) -> str:
    """Return how users write the words that a setting takes."""
    if set(words) >= BOOLEANS:
        return "true or false"
    names = [word for word in words if not word.isdigit() and word != "NULL"]
    return ", ".join(names) if names else "an integer"


def _report(
    config: AccelerateConfig, setting: Setting, takes: str, words: tuple[str, ...]
) -> Report:
    return Report(
        config.span(setting.entry),
        f"accelerate refuses `{config.shown(setting)}`: {takes}",
        "is refused",
        (),
        partial(_fix, config, setting, words),
    )


def _fix(config: AccelerateConfig, setting: Setting, words: tuple[str, ...]) -> Fix | Declined:
    value = setting.entry.value
    names = [word for word in words if not word.isdigit()]
    close = get_close_matches(setting.word, names, 1, 0.6)
    if not close or not isinstance(value, Scalar):
        return Declined(f"the intended value is unclear; choose one by hand: {_listed(words)}")
    word = close[0].lower() if close[0] in BOOLEANS else close[0]
    edit = new_value(config.path, value, word)
    return Fix(f"set `{setting.entry.name}: {word}`", Safety.UNSAFE, (edit,))


def _classes(config: AccelerateConfig, setting: Setting) -> Iterator[Report]:
    """Yield a report if the names of classes to wrap cannot be those of classes."""
    policy, value = config.get(POLICY), setting.entry.value
    if policy is None or policy.word != WRAPS_CLASSES or isinstance(value, Mapping):
        return
    if isinstance(value, Sequence):
        items = [item.value for item in value.items if isinstance(item, Scalar)]
        names = [name for name in items if isinstance(name, str)]
        known = len(names) == len(value.items)
        reason = "accelerate wants one text, in which commas separate them"
    else:
        if not isinstance(value.value, str):
            return
        names = value.value.split(",")
        if all(name and name == name.strip() for name in names):
            return
        known = bool(value.value.strip())
        reason = "the blanks count as parts of them" if known else "it is empty"
    yield Report(
        config.span(setting.entry),
        f"`{setting.entry.name}` names no class of the model, since {reason}: every rank fails",
        "names no class",
        (Evidence(config.span(policy.entry), "this wraps the classes"),),
        partial(_with_names, config, setting, names if known else []),
    )


def _with_names(config: AccelerateConfig, setting: Setting, names: list[str]) -> Fix | Declined:
    value = setting.entry.value
    text = ",".join(name.strip() for name in names if name.strip())
    if not text or isinstance(value, Mapping):
        return Declined("the classes are not known; name them by hand, or remove the setting")
    if config.mapping.flow and not (isinstance(value, Scalar) and value.quote):
        text = f'"{text}"'
    edit = new_value(config.path, value, text)
    return Fix(f"set `{setting.entry.name}: {text}`", Safety.UNSAFE, (edit,))
