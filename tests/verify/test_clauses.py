"""Clauses on runs made by hand: what they say of evidence that seldom comes together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from fsdplint.verify.clauses.clause import Clause
from fsdplint.verify.clauses.collectives import device_per_rank
from fsdplint.verify.clauses.copies import replicas, ties
from fsdplint.verify.clauses.sharding import blocks, coverage, fsdp1_calls, sharding_order, units
from fsdplint.verify.clauses.steps import (
    accumulation,
    forward,
    gradients,
    optimizer,
    parameters_change,
)
from fsdplint.verify.events import (
    Backward,
    Bypass,
    Change,
    Device,
    Ended,
    Event,
    Forward,
    Frame,
    Fsdp1Call,
    GroupMade,
    Initial,
    InitialValue,
    OptimizerBuilt,
    Original,
    Parameter,
    Place,
    ProbeFailed,
    Sharded,
    Snapshot,
    Stale,
    Started,
    Step,
    SyncSwitched,
    Tie,
    Unit,
)
from fsdplint.verify.evidence import RankRun, Run

HERE = Place("train.py", 7, "main")
MIXED = (
    "aten.{}.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
    "DTensor before calling distributed operators!"
)


def run_of(*ranks: Iterable[Event], world: int | None = None) -> Run:
    """Ranks with these events; of a larger job where `world` says so."""
    size = len(ranks) if world is None else world
    made = []
    for rank, events in enumerate(ranks):
        started = Started(rank, rank, size, len(ranks), 1, "2.13.0", "cpu", True, 0.0)
        made.append(RankRun(rank, (started, *events), (), ""))
    return Run(tuple(made))


def said(clause: Clause, run: Run) -> tuple[str, str]:
    verdict = clause.judge(run)
    return verdict.status.value, verdict.figures


def parameter(name: str, rank: int = 0, **changes: Any) -> Parameter:
    """Eight by four numbers, half of them on each of two ranks."""
    made = Parameter(
        *(name, (8, 4), (4, 4), "float32", 4, ("Shard(0)",), (2,), ("dp",), (rank,), True, False),
        (0,),
        ranks=(0, 1),
    )
    return replace(made, **changes)


def plain(name: str, **changes: Any) -> Parameter:
    """The same without a mesh."""
    bare: dict[str, Any] = {"placements": (), "mesh": (), "mesh_names": (), "coordinate": ()}
    return parameter(name, **{"local_shape": (8, 4), "ranks": (), **bare, **changes})


def unit(*held: Parameter, name: str = "", number: int = 0, api: str = "fsdp2") -> Unit:
    return Unit(name, "Net", api, number, held)


def snapshot(*found: Unit, **changes: Any) -> Snapshot:
    return replace(Snapshot(0, "Net", found, (), (), (), ("cpu",), 0), **changes)


def sharded(number: int = 0, **changes: Any) -> Sharded:
    return replace(Sharded(number, "Net", "fsdp2", HERE, None, 0, 32), **changes)


def change(name: str, **changes: Any) -> Change:
    made = Change(name, 0, "finite", True, True, "same", True, True, False)
    return replace(made, **changes)


def step(*seen: Change, number: int = 1, **changes: Any) -> Step:
    return replace(Step(number, 0, 1, 1, seen, 0.1, HERE), **changes)


def crash(message: str, *frames: Frame) -> Ended:
    return Ended("crash", 0, "RuntimeError", message, "", frames)


def frame(function: str, receiver: str = "", *, unit: bool = False, own: bool = True) -> Frame:
    return Frame(replace(HERE, function=function), own, receiver, unit)


def test_an_observer_that_failed_confirms_nothing() -> None:
    run = run_of([sharded(), Forward("Net", HERE), ProbeFailed("forward", "KeyError: 'x'")])
    assert said(forward, run) == (
        "not exercised",
        "could not be observed (forward: KeyError: 'x')",
    )


# units


def test_uneven_and_empty_parts_are_shares() -> None:
    """One row over two ranks: the second keeps nothing of it."""
    one, none = parameter("a", shape=(1, 4), local_shape=(1, 4)), parameter("a", shape=(1, 4))
    none = replace(none, local_shape=(0, 4), coordinate=(1,))
    run = run_of(*([sharded(), snapshot(unit(p))] for p in (one, none)))
    assert said(units, run) == (
        "confirmed",
        "1 unit, 1 parameter; each rank holds 0.0% to 100.0% of 4 elements",
    )


def test_a_rank_without_parameters_in_units_has_no_share() -> None:
    empty = parameter("a", shape=(0,), local_shape=(0,))
    run = run_of([sharded(), snapshot(unit(parameter("a")))], [sharded(), snapshot(unit(empty))])
    assert said(units, run)[0] == "confirmed"


def test_ranks_that_came_to_no_step_have_no_share() -> None:
    reason = "no sharded model reached an optimizer step or the end of the script"
    assert said(units, run_of([sharded()], [sharded()])) == ("not exercised", reason)
    assert said(units, run_of([], [])) == ("not exercised", "no module became an FSDP unit")


def test_one_rank_of_one_has_nothing_to_divide() -> None:
    whole = parameter("a", local_shape=(8, 4), mesh=(1,))
    assert said(units, run_of([sharded(), snapshot(unit(whole))])) == (
        "not exercised",
        "1 unit, 1 parameter; each rank holds 100.0% of 32 elements; there is only one rank",
    )


@pytest.mark.parametrize(
    ("api", "mesh", "status"),
    [("fsdp2", (1,), "not exercised"), ("fsdp1", (), "not exercised"), ("fsdp2", (2,), "violated")],
)
def test_whole_on_each_rank(api: str, mesh: tuple[int, ...], status: str) -> None:
    """Violated only where the mesh would divide."""
    whole = parameter("a", local_shape=(8, 4), mesh=mesh)
    run = run_of(*([sharded(), snapshot(unit(whole, api=api))] for _ in range(2)))
    assert said(units, run)[0] == status


# sharding-order, blocks


def test_inner_units_first_is_the_order() -> None:
    outer = sharded(1, cls="Net", total=40)
    assert said(sharding_order, run_of([sharded(cls="Block"), outer])) == (
        "confirmed",
        "2 units, inner ones first",
    )
    assert said(sharding_order, run_of([sharded()])) == ("not exercised", "fewer than two units")


def test_a_unit_whose_parameters_the_root_has_taken_is_late() -> None:
    late = sharded(1, cls="Block", inside=0, lost=32)
    verdict = sharding_order.judge(run_of([sharded(), late]))
    assert (verdict.status.value, verdict.figures, verdict.places) == (
        "violated",
        "`Block` is sharded after `Net`, which contains it and already owns its parameters",
        (HERE,),
    )


def test_a_unit_that_the_root_took_nothing_of_is_never_late() -> None:
    """Modules without parameters, and those whose inner units hold all of them."""
    run = run_of([sharded(), sharded(1, cls="Dropout", inside=0, total=0)])
    assert said(sharding_order, run)[0] == "confirmed"


def model_of_blocks(*holders: int) -> Snapshot:
    """Two blocks, and the unit that holds each."""
    held: dict[int, list[Parameter]] = {}
    for at, number in enumerate(holders):
        held.setdefault(number, []).append(parameter(f"blocks.{at}.weight"))
    found = [
        unit(*ps, name="" if n == 0 else f"blocks.{n - 1}", number=n) for n, ps in held.items()
    ]
    return snapshot(*found, repeated=(("blocks.0", "blocks.1"),))


def test_blocks_in_one_unit_are_gathered_at_once() -> None:
    one = "`blocks`: one unit gathers all 2 blocks (100% of the sharded parameters) at once"
    two = "`blocks`: 2 blocks (100% of the sharded parameters) in 2 units"
    assert said(blocks, run_of([sharded(), model_of_blocks(0, 0)])) == ("violated", one)
    assert said(blocks, run_of([sharded(), model_of_blocks(1, 2)])) == ("confirmed", two)


def test_blocks_that_came_late_are_the_orders_affair() -> None:
    run = run_of([sharded(), sharded(1, inside=0, lost=32), model_of_blocks(0, 0)])
    assert said(blocks, run) == (
        "not exercised",
        "units were sharded in the wrong order (see `sharding-order`)",
    )


# coverage, replicas, ties


def two_ranks(*made: tuple[Snapshot, Step]) -> Run:
    return run_of(*([sharded(), taken, done] for taken, done in made))


def outside(rank: int, digest: str, **changes: Any) -> tuple[Snapshot, Step]:
    """A rank with one parameter in a unit over two ranks and a plain one outside of it."""
    inner = parameter("in", rank, **changes)
    seen = (change("in", digest=f"part {rank}"), change("out", digest=digest))
    return snapshot(unit(inner), outside=(plain("out"),)), step(*seen)


def test_what_is_outside_and_differs_is_violated() -> None:
    assert said(coverage, two_ranks(outside(0, "a"), outside(1, "b"))) == (
        "violated",
        "1 trainable parameter in no unit differs between ranks since step 1: `out`",
    )
    assert said(coverage, two_ranks(outside(0, "a"), outside(1, "a")))[0] == "not exercised"


def test_stages_of_a_pipeline_are_not_copies() -> None:
    """Each rank is a mesh of its own, and calls its own layer `out`."""
    stages = (outside(r, f"stage {r}", mesh=(1,), ranks=(r,)) for r in range(2))
    assert said(coverage, two_ranks(*stages))[0] == "not exercised"


def test_a_name_in_two_models_is_two_parameters() -> None:
    """The other model's `out` is in a unit, where parts differ."""
    made = []
    for rank in range(2):
        first, done = outside(rank, "same")
        other = snapshot(unit(parameter("out", rank)), model=1)
        theirs = change("out", model=1, digest=f"part {rank}")
        made.append([sharded(), first, other, replace(done, changes=(*done.changes, theirs))])
    assert said(coverage, run_of(*made))[0] == "not exercised"


def test_tensor_parallel_parts_outside_units_are_not_copies() -> None:
    made = []
    for rank in range(2):
        tp = parameter("out", rank)
        taken = snapshot(unit(parameter("in", rank)), outside=(tp,))
        made.append((taken, step(change("out", digest=f"part {rank}"))))
    assert said(coverage, two_ranks(*made))[0] == "not exercised"


def test_frozen_and_ignored_parameters_need_no_unit() -> None:
    left = (plain("a", trainable=False), plain("b", ignored=True, held=()))
    run = run_of([sharded(), snapshot(unit(parameter("in")), outside=left)])
    assert said(coverage, run) == ("confirmed", "no trainable parameter is outside the units")
    assert said(coverage, run_of([sharded()])) == (
        "not exercised",
        "no sharded model reached an optimizer step",
    )


def ignored(rank: int, begins: str, digest: str, **changes: Any) -> list[Event]:
    """A rank that keeps all of a parameter which `fully_shard` was told to ignore."""
    taken = snapshot(unit(parameter("in", rank)), outside=(plain("a", ignored=True, **changes),))
    values = (InitialValue("a", False, 32, 0, begins),)
    return [sharded(), Initial(0, values, ()), taken, step(change("a", digest=digest))]


def test_ignored_parameters_that_train_apart_are_violated() -> None:
    assert said(coverage, run_of(ignored(0, "x", "y"), ignored(1, "x", "z"))) == (
        "violated",
        "1 trainable parameter in no unit differs between ranks since step 1: `a`",
    )
    alike = run_of(ignored(0, "x", "y"), ignored(1, "x", "y"))
    experts = run_of(ignored(0, "x", "y"), ignored(1, "w", "z"))
    unheld = run_of(ignored(0, "x", "y", held=()), ignored(1, "x", "z", held=()))
    assert said(coverage, alike) == (
        "not exercised",
        "1 trainable parameter in no unit (`a`), equal on every rank so far; nothing was seen that "
        "keeps them equal",
    )
    assert said(coverage, experts) == (
        "not exercised",
        "1 ignored parameter in an optimizer (`a`) has different values on each rank from the "
        "start, as experts do",
    )
    assert said(coverage, unheld) == ("confirmed", "no trainable parameter is outside the units")


def test_a_mixture_that_clipping_refuses_is_coverages() -> None:
    taken, _ = outside(0, "a")
    error = crash(MIXED.format("stack"), frame("train"), frame("clip_grad_norm_", own=False))
    verdict = coverage.judge(run_of([sharded(), taken, error]))
    assert (verdict.status.value, verdict.figures) == (
        "violated",
        "1 trainable parameter in no unit: `out`",
    )
    assert said(forward, run_of([sharded(), taken, error]))[0] == "not exercised"


def hybrid(rank: int, digest: str, **changes: Any) -> tuple[Snapshot, Step]:
    """A rank of two that keep the same shard."""
    made: dict[str, Any] = {"placements": ("Replicate()", "Shard(0)"), "mesh": (2, 1)}
    held = parameter("a", coordinate=(rank, 0), **{**made, **changes})
    return snapshot(unit(held)), step(change("a", digest=digest))


def test_replicas_are_compared_shard_by_shard() -> None:
    assert said(replicas, two_ranks(hybrid(0, "x"), hybrid(1, "x"))) == (
        "confirmed",
        "1 replicated parameter equal after 1 step",
    )
    verdict = replicas.judge(two_ranks(hybrid(0, "x"), hybrid(1, "y")))
    assert (verdict.status.value, verdict.figures, verdict.details) == (
        "violated",
        "1 of 1 replicated parameter differs between ranks since step 1: `a`",
        ("replicas of `a` are on ranks 0, 1",),
    )


def test_replicas_on_other_meshes_are_other_parameters() -> None:
    apart = (hybrid(0, "x", ranks=(0, 2)), hybrid(1, "y", ranks=(1, 3)))
    reason = "no two ranks hold the same shard"
    assert said(replicas, two_ranks(*apart)) == ("not exercised", reason)
    assert said(replicas, two_ranks(hybrid(0, "x"))) == ("not exercised", reason)
    assert said(replicas, run_of([sharded()])) == ("not exercised", "no optimizer stepped")


def test_ties() -> None:
    def tied(alive: bool, at: int = 0) -> Snapshot:
        return snapshot(ties=(Tie(("embed.weight", "head.weight"), alive),), step=at)

    assert said(ties, run_of([tied(True)])) == ("confirmed", "`embed.weight` = `head.weight`")
    assert said(ties, run_of([tied(True), tied(False, 1)])) == (
        "violated",
        "`embed.weight` and `head.weight` are no longer tied at step 2: they train apart",
    )
    assert said(ties, run_of([snapshot()])) == ("not exercised", "no tied parameters")


# optimizer, parameters-change


def built(number: int = 0, **changes: Any) -> OptimizerBuilt:
    return replace(OptimizerBuilt(number, "AdamW", HERE, 1, ()), **changes)


def test_an_optimizer_of_replaced_parameters() -> None:
    old = built(live=0, stale=(Stale("a", "sharding", HERE), Stale("b", "sharding", HERE)))
    assert said(optimizer, run_of([sharded(), old])) == (
        "violated",
        "`AdamW` holds 2 parameters that sharding replaced and 0 current ones: it does not train "
        "the replacements",
    )


def test_an_optimizer_that_never_steps_is_no_matter() -> None:
    run = run_of(
        [
            sharded(),
            built(0, live=0, stale=(Stale("a", "sharding", HERE),)),
            built(1),
            step(optimizer=1),
        ]
    )
    assert said(optimizer, run) == (
        "confirmed",
        "`AdamW` holds 1 parameter of the sharded model",
    )


def test_several_optimizers_hold_together() -> None:
    run = run_of([sharded(), built(0, live=3), built(1, cls="SGD", live=2)], [sharded(), built(0)])
    assert said(optimizer, run) == (
        "confirmed",
        "`AdamW`, `SGD` hold 5 parameters of the sharded model",
    )


def test_held_by_another_rank_or_for_another_model_is_not_held() -> None:
    free = change("a", held=False)
    none = snapshot(unit(parameter("a", held=())))
    there = [sharded(), snapshot(unit(parameter("a"))), built(), step(change("a"))]
    here = [sharded(), none, built(), step(free)]
    reason = "1 parameter with gradients in no `torch.optim` optimizer, which may be intended: `a`"
    assert said(optimizer, run_of(there, here)) == ("not exercised", reason)
    other = [*there, replace(none, model=1), step(replace(free, model=1), number=2)]
    assert said(optimizer, run_of(other)) == ("not exercised", reason)


def test_without_sharding_or_optimizers_nothing_is_asked() -> None:
    assert said(optimizer, run_of([built()])) == ("not exercised", "no module was sharded")
    assert said(optimizer, run_of([sharded()])) == ("not exercised", "no optimizer was built")
    assert said(optimizer, run_of([sharded(), built(live=0)])) == (
        "not exercised",
        "no optimizer holds a parameter of a sharded model",
    )


@pytest.mark.parametrize(
    ("seen", "status", "figures"),
    [
        ({}, "confirmed", "1 of 1 parameter changed in 1 step"),
        (
            {"changed": False, "due": True},
            "violated",
            "1 of 1 parameter with gradients did not change in 1 step: `a`",
        ),
        (
            {"changed": False},
            "not exercised",
            "the learning rate is too low so far for a visible change",
        ),
        *(
            (
                unasked,
                "not exercised",
                "no parameter in an optimizer had a gradient and a learning rate above 0",
            )
            for unasked in (
                {"held": False, "changed": False},
                {"moving": False, "changed": False},
                {"gradient": "none", "changed": False},
                {"gradient": "zero", "changed": False},
            )
        ),
        (
            {"gradient": "infinite", "changed": False},
            "not exercised",
            "the gradients of 1 parameter are NaN or infinite: `a`",
        ),
    ],
)
def test_a_parameter_that_has_to_move(seen: dict[str, Any], status: str, figures: str) -> None:
    assert said(parameters_change, run_of([step(change("a", **seen))])) == (status, figures)


def test_a_part_that_moves_on_one_rank_moves() -> None:
    """The other rank's may be empty."""
    still = change("a", changed=False, due=True)
    assert said(parameters_change, run_of([step(change("a"))], [step(still)]))[0] == "confirmed"


def test_a_models_parameter_does_not_move_for_another_models() -> None:
    still = change("a", model=1, changed=False, due=True)
    run = run_of([step(change("a")), step(still, optimizer=1)])
    assert said(parameters_change, run) == (
        "violated",
        "1 of 2 parameters with gradients did not change in 1 step: `a`",
    )


# gradients, accumulation


@pytest.mark.parametrize(
    ("done", "status", "figures"),
    [
        (step(change("a")), "confirmed", "gradients reduced before the step"),
        (
            step(change("a", reduced=False)),
            "violated",
            "the gradients of 1 parameter are not reduced at step 1",
        ),
        (
            step(change("a", gradient="none")),
            "not exercised",
            "no parameter in an optimizer had a gradient",
        ),
        *(
            (
                unasked,
                "not exercised",
                "no optimizer with sharded parameters stepped after a backward pass",
            )
            for unasked in (
                step(change("a", reduced=False), backwards=0),
                step(change("a", reduced=False, held=False)),
                step(change("a", reduced=None)),
            )
        ),
    ],
)
def test_gradients_are_reduced(done: Step, status: str, figures: str) -> None:
    assert said(gradients, run_of([done])) == (status, figures)


def test_the_switch_is_shown_first() -> None:
    off = SyncSwitched("set_requires_gradient_sync", False, replace(HERE, line=3))
    waiting = step(change("a", reduced=False))
    verdict = gradients.judge(run_of([off, waiting]))
    assert [place.line for place in verdict.places] == [3, 7]


ASKED = SyncSwitched("no_sync", False, HERE)


@pytest.mark.parametrize(
    ("events", "status", "figures"),
    [
        ([step(change("a"))], "not exercised", "one backward pass per step"),
        (
            [step(change("a"), backwards=4)],
            "confirmed",
            "4 backward passes per step, 1 of them reduced",
        ),
        (
            [step(change("a"), backwards=4, reduced=0)],
            "not exercised",
            "4 backward passes per step, none of them reduced (see `gradients`)",
        ),
        (
            [step(change("a"), backwards=4, reduced=4)],
            "not exercised",
            "4 backward passes per step, 4 of them reduced: correct, but with 4 times the "
            "communication",
        ),
        (
            [ASKED, step(change("a"), backwards=4, reduced=4)],
            "violated",
            "4 backward passes per step, 4 of them reduced, although the script uses `no_sync`",
        ),
        ([], "not exercised", "no optimizer stepped"),
    ],
)
def test_micro_batches(events: list[Event], status: str, figures: str) -> None:
    assert said(accumulation, run_of(events)) == (status, figures)


def test_no_sync_is_missed_only_by_fsdp2_modules() -> None:
    missed = crash("'FSDPNet' object has no attribute 'no_sync'")
    assert said(accumulation, run_of([sharded(), missed])) == (
        "violated",
        "the script uses `no_sync`, which FSDP2 modules do not have",
    )
    for message in ("'Net' object has no attribute 'no_sync'", "'FSDPX' object has no attribute"):
        run = run_of([sharded(), crash(message)])
        assert said(accumulation, run) == ("not exercised", "no optimizer stepped")


# fsdp1-calls


def test_fsdp1s_functions() -> None:
    called = Fsdp1Call("summon_full_params", "Net", HERE)
    ended = Ended("script", 3)
    assert said(fsdp1_calls, run_of([sharded(), called, ended]))[0] == "violated"
    assert said(fsdp1_calls, run_of([sharded(), ended])) == (
        "confirmed",
        "no FSDP1 call on 1 FSDP2 unit",
    )
    missed = crash("'FSDPNet' object has no attribute 'summon_full_params'")
    assert said(fsdp1_calls, run_of([sharded(), missed]))[0] == "violated"
    for other in (crash("mine"), Ended("exit", 0), Ended("unmappable", 0)):
        reason = "no FSDP1 call before the script failed"
        assert said(fsdp1_calls, run_of([sharded(), other])) == ("not exercised", reason)
    assert said(fsdp1_calls, run_of([sharded(api="fsdp1"), called]))[0] == "not exercised"


# forward


def test_forwards() -> None:
    past = Bypass("blocks.0", "Block", "fsdp2", "forward", HERE)
    called = Forward("Net", HERE)
    assert said(forward, run_of([sharded(), called])) == (
        "confirmed",
        "`Net` called through the hooks",
    )
    assert said(forward, run_of([sharded(), called, past])) == (
        "violated",
        "`blocks.0.forward` bypasses the unit's FSDP hooks (1 time)",
    )
    assert said(forward, run_of([sharded()])) == ("not exercised", "no sharded module was called")
    assert said(forward, run_of([called])) == ("not exercised", "no module was sharded")


def test_a_method_of_ones_own_is_told_by_its_crash() -> None:
    method = frame("encode", "FSDPNet", unit=True)
    run = run_of([sharded(), crash(MIXED.format("add"), frame("main"), method)])
    assert said(forward, run) == (
        "violated",
        "`Net.encode` bypasses the unit's FSDP hooks and uses sharded parameters",
    )


@pytest.mark.parametrize(
    ("operator", "status"),
    [
        ("mm", "violated"),
        ("addmm", "violated"),
        ("embedding", "violated"),
        ("native_layer_norm", "violated"),
        ("add", "not exercised"),
        ("mul", "not exercised"),
        ("gt", "not exercised"),
    ],
)
def test_a_dtensor_outside_of_units_need_not_be_a_parameter(operator: str, status: str) -> None:
    run = run_of([sharded(), crash(MIXED.format(operator), frame("main"))])
    assert said(forward, run)[0] == status


def test_tensor_parallelism_mixes_for_reasons_of_its_own() -> None:
    both = parameter("a", placements=("Shard(0)", "Shard(0)"), mesh=(2, 2))
    norms = parameter("a", placements=("Shard(0)", "Replicate()"), mesh=(2, 2))
    copies = parameter("a", placements=("Replicate()", "Shard(0)"), mesh=(2, 2))
    error = crash(MIXED.format("mm"), frame("forward", "FSDPNet", unit=True))
    for held, status in ((both, "not exercised"), (norms, "not exercised"), (copies, "violated")):
        assert said(forward, run_of([sharded(), snapshot(unit(held)), error]))[0] == status


# device-per-rank


def test_devices() -> None:
    def group(rank: int, of: int = 2) -> GroupMade:
        return GroupMade("nccl", rank, of, HERE)

    apart = run_of([group(0), Device(0)], [group(1), Device(1)])
    assert said(device_per_rank, apart) == ("confirmed", "nccl, 2 ranks on cuda:0, cuda:1")
    same = run_of([group(0), Device(0)], [group(1), Device(0)])
    assert said(device_per_rank, same) == ("violated", "ranks 0, 1 all use cuda:0")
    cpu = run_of([group(0), Device(None)], [group(1), Device(None)])
    assert said(device_per_rank, cpu) == ("confirmed", "nccl, 2 ranks on the CPU")
    early = run_of([group(0), Device(0)], [group(1)])
    assert said(device_per_rank, early) == ("not exercised", "the device of rank 1 is unknown")
    alone = run_of([group(0, 1)], [group(0, 1)])
    assert said(device_per_rank, alone) == (
        "violated",
        "rank 0 of 2 initializes the process group as rank 0 of 1",
    )
    assert said(device_per_rank, run_of([], [])) == (
        "not exercised",
        "no process group was created",
    )


def test_other_nodes_have_devices_of_their_own() -> None:
    made = [GroupMade("nccl", rank, 4, HERE) for rank in range(2)]
    run = run_of([made[0], Device(0)], [made[1], Device(1)], world=4)
    assert said(device_per_rank, run) == ("confirmed", "nccl, 4 ranks on cuda:0, cuda:1")


def test_flattened_blocks_are_judged_by_their_own_names() -> None:
    names = [Original(f"blocks.{n}.weight", 16) for n in range(2)]
    flat = plain("_flat_param", shape=(36,), flat=2, originals=tuple(names))
    taken = snapshot(unit(flat, api="fsdp1"), repeated=(("blocks.0", "blocks.1"),))
    share = "`blocks`: one unit gathers all 2 blocks (100% of the sharded parameters) at once"
    assert said(blocks, run_of([sharded(), taken])) == ("violated", share)


def test_why_no_blocks_are_judged() -> None:
    named = (("blocks.0", "blocks.1"),)
    for taken, reason in (
        (snapshot(unit(parameter("big", shape=(999, 9))), repeated=named), "repeated blocks hold"),
        (snapshot(unit(parameter("a"))), "no sharded model with repeated blocks was seen"),
    ):
        status, figures = said(blocks, run_of([sharded(), taken]))
        assert (status, figures.startswith(reason)) == ("not exercised", True)


def stepping(*steps: int, backwards: int = 3, how: str = "script") -> list[Event]:
    """A rank that runs some backward passes, and takes steps behind those of these numbers."""
    events: list[Event] = []
    for number in range(1, backwards + 1):
        events.append(Backward(len(events), "1.0", True, True, HERE))
        if number in steps:
            events.append(step(change("a"), number=1 + steps.index(number)))
    built = OptimizerBuilt(0, "SGD", HERE, 1, ())
    return [*events, built, Ended(how, len(steps))]


def test_ranks_that_step_apart_are_violated() -> None:
    apart = run_of(stepping(1, 2, 3), stepping(2))
    assert said(parameters_change, apart) == (
        "violated",
        "rank 0 took 3 optimizer steps and rank 1 took 1, after the same number of backward passes",
    )
    other = replace(OptimizerBuilt(0, "Adam", HERE, 0, ()), number=1)
    for run in (
        run_of([other, *stepping(1, 2)], stepping(1, 2)),
        run_of(stepping(1, 2), stepping(1, 2)),
        run_of(stepping(1, 2), stepping(1, backwards=2)),
        run_of(stepping(1, 2, how="steps"), stepping(1, how="steps")),
    ):
        assert said(parameters_change, run)[0] == "confirmed"
