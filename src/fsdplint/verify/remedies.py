"""What to do about a violated clause or a crash: its rule, the fix, and the command for it.

The rules that a clause or an error belongs to check the script; what they find there leads.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fsdplint.check import check
from fsdplint.finding import Finding, Fix, Safety, Span
from fsdplint.outcome import Outcome
from fsdplint.pages.diagnosis import diagnose, known_errors
from fsdplint.report.places import place
from fsdplint.rules import RULES
from fsdplint.settings.config import ConfigError, settings_for
from fsdplint.settings.rule_selection import EVERYTHING
from fsdplint.verify.verdict import Remedy, Verdict, Verification

FAILURE = ""
"""The name of the remedy for what ended the script."""
_MOST = 3
"""Rules that are named where none of them finds anything."""
FIXES = {
    "device-per-rank": "set each rank's device from `LOCAL_RANK` before any code uses a device",
    "collectives": "move the collective out of code that only some ranks run",
    "sharding-order": "shard inner modules before the modules that contain them",
    "units": "shard over a mesh or process group of several ranks",
    "blocks": "shard each block before the root",
    "coverage": "shard the root last: it takes all parameters that no other unit holds",
    "ties": "put modules that share a parameter into one unit",
    "initialised": "after `to_empty`, load or initialize everything, and keep replicas equal",
    "optimizer": "build the optimizer after the last call that replaces parameters",
    "forward": "call the module, or register the method with `register_fsdp_forward_method`",
    "data": "give the `DataLoader` a `DistributedSampler`, or split the data by rank",
    "gradients": "turn gradient synchronization on before the last backward pass of a step",
    "shards": "remove it: FSDP reduces gradients itself; synchronize values before sharding",
    "accumulation": "call `set_requires_gradient_sync`: FSDP2 has no `no_sync`",
    "parameters-change": "let all ranks take every step, and find what undoes a step",
    "replicas": "change all replicas of a parameter in the same way",
    "loss": "inspect the module named above and its input",
    "gradient-norm": "clip by the global norm of the gradients",
    "reductions": "call `full_tensor()` before reading the number",
    "resume": "save and load everything named above at the same step; restore schedulers and data",
    "saves": "gather the full state on all ranks, or save with `torch.distributed.checkpoint`",
    "async-saves": "call `.result()` before the next save and before `destroy_process_group`",
    "fsdp1-calls": "use the FSDP2 equivalent of the call",
    "equivalence": "inspect the first difference: everything before it is equal",
}
"""For each clause, how to keep it."""
_RELATED = {
    "device-per-rank": ("device-not-set", "global-rank-as-device", "local-rank-argument"),
    "collectives": ("step-skipped-on-one-rank", "save-without-gathered-state"),
    "sharding-order": ("root-sharded-before-children",),
    "async-saves": ("async-save-not-awaited",),
    "ties": ("tied-weights-in-different-groups",),
    "initialised": ("rank-dependent-init",),
    "parameters-change": ("grad-scaler-on-fsdp1", "step-skipped-on-one-rank"),
    "replicas": ("rank-dependent-init", "fsdp1-mesh-not-reduced"),
    "saves": ("checkpoint-path-differs-by-rank", "kept-state-is-live"),
    "resume": (
        "parameters-replaced-after-optimizer",
        "fresh-optimizer-in-dcp-load",
        "optimizer-state-saved-raw",
        "checkpoint-path-differs-by-rank",
    ),
}
"""Rules whose fault can break a clause, beside those that are about it."""


def with_remedies(verification: Verification, directory: Path) -> Verification:
    """Return the verification with what to do about each violated clause, or about its failure.

    Args:
        directory: what the script and all places are relative to.
    """
    wanted = {verdict.clause: rules_of(verdict.clause) for verdict in verification.violated}
    if verification.failure and not wanted:
        wanted[FAILURE] = _of_failure(verification)
    outcome = _checked(
        {name for names in wanted.values() for name in names}, verification, directory
    )
    violated = {verdict.clause: verdict for verdict in verification.violated}
    remedies = {
        clause: _remedy(verification, names, outcome, violated.get(clause), directory)
        for clause, names in wanted.items()
        if names or clause in FIXES
    }
    if FAILURE in wanted and not (outcome and outcome.findings):
        for known in known_errors(failure_text(verification))[:1]:
            named = remedies.get(FAILURE, Remedy("", "", ""))
            remedies[FAILURE] = replace(named, fix=f"{known.error.cause} {known.error.cure}")
    return replace(verification, remedies=remedies)


def rules_of(clause: str) -> list[str]:
    """Return the names of the rules that a violated clause belongs to, its own leading."""
    own = [rule.name for rule in RULES if rule.clause == clause]
    return [*own, *(name for name in _RELATED.get(clause, ()) if name not in own)]


def _of_failure(verification: Verification) -> list[str]:
    return [match.rule.name for match in diagnose(failure_text(verification), RULES)]


def failure_text(verification: Verification) -> str:
    """Return what ended the script, and what the first rank that it ended printed."""
    printed = [rank.output for rank in verification.ranks if rank.rank in verification.failed]
    return "\n".join([verification.failure, *printed[:1]])


def _checked(names: set[str], verification: Verification, directory: Path) -> Outcome | None:
    """Return what these rules find in the script; None without rules, or where it is not known.

    A fix may change only files that are named, so the files of the findings are checked again.
    """
    given = [str(directory / verification.script)]
    try:
        settings = settings_for(given, None, False, EVERYTHING)
    except ConfigError:
        return None
    if not names:
        return None
    settings = replace(settings, select=frozenset(names), per_file_ignores=())
    outcome = check(given, settings)
    paths = {path for finding in outcome.findings for path in finding.paths}
    more = [path for path in sorted(paths) if Path(path).is_relative_to(directory.absolute())]
    return check([*given, *more], settings) if more else outcome


def _remedy(
    verification: Verification,
    names: Sequence[str],
    outcome: Outcome | None,
    verdict: Verdict | None,
    directory: Path,
) -> Remedy:
    """Return the remedy by what the rules find; without a finding, by what is known of them."""
    fix = (verdict.fix or FIXES[verdict.clause]) if verdict else ""
    places = {(p.path, p.line) for p in verdict.places} if verdict else set()
    lines = _lines(outcome, directory, names) if outcome else {}
    if not lines and verdict and verdict.fix:  # it is none of what the rules are about in general
        return Remedy("", fix, "")
    if not lines:
        rule = f"{', '.join(names[:_MOST])} (not found in the code)" if names else ""
        return Remedy(rule, fix, f"fsdplint explain {names[0]}" if names else "")
    finding = min(lines, key=lambda found: (not places & {*lines[found]}, names.index(found.rule)))
    (path, line), *_ = lines[finding]
    rule = f"{finding.rule} at {path}:{line}"
    if finding.fix is None:
        by_hand = f"by hand: {finding.fix_declined}"
        return Remedy(
            rule, "; ".join(filter(None, (fix, by_hand))), f"fsdplint explain {finding.rule}"
        )
    # Runs prove what a clause shows; a script that fails as it is shows none.
    proving = _proving(verification) if verdict else []
    words = _command(verification, finding.fix, finding.rule, directory)
    return Remedy(rule, finding.fix.title, shlex.join([*words, *proving]))


def _lines(
    outcome: Outcome, directory: Path, names: Sequence[str]
) -> Mapping[Finding, list[tuple[str, int]]]:
    """Return the findings of some rules, with the paths and lines that they are about."""
    return {
        finding: [
            _located(outcome, span, directory)
            for span in (finding.span, *(evidence.span for evidence in finding.evidence))
        ]
        for finding in outcome.findings
        if finding.rule in names
    }


def _located(outcome: Outcome, span: Span, directory: Path) -> tuple[str, int]:
    """Return the path, with the cell in a notebook, and the line, as ranks name them."""
    found = place(outcome, span.path, span.start)
    cell = "" if found.cell is None else f":cell {found.cell}"
    return f"{_below(span.path, directory)}{cell}", found.line


def _below(path: str, directory: Path) -> str:
    return path.removeprefix(f"{directory.absolute().as_posix()}/")


def _command(verification: Verification, fix: Fix, rule: str, directory: Path) -> list[str]:
    """Return the words of the command that writes a fix."""
    edited = dict.fromkeys(_below(edit.span.path, directory) for edit in fix.edits)
    files = [verification.script, *(path for path in edited if path != verification.script)]
    unsafe = ["--unsafe-fixes"] if fix.safety is Safety.UNSAFE else []
    return ["fsdplint", "check", *files, "--select", rule, "--fix", *unsafe]


def _proving(verification: Verification) -> list[str]:
    """Return the options that let runs prove a fix."""
    ranks = len(verification.ranks)
    arguments = shlex.join(verification.arguments)
    return [
        "--verify",
        *(["--nproc", str(ranks)] if ranks != 2 else []),
        *(["--verify-args", arguments] if arguments else []),
    ]
