"""A verification as JSON, for other programs.

The document is an object: ``version`` (1; it increases when a member is removed or changes its
meaning, not when one is added), ``summary`` (the last line of the text report), ``script``,
``arguments``, ``torch`` and ``device`` (empty where no rank began),
``world_size``, ``seconds``, ``exit_code``, ``violated`` (the names of the clauses that are),
``failure`` (why the script did not finish, or null), ``notes``, ``verdicts``,
``remedies``, ``sharding``, ``ranks`` and ``snapshots``.

A verdict has ``clause``, ``contract``, ``status`` (confirmed, violated or not exercised),
``figures`` (what was seen; where not exercised, why), ``details`` (further lines) and ``places``
(a list of ``path``, ``line`` from 1, and ``function``, the line to look at first leading; in a
notebook the path ends with the cell, as in ``train.ipynb:cell 3``, and the line is the cell's).

A remedy has ``clause`` (null for that of the failure), ``rule`` (the name of the rule that it
belongs to, with where that finds it, or several names), ``fix`` (what to do) and ``command`` (what
to run), each empty where it is not known.

``sharding`` is a list of models: ``class``, ``units``, ``parameters``, ``elements``, and
``kept``: per ``rank`` the ``elements`` it keeps and their ``share`` of the model (0 to 1).

``failed`` lists the ranks that failed by themselves, the one that failed first leading.

A rank has ``rank``, ``device``, ``steps``, ``ended`` (steps, script, crash, exit, stuck, died,
working or waiting where time ran out, stopped or unmappable), ``error`` (its traceback, or null),
``exit_status`` (of a process that died: a number below 0 is a signal's; else null), ``output`` (its
last lines), ``memory`` (null, or bytes: ``process``, its peak, ``before``, that when the script
began, and ``cuda``) and
``communication``: a list of ``operation``, ``calls`` and ``bytes``.

``snapshots`` is a list of ``rank`` and ``models``, the models as that rank saw them at its first
optimizer step, with the members of `fsdplint.verify.events.Snapshot`.

Paths are relative to the working directory if they lie in it.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from fsdplint.verify.report.ending import summary
from fsdplint.verify.report.sharding import Model, models
from fsdplint.verify.verdict import RankSummary, Verdict, Verification


def as_json(verification: Verification) -> str:
    """Return the document that the module describes."""
    document = {
        "version": 1,
        "summary": summary(verification),
        "script": verification.script,
        "arguments": verification.arguments,
        "torch": verification.torch,
        "device": verification.device,
        "world_size": verification.world_size,
        "seconds": round(verification.seconds, 3),
        "exit_code": verification.exit_code,
        "violated": [verdict.clause for verdict in verification.violated],
        "failure": verification.failure or None,
        "failed": verification.failed,
        "notes": verification.notes,
        "verdicts": [_verdict(verdict) for verdict in verification.verdicts],
        "remedies": [
            {"clause": clause or None, **asdict(remedy)}
            for clause, remedy in verification.remedies.items()
        ],
        "sharding": [_model(model) for model in models(verification)],
        "ranks": [_rank(rank) for rank in verification.ranks],
        "snapshots": [
            {"rank": rank, "models": [asdict(snapshot) for snapshot in snapshots]}
            for rank, snapshots in sorted(verification.snapshots.items())
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _verdict(verdict: Verdict) -> dict[str, object]:
    """Return one verdict as the document has it; its fix is the remedy's."""
    members = asdict(verdict) | {"status": verdict.status.value}
    del members["fix"]
    return members


def _model(model: Model) -> dict[str, object]:
    return {
        "class": model.cls,
        "units": model.units,
        "parameters": len(model.pieces),
        "elements": model.elements,
        "kept": [
            {"rank": rank, "elements": part, "share": round(part / model.elements, 6)}
            for rank, part in model.kept
            if model.elements
        ],
    }


def _rank(rank: RankSummary) -> dict[str, object]:
    """Return one rank as the document has it."""
    return {
        "rank": rank.rank,
        "device": rank.device,
        "steps": rank.steps,
        "ended": rank.ended,
        "error": rank.error or None,
        "exit_status": rank.status,
        "output": rank.output,
        "memory": asdict(rank.memory) if rank.memory else None,
        "communication": [
            {"operation": each.operation, "calls": each.calls, "bytes": each.size}
            for each in rank.traffic
        ],
    }
