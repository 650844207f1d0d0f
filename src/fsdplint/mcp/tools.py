"""What the tools do: the commands, as functions from arguments to JSON objects.

Their docstrings are what a coding agent reads. Paths are relative to the working directory, which
is the server's root.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, Literal, ParamSpec

import click

from fsdplint.cache.ir_pack import Packs
from fsdplint.check import inspect as understand
from fsdplint.cli.changes import written
from fsdplint.cli.explain import diagnosis, rule_as_json
from fsdplint.cli.plan import Plan
from fsdplint.fixes.apply import fixed
from fsdplint.outcome import Outcome
from fsdplint.report import render
from fsdplint.report.diagnosis import diagnosis_as_json
from fsdplint.report.diff import diff
from fsdplint.report.inspection import inspection_as_json
from fsdplint.report.places import shown
from fsdplint.report.style import plain
from fsdplint.settings.config import groups_for, select_rules
from fsdplint.suppression.baseline import load
from fsdplint.verify.command import below, ensure_torch
from fsdplint.verify.request import Request

Object = dict[str, Any]
P = ParamSpec("P")

# Each call has a thread, and an analysis is not made to run beside another one.
_analysis = Lock()


def _alone(tool: Callable[P, Object]) -> Callable[P, Object]:
    """Return ``tool`` as one that waits for other analyses."""

    @wraps(tool)
    def run(*args: P.args, **kwargs: P.kwargs) -> Object:
        with _analysis:
            return tool(*args, **kwargs)

    return run


@_alone
def check(paths: list[str] | None = None, select: list[str] | None = None) -> Object:
    """Find mistakes in PyTorch FSDP training code without running it.

    Each finding has its rule, place, message, evidence (the other places that make it true), and
    its fix or the reason why there is none. `partly` lists where findings may be missing.

    Args:
        paths: files and folders in the root; all of it by default.
        select: names, codes or code prefixes of the rules to run, such as FSD3; by default those
            of the project's settings.
    """
    return _compact(_plan(paths, select).recheck({}))


@_alone
def explain(
    rule: str | None = None, error: str | None = None, paths: list[str] | None = None
) -> Object:
    """Explain a rule, or the cause of an error message or log. Give one of them.

    Args:
        rule: the name or code of a rule; the result has its page with examples.
        error: a traceback or a log; the result names the rules and causes that it belongs to.
        paths: with error: files and folders in the root in which to look for these rules.
    """
    if rule is not None and error is None:
        return rule_as_json(rule)
    if error is None or rule is not None:
        raise click.UsageError("explain requires either a rule or an error")
    return _loaded(diagnosis_as_json(*diagnosis(error, tuple(_inside(paths or [])))))


@_alone
def inspect(script: str) -> Object:
    """Show which models, sharding, and optimizers fsdplint sees in a script, without running it.

    Args:
        script: a file in the root.
    """
    (path,) = _inside([script])
    return _loaded(inspection_as_json(*understand(path)))


def verify(
    script: str,
    arguments: list[str] | None = None,
    nproc: int = 2,
    steps: int | None = 3,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    timeout: float = 300,
    shrink: bool = False,
    reference: bool = False,
) -> Object:
    """Run a training script on several ranks and check the FSDP contract. This executes the code.

    The script runs in a scratch copy of the root; files that it writes elsewhere stay. It needs no
    GPU. Each violation has what was observed, where, and a fix.

    Args:
        script: a script or notebook in the root.
        arguments: the script's own arguments.
        nproc: number of ranks.
        steps: optimizer steps after which to stop; null runs the script to its end.
        device: cpu also runs scripts written for CUDA; auto is cuda if there is a GPU per rank.
        timeout: seconds that the run may take.
        shrink: build models that take a configuration with fewer layers and a smaller width.
        reference: compare with a run without sharding.
    """
    from fsdplint.verify import run
    from fsdplint.verify.remedies import with_remedies
    from fsdplint.verify.report.compact import as_compact
    from fsdplint.verify.workspace import VerifyError

    ensure_torch()
    if nproc < 1 or timeout <= 0 or (steps is not None and steps < 1):
        raise click.UsageError("nproc, steps and timeout must be above 0")
    here = Path.cwd()
    (path,) = _inside([script])
    request = Request(
        below(path, here),
        tuple(arguments or ()),
        nproc,
        steps,
        device,
        timeout,
        reference=reference,
        shrink=shrink,
    )
    try:
        verification = run.verify(request, here)
    except VerifyError as error:
        raise click.ClickException(str(error)) from error
    with _analysis:
        return _loaded(as_compact(with_remedies(verification, here)))


@_alone
def fix(
    paths: list[str] | None = None, select: list[str] | None = None, unsafe: bool = False
) -> Object:
    """Apply the fixes of findings and write the files.

    The result has the rules of the fixed findings, the diff, and what is left to find.

    Args:
        paths: files and folders in the root; all of it by default.
        select: names, codes or code prefixes of the rules to fix, such as FSD3.
        unsafe: also apply unsafe fixes, whose diff somebody has to read.
    """
    plan = _plan(paths, select)
    changes = fixed(plan.recheck({}), plan.recheck, unsafe)
    _inside(before.path for before, _ in changes.files)
    changes = written(changes, plan.recheck, at_once=False)
    return {
        "fixed": [finding.rule for finding in changes.fixed],
        "diff": diff(changes, plain),
        "notes": [f"{shown(changes.outcome, path)}: {note}" for path, note in changes.notes],
        "left": _compact(changes.outcome),
    }


def _plan(paths: Sequence[str] | None, select: Sequence[str] | None) -> Plan:
    """Return what to check: the paths with the settings and baselines of their projects."""
    groups = tuple(
        replace(group, settings=select_rules(group.settings, select or ()))
        for group in groups_for(_inside(paths or ["."]), None, False)
    )
    files = (group.settings.baseline for group in groups)
    baselines = tuple(load(file) if file else None for file in files)
    return Plan(groups, baselines, {}, Packs(on_disk=False))


def _inside(paths: Iterable[str]) -> list[str]:
    """Return ``paths``, all of which are in the root, also when symbolic links are resolved.

    Raises:
        click.UsageError: one is not.
    """
    root = Path.cwd().resolve()
    made = list(paths)
    for path in made:
        if "\0" in path or not Path(path).resolve().is_relative_to(root):
            raise click.UsageError(f"{path!r} is outside {root}, the root of this server")
    return made


def _compact(outcome: Outcome) -> Object:
    return _loaded(render(outcome, "compact"))


def _loaded(text: str) -> Object:
    document: Object = json.loads(text)
    return document
