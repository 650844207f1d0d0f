from __future__ import annotations

from dataclasses import replace

import pytest
from samples import CONFIRMED, block, parameter, snapshot

from fsdplint.verify.events import Parameter, Snapshot, Unit
from fsdplint.verify.figures import count, percent, ranks_in_words, size
from fsdplint.verify.report.html import stair_starts
from fsdplint.verify.report.sharding import Model, Piece, models, placed, remarks, run_label, walk


def seen(*units: Unit, outside: tuple[Parameter, ...] = (), rank: int = 0) -> Model:
    """The model that a run saw on one rank only."""
    model = Snapshot(0, "Net", units, outside, (), (), ("cpu",), 0)
    (found,) = models(replace(CONFIRMED, snapshots={rank: (model,)}))
    return found


def drawn(model: Model) -> list[tuple[int, str, int]]:
    return [(depth, node.label, len(node.names)) for depth, node in walk(model.roots)]


def unit(name: str, *parameters: Parameter, cls: str = "Block") -> Unit:
    return Unit(name, cls, "fsdp2", 0, parameters)


def test_units_nest_by_name_and_equal_ones_are_one() -> None:
    blocks = [block(f"layers.{n}{part}", 0, 0, 2) for n in range(12) for part in ("", ".mlp")]
    assert drawn(seen(unit("", cls="Net"), *blocks)) == [
        (0, "", 1),
        (1, "layers.0 … 11", 12),
        (2, "mlp", 1),
    ]


def test_units_that_alternate_are_grouped_by_kind() -> None:
    blocks = [block(f"layers.{n}", 0, 0, 2, width=8 if n % 2 else 16) for n in range(6)]
    assert drawn(seen(*blocks)) == [(0, "layers.0 … 4", 3), (0, "layers.1 … 5", 3)]


def test_a_unit_that_differs_inside_stands_alone() -> None:
    blocks = [block(f"layers.{n}", 0, 0, 2) for n in range(3)]
    inner = block("layers.1.mlp", 0, 0, 2)
    assert drawn(seen(*blocks, inner)) == [
        (0, "layers.0 … 2", 2),
        (0, "layers.1", 1),
        (1, "mlp", 1),
    ]


def test_a_parameter_without_an_optimizer_sets_a_unit_apart() -> None:
    units = [
        unit(f"layers.{n}", parameter(f"layers.{n}.weight", (4, 4), 0, 2, held=(0,) if n else ()))
        for n in range(3)
    ]
    model = seen(*units)
    assert drawn(model) == [(0, "layers.0", 1), (0, "layers.1 … 2", 2)]
    assert list(remarks(model, 2))[-2:] == [
        "the optimizer holds 2 of 3 trainable parameters",
        "1 of 3 trainable parameters is in no optimizer (layers.0.weight)",
    ]


def test_a_model_inside_another_is_not_drawn_twice() -> None:
    whole = snapshot(0, 2, 3)
    part = replace(whole, model=1, cls="Block", units=whole.units[1:2], outside=())
    found = models(replace(CONFIRMED, snapshots={0: (part, whole)}))
    assert [model.cls for model in found] == ["Net"]


def test_two_models_are_two_maps() -> None:
    first = replace(snapshot(0, 2, 1), model=0, cls="Actor")
    other = tuple(replace(u, number=u.number + 10) for u in first.units)
    second = replace(first, model=1, cls="Critic", units=other)
    found = models(replace(CONFIRMED, snapshots={0: (first, second)}))
    assert [model.cls for model in found] == ["Actor", "Critic"]


def test_figures_are_of_every_rank() -> None:
    (model,) = models(CONFIRMED)
    root, blocks = (node for _, node in walk(model.roots))
    assert (root.elements, root.kept) == (112, ((0, 64), (1, 48)))
    assert (blocks.elements, blocks.kept) == (272, ((0, 136), (1, 136)))
    assert (model.elements, model.kept) == (944, ((0, 488), (1, 472)))


def test_what_is_outside_is_grouped_too() -> None:
    outside = tuple(parameter(f"blocks.{n}.scale", (4,), 0, 2, sharded=False) for n in range(4))
    found = seen(unit("head"), outside=outside).outside
    assert [(label, times) for label, times, _ in found] == [("blocks.0.scale … 3.scale", 4)]


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (["head"], "head"),
        (["blocks.0", "blocks.1"], "blocks.0 … 1"),
        (["blocks.1", "blocks.7", "blocks.10"], "blocks.1 … 10"),
        (["layers.10.attn", "layers.19.attn"], "layers.10.attn … 19.attn"),
        (["a0", "a1"], "a0 … a1"),
    ],
)
def test_the_label_of_a_run(names: list[str], label: str) -> None:
    assert run_label(names) == label


@pytest.mark.parametrize(
    ("placements", "mesh", "names", "words"),
    [
        (("S(0)",), (2,), (), "Shard(0) over 2 ranks"),
        (("Shard(dim=1)",), (2,), ("tp",), "Shard(1) over 2 ranks (mesh dim tp)"),
        (
            ("R", "S(0)"),
            (2, 4),
            ("dp", "fsdp"),
            "Replicate over 2 ranks (mesh dim dp), Shard(0) over 4 ranks (mesh dim fsdp)",
        ),
        ((), (), (), "sharded over 2 ranks with its unit's other parameters"),
    ],
)
def test_a_placement_in_words(
    placements: tuple[str, ...], mesh: tuple[int, ...], names: tuple[str, ...], words: str
) -> None:
    one = replace(parameter("w", (4,), 0, 2), placements=placements, mesh=mesh, mesh_names=names)
    assert placed(Piece(one, 4, ((0, 2), (1, 2)))) == words


def test_what_every_rank_keeps_is_whole() -> None:
    one = replace(parameter("w", (4,), 0, 2), placements=(), mesh=(), mesh_names=())
    assert placed(Piece(one, 4, ((0, 4), (1, 4)))) == "whole on each rank"


@pytest.mark.parametrize(
    ("parts", "starts"),
    [
        ([0.5, 0.5], [0, 0.5]),
        ([1.0, 1.0], [0, 0]),
        ([0.25] * 8, [0, 0.25, 0.5, 0.75] * 2),
        ([0.75, 0.75], [0, 0.25]),
        ([1.0], [0]),
    ],
)
def test_where_the_steps_of_a_stair_begin(parts: list[float], starts: list[float]) -> None:
    assert stair_starts(parts) == starts


def test_numbers() -> None:
    assert [count(n) for n in (0, 9_999_999, 10_000_000, 6_738_415_616)] == [
        "0",
        "9,999,999",
        "10.00 M",
        "6.738 B",
    ]
    assert [size(n) for n in (0, 999, 1000, 1536, 314 * 2**20, 2**50)] == [
        "0 B",
        "999 B",
        "0.98 KiB",
        "1.50 KiB",
        "314 MiB",
        "1024 TiB",
    ]
    assert [percent(s) for s in (0, 0.0004, 1 / 3, 0.9999, 1)] == [
        "0.0%",
        "0.0%",
        "33.3%",
        "100%",
        "100%",
    ]
    assert [ranks_in_words(r) for r in ([0], [1, 0], [0, 2], [0, 1, 2, 5])] == [
        "rank 0",
        "ranks 0, 1",
        "ranks 0, 2",
        "ranks 0-2, 5",
    ]


def test_copies_of_shards_are_counted() -> None:
    flat = replace(parameter("w", (4,), 0, 2), placements=(), mesh=(), mesh_names=(), flat=3)
    halves = tuple((rank, 2) for rank in range(4))
    assert placed(Piece(flat, 4, halves)) == "flattened and sharded over 2 ranks, 2 copies"
    assert placed(Piece(replace(flat, flat=0), 4, ((0, 3), (1, 1), (2, 3), (3, 1)))) == (
        "sharded over 2 ranks with its unit's other parameters, 2 copies"
    )
    assert placed(Piece(flat, 4, ((0, 4), (1, 4)))) == "flattened and sharded over 1 rank, 2 copies"
