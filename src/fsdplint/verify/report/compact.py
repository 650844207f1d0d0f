"""A verification as short JSON, for coding agents and other readers with little room.

The document is an object: ``version`` (1; it increases when a member is removed or changes its
meaning, not when one is added), ``summary`` (the last line of the text report), ``exit_code``,
``violations``, ``confirmed`` and ``not_exercised`` (names of clauses), ``failure`` and ``notes``.

A violation has ``clause``, ``contract``, ``observed``, ``details`` (further lines), ``at`` (a list
of ``path:line``, the one to look at first leading), ``rule``, ``fix`` (what to do) and ``command``
(what to run), each of the last three empty if unknown.

``failure`` is null, or has ``reason`` (why the script did not finish, with the traceback of the
rank that failed first), ``rule``, ``fix`` and ``command``.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from fsdplint.verify.report.ending import summary
from fsdplint.verify.verdict import Remedy, Status, Verdict, Verification

_NONE = Remedy("", "", "")


def as_compact(verification: Verification) -> str:
    """Return the document that the module describes."""
    document = {
        "version": 1,
        "summary": summary(verification),
        "exit_code": verification.exit_code,
        "violations": [_violation(verification, verdict) for verdict in verification.violated],
        "confirmed": _named(verification, Status.CONFIRMED),
        "not_exercised": _named(verification, Status.NOT_EXERCISED),
        "failure": _failure(verification),
        "notes": verification.notes,
    }
    return json.dumps(document) + "\n"


def _violation(verification: Verification, verdict: Verdict) -> dict[str, object]:
    return {
        "clause": verdict.clause,
        "contract": verdict.contract,
        "observed": verdict.figures,
        "details": verdict.details,
        "at": [f"{place.path}:{place.line}" for place in verdict.places],
        **asdict(verification.remedies.get(verdict.clause, _NONE)),
    }


def _named(verification: Verification, status: Status) -> list[str]:
    return [verdict.clause for verdict in verification.verdicts if verdict.status is status]


def _failure(verification: Verification) -> dict[str, str] | None:
    if not verification.failure:
        return None
    remedy = verification.remedies.get("", _NONE)
    return {"reason": verification.failure, **asdict(remedy)}
