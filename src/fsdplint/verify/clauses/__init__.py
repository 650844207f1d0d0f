"""The contract, clause by clause, judged on the evidence of a run alone."""

from __future__ import annotations

from fsdplint.verify.clauses import equivalence, resume
from fsdplint.verify.clauses.async_saves import async_saves
from fsdplint.verify.clauses.clause import Clause
from fsdplint.verify.clauses.collectives import collectives, device_per_rank
from fsdplint.verify.clauses.copies import replicas, ties
from fsdplint.verify.clauses.data import data
from fsdplint.verify.clauses.initialisation import initialised
from fsdplint.verify.clauses.numbers import gradient_norm, loss, reductions
from fsdplint.verify.clauses.saves import saves
from fsdplint.verify.clauses.sharding import blocks, coverage, fsdp1_calls, sharding_order, units
from fsdplint.verify.clauses.shards import shards
from fsdplint.verify.clauses.steps import (
    accumulation,
    forward,
    gradients,
    optimizer,
    parameters_change,
)

CLAUSES: tuple[Clause, ...] = (
    device_per_rank,
    collectives,
    sharding_order,
    units,
    blocks,
    coverage,
    ties,
    initialised,
    optimizer,
    forward,
    data,
    gradients,
    shards,
    accumulation,
    parameters_change,
    replicas,
    loss,
    gradient_norm,
    reductions,
    saves,
    async_saves,
    fsdp1_calls,
)
"""Every clause, in the order of a training program's life."""
NAMES = (*(clause.name for clause in CLAUSES), equivalence.NAME, resume.NAME)
"""Theirs, with those that compare two runs."""
