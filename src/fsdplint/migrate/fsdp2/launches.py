"""Config files of accelerate by which a program shards with FSDP1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.launch_lines import LaunchScript
from fsdplint.configs.launched import named_file, program_file
from fsdplint.configs.nodes import Scalar
from fsdplint.configs.versions import RESHARD
from fsdplint.finding import Fix
from fsdplint.knowledge.accelerate_settings import (
    BUFFERS_REFUSED,
    NO_FSDP2,
    NOT_HANDED_OUT,
    PRECISION_WITH_2,
    RAM_EFFICIENT,
    RESHARD_APPLIES_WITH_2,
    RESHARDS,
    STRATEGIES,
    SYNC,
    has_fsdp2,
)
from fsdplint.migrate.step import Change, Context, Found, Kept, Question
from fsdplint.rules.fsdp1_config import config_reports


def launches(context: Context) -> Iterator[Found]:
    """Yield a change for each config file that the program is launched with, by rule FSD908.

    A file that no launch line names is asked about, unless it is given.
    """
    for path, value in context.configs.items():
        if isinstance(value, AccelerateConfig):
            yield from _converted(context, path, value)


def _converted(context: Context, path: str, config: AccelerateConfig) -> Iterator[Found]:
    by = set(_launched_by(context, path))
    ours = not context.files.isdisjoint(by)
    if path not in context.given and by and not ours and "" not in by:
        return
    if config.shards and config.version == 1 and not has_fsdp2(config.releases):
        yield Kept(config.span(config.section.key), "the settings of FSDP1", NO_FSDP2)
    for report in config_reports(config):
        fix = report.fix()
        found: Found = Kept(report.span, "the settings of FSDP1", getattr(fix, "reason", ""))
        if isinstance(fix, Fix):
            entry = config.root.get("mixed_precision")
            value = entry.value if entry else None
            precision = value.value if isinstance(value, Scalar) else None
            differs = "; ".join([*differences(config, precision), *_shared(context, by)])
            found = Change(report.span, fix.title, fix.edits, differs=differs)
        yield from (found,) if ours else if_launched(context, found)


def if_launched(context: Context, found: Found) -> Iterator[Found]:
    """Yield what is found in a file, or the question whether the program is launched with it."""
    if found.span.path in context.given:
        yield found
        return
    text = f"Is the program launched with `{Path(found.span.path).name}`?"
    question = Question(found.span, "launched-with", text, ("yes", "no"))
    answer = context.answer(question)
    if answer != "no":
        yield question if answer is None else found


def differences(config: AccelerateConfig, precision: object) -> Iterator[str]:
    """Yield what is different where accelerate shards with FSDP2.

    Args:
        precision: the value of `mixed_precision`.
    """
    loading, sync = config.get(RAM_EFFICIENT), config.get(SYNC)
    # Both are on by default.
    if loading is None or loading.is_on:
        yield BUFFERS_REFUSED.format(name=RAM_EFFICIENT)
    elif sync is None or sync.is_on:
        yield NOT_HANDED_OUT
    reshard = config.get(RESHARD)
    if reshard and RESHARDS.get(STRATEGIES.get(reshard.word, "")) is False:
        yield RESHARD_APPLIES_WITH_2
    if precision not in ("no", False, None):
        yield PRECISION_WITH_2


def _shared(context: Context, scripts: set[str]) -> Iterator[str]:
    others = sorted(Path(path).name for path in scripts - context.files)
    if others:
        yield f"it also launches {', '.join(f'`{each}`' for each in others)}"


def _launched_by(context: Context, path: str) -> Iterator[str]:
    """Yield the Python files that launch lines start with a config file; "" for one unknown."""
    scripts = [each for each in context.configs.values() if isinstance(each, LaunchScript)]
    for script in scripts:
        for launch in script.launches:
            option = launch.get("config_file")
            if option is not None and named_file(script, option.value or "") == path:
                yield program_file(script, launch)
