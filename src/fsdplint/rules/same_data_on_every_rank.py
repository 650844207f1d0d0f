"""Every rank trains on the same batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.feeding import SharedData, shared_data
from fsdplint.engine.facts.training_loops import over
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.sampling import Epochs, epochs_of, sample_by_rank
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD801",
    summary="every rank trains on the same batches",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="data",
    preview="two of its three findings on public code were false; their causes are fixed.",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in shared_data(program):
        site = fact.training.loader.site
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` gives every rank the same batches in the "
            "same order: all ranks repeat the work of one, and extra GPUs gain nothing",
            "nothing divides the dataset" if fact.rows else "no sampler divides the dataset",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: SharedData) -> tuple[Evidence, ...]:
    training, seed = fact.training, fact.seed
    shuffled = (
        () if seed is None else (program.evidence(seed.site, "same shuffle seed on every rank"),)
    )
    called = training.loader.site.calls[-1:] if fact.rows else ()
    rows = (fact.rows.site,) if fact.rows and fact.rows.site else ()
    return (
        *shuffled,
        *(program.evidence(site, "same rows on every rank") for site in rows),
        *(program.evidence(Site(path, node), "called here") for path, node in called),
        program.evidence(training.shard.site, "model is sharded here"),
        Evidence(over(training.loop), "every rank reads all batches"),
    )


def _fix(program: Program, fact: SharedData) -> Fix | Declined:
    training = fact.training
    site = training.loader.site
    assert isinstance(site.node, ir.Call)
    if fact.rows is not None:
        return Declined(
            "a stream of rows takes no sampler; divide the rows by hand with "
            "`datasets.distributed.split_dataset_by_node`"
        )
    by_hand = isinstance(training.loop.site.node, ir.Call)
    if by_hand and fact.seed is not None and training.epochs is None:
        return Declined(
            "`next` takes the batches, and no loop counts the epochs; add a `DistributedSampler` "
            "and call `set_epoch` by hand"
        )
    epochs: Epochs | Declined | None = None
    if fact.seed is not None and training.epochs is not None:
        epochs = epochs_of(program, training)
    if isinstance(epochs, Declined):
        return epochs
    return sample_by_rank(
        Code.of(program.tree(site.path)), site.node, fact.seed is not None, epochs
    )
