"""Settings of `parallelism_config` that accelerate does not read."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.edits import removal, renaming
from fsdplint.configs.nodes import Entry
from fsdplint.configs.parallelism import Parallelism, read
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import PARALLELISM
from fsdplint.knowledge.parallelism_settings import PREFIX, SIZES
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD925",
    summary="accelerate does not read a setting of `parallelism_config`",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
    preview="Few public files have the section, so only examples and proofs tell how precise the "
    "rule is.",
)


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report for each setting that no release of the project reads."""
    found = read(config)
    if found is None:
        return
    sized = found.mapping.merged or any(found.mapping.get(name) for name in SIZES)
    for entry in found.mapping.entries:
        if not entry.name or found.is_read(entry.name):
            continue
        name = _close(found, entry)
        hint = f": it reads `{name}`" if name else ": it has no such setting"
        # Without a mesh FSDP shards over all ranks, source: accelerate 1.15, `utils/fsdp_utils.py`.
        harm = "" if sized or name not in SIZES else ", and the model is sharded over all ranks"
        yield Report(
            config.span(entry.key),
            f"{config.accelerate} ignores `{entry.name}` without a message{hint}{harm}",
            "is ignored",
            (),
            partial(_fix, config, found, entry, name),
        )


def _close(found: Parallelism, entry: Entry) -> str:
    """Return the setting that is evidently meant, "" if none is."""
    full = entry.name if entry.name.startswith(PREFIX) else PREFIX + entry.name
    close = get_close_matches(full, found.names, 1, 0.9)
    return close[0] if close else ""


def _fix(config: AccelerateConfig, found: Parallelism, entry: Entry, name: str) -> Fix | Declined:
    if name and found.mapping.get(name) is None and not found.mapping.merged:
        edit = renaming(config.path, entry, name)
        return Fix(f"rename it to `{name}`", Safety.UNSAFE, (edit,))
    made = removal(config.path, config.text, found.mapping, entry)
    if made is None:
        return Declined(f"it is the only setting; remove `{PARALLELISM}` by hand")
    return Fix("remove the setting", made[1], (made[0],))
