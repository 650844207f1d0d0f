"""Settings of FSDP in training arguments that do not turn FSDP on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.trainer import SECTION, TrainerSettings
from fsdplint.engine.facts.training_arguments import training_arguments
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.transformers_settings import ARGUMENT, WITHOUT_FSDP
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD923",
    summary="training arguments have `fsdp_config`, but no `fsdp`",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in training_arguments(program):
        yield from trainer_reports(settings)


def trainer_reports(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report if no release of the project reads any of the settings."""
    section = settings.section
    absent = settings.fsdp is None and settings.is_whole
    if section is None or not absent or settings.is_for_xla:
        return
    if not settings.settings or settings.mapping.merged or _have_effect(settings):
        return
    yield Report(
        settings.span(section.key),
        f"{settings.transformers} does not use `{SECTION}` without `{ARGUMENT}`: unless "
        "`accelerate launch` turns FSDP on, the model is not sharded",
        "is not used",
        (),
        partial(_fix, settings),
    )


def _have_effect(settings: TrainerSettings) -> bool:
    return any(
        release.has_effect(setting.name, WITHOUT_FSDP)
        for release in settings.releases
        for setting in settings.settings
    )


def _fix(settings: TrainerSettings) -> Fix | Declined:
    section = settings.section
    assert section is not None  # it is what is reported
    line = settings.text[: section.start].rpartition("\n")[2]
    if settings.is_python:
        text = "fsdp=True, " if line.strip() else f"fsdp=True,\n{line}"
    elif line:
        return Declined("the file is written in braces; add `fsdp: true` by hand")
    else:
        text = "fsdp: true\r\n" if "\r\n" in settings.text else "fsdp: true\n"
    edit = Edit(Span(settings.path, section.start, section.start), text)
    return Fix("turn FSDP on", Safety.UNSAFE, (edit,))
