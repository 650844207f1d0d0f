"""A file with the existing findings of a project, so that only new ones are reported.

The file is JSON: ``version`` (1) and ``findings``, sorted, one on a line, each with its ``path``
relative to the file's directory, its ``rule``, its ``code`` and, of equal ones, its
``occurrence``. A finding is known by these and not by its line, as in `fsdplint.fingerprint`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import absolute, regular
from fsdplint.finding import Finding
from fsdplint.fingerprint import Identity, identities
from fsdplint.outcome import Outcome
from fsdplint.settings.config import Settings
from fsdplint.suppression.comments import NEVER_SUPPRESSED

NAME = "fsdplint-baseline.json"
_VERSION = 1
_MAX_SIZE = 20_000_000  # bytes, of some 100,000 findings


class BaselineError(Exception):
    """A file that is not a baseline; the message is one line that names the file."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings of the baseline at the absolute path ``file``, in any order."""

    file: str
    known: tuple[Identity, ...] = ()

    def path(self, known: Identity) -> str:
        """Return the absolute path of the file that a finding is in."""
        return absolute(Path(self.file).parent / known.path)

    def identities(self, outcome: Outcome) -> Mapping[Finding, Identity]:
        """Return the identities, relative to the baseline, of the findings that it may contain."""
        found = identities(outcome, Path(self.file).parent.as_posix())
        return {f: known for f, known in found.items() if f.rule not in NEVER_SUPPRESSED}


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a run: the rules of ``settings``, at and below ``paths``."""

    paths: Sequence[str]
    settings: Settings

    def holds(self, path: str, rule: str) -> bool:
        """Return whether the run would report a finding of ``rule`` in the absolute ``path``."""
        from fsdplint.rules import RULES

        given = (absolute(given).rstrip("/") for given in self.paths)
        within = any(path == root or path.startswith(f"{root}/") for root in given)
        exists = any(rule == known.name for known in RULES)
        return within and (not exists or rule in self.settings.enabled(path))


def load(file: str) -> Baseline:
    """Return the baseline in ``file``.

    Raises:
        BaselineError: it cannot be read, is not a baseline, or has a newer version.
    """
    try:
        document = json.loads(regular(Path(file), _MAX_SIZE))
    except FileNotFoundError as error:
        message = f"{file}: {error.strerror}; run `fsdplint baseline write` to create it"
        raise BaselineError(message) from error
    except OSError as error:
        raise BaselineError(f"{file}: {error.strerror}") from error
    except SourceError as error:
        raise BaselineError(f"{file}: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{file}: not a baseline: {error}") from error
    version = document.get("version") if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise BaselineError(f"{file}: not a baseline: `version` is missing")
    if version > _VERSION:
        raise BaselineError(f"{file}: baseline version {version} requires a newer fsdplint")
    return Baseline(absolute(file), tuple(_read(file, document.get("findings"))))


def text(baseline: Baseline) -> str:
    """Return the text of a baseline's file."""
    order = sorted(baseline.known, key=lambda k: (k.path, k.rule, k.code, k.occurrence))
    lines = ",".join(f"\n    {_line(known)}" for known in order)
    end = "\n  " if lines else ""
    return f'{{\n  "version": {_VERSION},\n  "findings": [{lines}{end}]\n}}\n'


def without(outcome: Outcome, baseline: Baseline) -> Outcome:
    """Return ``outcome`` without the findings of ``baseline``, and with their number.

    Of equal ones, so many from the top are old as there are in the baseline.
    """
    allowed = Counter(known.equal for known in baseline.known)
    found = baseline.identities(outcome)
    old = {f for f, known in found.items() if known.occurrence <= allowed[known.equal]}
    new = tuple(finding for finding in outcome.findings if finding not in old)
    return replace(outcome, findings=new, known=len(old))


def gone(outcome: Outcome, baseline: Baseline, scope: Scope) -> tuple[Identity, ...]:
    """Return what the baseline contains and ``outcome``, which is complete, no longer has.

    Findings outside the run or in files that do not parse are not gone. Nothing is gone if a part
    of the run failed.
    """
    if outcome.failures:
        return ()
    broken = {f.span.path for f in outcome.findings if f.rule in NEVER_SUPPRESSED}
    left = Counter(known.equal for known in baseline.identities(outcome).values())
    missing = []
    for known in sorted(baseline.known, key=lambda known: known.occurrence):
        left[known.equal] -= 1
        path = baseline.path(known)
        if left[known.equal] < 0 and path not in broken and scope.holds(path, known.rule):
            missing.append(known)
    return tuple(missing)


def updated(outcome: Outcome, baseline: Baseline, scope: Scope, add: bool) -> Baseline:
    """Return ``baseline`` with the findings of ``outcome``, and without those that are gone.

    Args:
        add: whether those that are gone stay.
    """
    old = baseline if add else pruned(outcome, baseline, scope)
    found = baseline.identities(outcome).values()
    merged = {(known.equal, known.occurrence): known for known in (*_numbered(old.known), *found)}
    return replace(baseline, known=tuple(merged.values()))


def pruned(outcome: Outcome, baseline: Baseline, scope: Scope) -> Baseline:
    """Return ``baseline`` without what is gone."""
    missing = set(gone(outcome, baseline, scope))
    return replace(baseline, known=tuple(k for k in baseline.known if k not in missing))


def _numbered(known: Iterable[Identity]) -> Iterable[Identity]:
    """Yield ``known`` with equal ones numbered from 1, even if people removed some."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for each in sorted(known, key=lambda each: each.occurrence):
        seen[each.equal] += 1
        yield replace(each, occurrence=seen[each.equal])


def _line(known: Identity) -> str:
    members: dict[str, str | int] = {"path": known.path, "rule": known.rule, "code": known.code}
    if known.occurrence > 1:
        members["occurrence"] = known.occurrence
    line = json.dumps(members, ensure_ascii=False)
    return line if line.isprintable() else json.dumps(members)


def _read(file: str, findings: object) -> Iterable[Identity]:
    if not isinstance(findings, list):
        raise BaselineError(f"{file}: not a baseline: `findings` is not a list")
    # A merge may leave the same line twice.
    yield from dict.fromkeys(_identity(file, n, entry) for n, entry in enumerate(findings, 1))


def _identity(file: str, number: int, entry: object) -> Identity:
    members = entry if isinstance(entry, dict) else {}
    words = [members.get(name) for name in ("path", "rule", "code")]
    occurrence = members.get("occurrence", 1)
    path, rule, code = (word if isinstance(word, str) else None for word in words)
    if path is None or rule is None or code is None or not isinstance(occurrence, int):
        message = "expected strings `path`, `rule` and `code`, and a number `occurrence`"
        raise BaselineError(f"{file}: finding {number}: {message}")
    return Identity(os.path.normpath(path), rule, code, occurrence)
