"""The contract, clause by clause: what a run has to show, judged on its evidence alone."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import Clause

CLAUSES: tuple[Clause, ...] = ()
"""Every clause, in the order of a training program's life."""
