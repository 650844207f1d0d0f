"""The contract, clause by clause: what a run has to show, judged on its evidence alone."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import Clause
from fsdplint.verify.clauses.collectives import collectives
from fsdplint.verify.clauses.copies import replicas, ties
from fsdplint.verify.clauses.forward import forward
from fsdplint.verify.clauses.fsdp1 import fsdp1_calls
from fsdplint.verify.clauses.gradients import accumulation, gradients
from fsdplint.verify.clauses.launch import device_per_rank
from fsdplint.verify.clauses.numbers import gradient_norm, loss, reductions
from fsdplint.verify.clauses.optimizer import optimizer, parameters_change
from fsdplint.verify.clauses.saves import saves
from fsdplint.verify.clauses.sharding import blocks, coverage, sharding_order, units

CLAUSES: tuple[Clause, ...] = (
    device_per_rank,
    collectives,
    sharding_order,
    units,
    blocks,
    coverage,
    ties,
    optimizer,
    forward,
    gradients,
    accumulation,
    parameters_change,
    replicas,
    loss,
    gradient_norm,
    reductions,
    saves,
    fsdp1_calls,
)
"""Every clause, in the order of a training program's life."""
