"""Config files and launch lines of accelerate by which a program shards with FSDP1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.launched import config_file, named_file, python_file, settings_with, turned_on
from fsdplint.configs.nodes import Scalar
from fsdplint.finding import Fix, Span
from fsdplint.knowledge.accelerate_settings import (
    BUFFERS_REFUSED,
    NO_FSDP2,
    NOT_HANDED_OUT,
    PRECISION_WITH_2,
    RAM_EFFICIENT,
    SYNC,
    VERSION,
    has_fsdp2,
)
from fsdplint.migrate.step import Change, Context, Found, Kept, Question
from fsdplint.rules.fsdp1_config import config_reports


def launches(context: Context) -> Iterator[Found]:
    """Yield a change for each config file that the program is launched with, and by rule FSD908.

    A file that no launch line names is asked about, unless it is given.
    """
    for path, value in context.configs.items():
        if isinstance(value, AccelerateConfig):
            yield from _converted(context, path, value)
        elif isinstance(value, LaunchScript):
            yield from _lines(context, value)


def _converted(context: Context, path: str, config: AccelerateConfig) -> Iterator[Found]:
    by = set(_launched_by(context, path))
    if path not in context.given and by and context.files.isdisjoint(by):
        return
    if config.shards and config.version == 1 and not has_fsdp2(config.releases):
        yield Kept(config.span(config.section.key), "the settings of FSDP1", NO_FSDP2)
    for report in config_reports(config):
        question = launched_with(context, report.span)
        if question is not None and not by and context.answer(question) != "yes":
            yield question
            continue
        fix = report.fix()
        if isinstance(fix, Fix):
            differs = "; ".join([*_loading(config), *_precision(config), *_shared(context, by)])
            yield Change(report.span, fix.title, fix.edits, differs=differs)
        else:
            yield Kept(report.span, "the settings of FSDP1", fix.reason)


def launched_with(context: Context, place: Span) -> Question | None:
    """Return the question whether a file is for the program, None if the file is given."""
    if place.path in context.given:
        return None
    text = f"Is the program launched with `{Path(place.path).name}`?"
    return Question(place, "launched-with", text, ("yes", "no"))


def _loading(config: AccelerateConfig) -> Iterator[str]:
    """Yield what is different where rank 0 hands out its weights, as it does by default."""
    loading = config.get(RAM_EFFICIENT)
    if loading is None or loading.is_on:
        yield BUFFERS_REFUSED.format(name=RAM_EFFICIENT)
    elif (sync := config.get(SYNC)) is None or sync.is_on:
        yield NOT_HANDED_OUT


def _precision(config: AccelerateConfig) -> Iterator[str]:
    entry = config.root.get("mixed_precision")
    value = entry.value if entry else None
    if isinstance(value, Scalar) and value.value not in ("no", False, None):
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
                yield python_file(script, launch)


def _lines(context: Context, script: LaunchScript) -> Iterator[Found]:
    """Yield the launch lines whose own options turn on FSDP1, which no rule rewrites."""
    for launch in script.launches:
        ours = python_file(script, launch) in context.files or script.path in context.given
        file = config_file(script, launch)
        if ours and turned_on(launch, file) and _by_options(launch):
            settings = settings_with(script, launch, file)
            if settings.version == 1:
                reason = (
                    "its options shard with FSDP1; add `--fsdp_version 2`, and remove or change "
                    "the other `--fsdp_` options as `accelerate to-fsdp2` does, by hand"
                )
                span = Span(script.path, launch.start, launch.end)
                yield Kept(span, "`accelerate launch`", reason)


def _by_options(launch: Launch) -> bool:
    """Return whether a line sets FSDP itself, beside or without a config file."""
    return launch.get("use_fsdp") is not None or any(
        each.name.startswith("fsdp_") for each in launch.options if each.name != VERSION
    )
