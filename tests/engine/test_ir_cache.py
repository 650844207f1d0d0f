"""What is kept of one run's IR is for the next what it would have lowered itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import placed, stdlib_sample

from fsdplint.engine import ir
from fsdplint.engine.frontend import ir_cache
from fsdplint.engine.frontend.ir_cache import IRCache
from fsdplint.engine.frontend.lower import lower
from fsdplint.engine.project import project as link
from fsdplint.server.analysis import Analysis, Choices, as_file

SHAPES = '''\
from .. import a as b, c
def short(): yield 1
async def long(self, /, x: int = 1, *rest, key=b"\\xff\\x00", **more) -> "None":
    """A suite of more than the characters that are lowered at once, and so one that waits."""
    global g
    first = 1 < f() < -2.5 == 3j < 1e999
    values = {**a, "k": [*b, (lambda z: z)(4)]}, {x for x in y if x if not z}, a[1:2, ...]
    with open("\\udcff \\N{BULLET} \\u2028") as (h, i), k: await h
    try: del a, b[0]
    except (E, F) as e: raise
    else: pass
    finally: return f"{x!r:>{width}} {{}}"
    match x:
        case 1 | None if y: break
        case [p, *q]: continue
'''


def identities(module: ir.Module) -> list[int]:
    """Which of the nodes, in the order of a walk, is the same as one before."""
    numbers: dict[ir.Node, int] = {}
    return [numbers.setdefault(node, len(numbers)) for node in ir.walk(module)]


def both(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ir.Module, ir.Module]:
    """``text`` lowered, and as the next run has it, in which nothing is parsed."""
    first = IRCache({})
    lowered = lower(text, "x.py", first)
    placed(lowered)  # with all suites
    with monkeypatch.context() as patch:
        patch.setattr("fsdplint.engine.frontend.lower_statements.parse", None)
        again = lower(text, "x.py", IRCache(first.used))
        placed(again)
    return lowered, again


@pytest.mark.parametrize("path", stdlib_sample()[1::3], ids=lambda path: path.name)
def test_of_the_standard_library_all_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered, again = both(path.read_text("utf-8"), monkeypatch)
    assert placed(again) == placed(lowered)
    assert identities(again) == identities(lowered)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_shape_is_kept(newline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered, again = both(SHAPES.replace("\n", newline), monkeypatch)
    assert placed(again) == placed(lowered)
    assert identities(again) == identities(lowered)
    assert max(identities(again)) < len(identities(again)) - 1  # of `1 < f() < -2.5` one is shared
    functions = [node for node in ir.walk(again) if isinstance(node, ir.Function)]
    assert [(each.name, each.is_generator) for each in functions] == [
        ("short", True),
        ("long", False),
        ("<lambda>", False),
    ]


def test_a_function_that_did_not_change_is_known_in_another_place() -> None:
    first, text = IRCache({}), SHAPES
    placed(lower(text, "x.py", first))
    moved = IRCache(first.used)
    assert placed(lower(f"import os\n{text}", "x.py", moved)) == placed(
        lower(f"import os\n{text}", "x.py")
    )
    assert len(moved.used.keys() - first.used.keys()) == 1  # what is outside of functions
    assert len(moved.used) == 2


def test_what_is_not_understood_is_lowered_again() -> None:
    first = IRCache({})
    expected = placed(lower(SHAPES, "x.py", first))
    for row in ("", "[", "{}", "[[[99,0,1]],false,true]", "[[[0]],false,true]", "[" * 100_000):
        spoilt = IRCache(dict.fromkeys(first.used, row))
        assert placed(lower(SHAPES, "x.py", spoilt)) == expected
        assert spoilt.used == first.used


def test_what_has_no_form_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise ValueError("too many digits")

    kept = IRCache({})
    monkeypatch.setattr("fsdplint.engine.frontend.ir_cache.encoded", refuse)
    assert placed(lower(SHAPES, "x.py", kept)) == placed(lower(SHAPES, "x.py"))
    assert (kept.used, kept.has_new) == ({}, False)


def test_a_file_that_is_no_python_is_told_each_time() -> None:
    kept = IRCache({})
    for _ in range(2):
        with pytest.raises(link.InvalidSyntax):
            lower("def f(:\n", "x.py", kept)
    assert kept.used == {}


def test_every_kind_of_node_has_a_number() -> None:
    made = {kind for kind in vars(ir).values() if isinstance(kind, type)}
    nodes = {kind for kind in made if issubclass(kind, ir.Node)}
    assert nodes - set(ir_cache._KINDS) == {ir.Node, ir.Module}
    assert len(set(ir_cache._KINDS)) == len(ir_cache._KINDS)


def test_another_run_has_the_rows_of_earlier_ones_while_there_is_room() -> None:
    cache = IRCache({})
    lower("x = 1\n", "x.py", cache)
    cache.begin_run(room=10_000)
    lower("x = 2\n", "x.py", cache)
    cache.begin_run(room=10_000)
    assert (cache.has_module("x = 1\n"), cache.has_module("x = 2\n")) == (True, True)
    lower("x = 3\n", "x.py", cache)
    cache.begin_run(room=1)
    kept = [cache.has_module(f"x = {number}\n") for number in (1, 2, 3)]
    assert kept == [False, False, True]


def test_the_language_server_forgets_what_no_run_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdplint.cache.ir_pack._MAX_IN_MEMORY", 1)
    file = (tmp_path / "train.py").as_posix()
    analysis = Analysis(tmp_path.as_posix())
    for number in range(3):
        text = f"from torch.distributed.fsdp import fully_shard\nfully_shard({number})\n"
        analysis.check([file], Choices(), {file: as_file(file, text)})
    (cache,) = analysis._packs.opened.values()
    assert len({**cache.earlier, **cache.used}) == 2
