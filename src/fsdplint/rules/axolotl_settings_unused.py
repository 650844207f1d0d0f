"""Settings of FSDP in files for axolotl that do not turn FSDP on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.axolotl import AxolotlSettings, is_on
from fsdplint.configs.nodes import Entry
from fsdplint.finding import Edit, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import VERSION, WRAPS_CLASSES
from fsdplint.knowledge.axolotl_settings import (
    DEEPSPEED,
    POLICY,
    SECTION,
    SECTION_SHARDS,
    VERSION_SHARDS,
)
from fsdplint.knowledge.transformers_settings import ARGUMENT
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD952",
    summary="a file for axolotl has settings of FSDP that do not turn it on",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="No public file examined so far makes this mistake.",
)

_TURNED_ON = f"{ARGUMENT}:\n  - full_shard\n  - auto_wrap\n"
_NEEDED = f"{SECTION}:\n  {POLICY}: {WRAPS_CLASSES}\n"


def axolotl_reports(settings: AxolotlSettings) -> Iterator[Report]:
    """Yield a report if no release of the project shards though settings ask for it."""
    version, other = settings.beside(VERSION), settings.beside(DEEPSPEED)
    if (
        settings.root.merged
        or settings.words != ()
        or (other and other.entry.value is not None and is_on(other))
    ):
        return
    if settings.mapping.entries:
        # A list that is there and empty turns FSDP off on purpose.
        if settings.root.get(ARGUMENT) is None and settings.none_reads(SECTION_SHARDS):
            section = settings.section
            assert section is not None  # it has the entries
            yield _report(settings, section, f"`{SECTION}` without `{ARGUMENT}`", _TURNED_ON)
    elif version and version.word in ("1", "2") and settings.none_reads(VERSION_SHARDS):
        text = f"`{settings.shown(version.entry)}` without settings in `{SECTION}`"
        yield _report(settings, version.entry, text, "" if settings.section else _NEEDED)


def _report(settings: AxolotlSettings, entry: Entry, what: str, more: str) -> Report:
    return Report(
        settings.span(entry.key),
        f"{settings.axolotl} does not shard with {what}: unless `accelerate launch` turns FSDP on, "
        "each GPU holds the whole model",
        "does not turn FSDP on",
        (),
        partial(_fix, settings, entry, more),
    )


def _fix(settings: AxolotlSettings, entry: Entry, more: str) -> Fix | Declined:
    if not more or settings.root.flow:
        return Declined(f"give `{SECTION}` settings by hand")
    newline = "\r\n" if "\r\n" in settings.text else "\n"
    edit = Edit(Span(settings.path, entry.start, entry.start), more.replace("\n", newline))
    return Fix("turn FSDP on", Safety.UNSAFE, (edit,))
