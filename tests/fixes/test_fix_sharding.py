from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.arguments import drop_argument, set_argument
from fsdplint.fixes.code import Declined
from fsdplint.fixes.mesh import name_by_keyword, slice_mesh, swap_dimensions
from fsdplint.rules.container_sharded import container_loop
from fsdplint.rules.deepcopy_of_sharded_model import copy_first
from fsdplint.rules.root_sharded_before_children import backwards, root_last
from fsdplint.rules.sharded_twice import shard_once
from fsdplint.rules.tied_weights_in_different_groups import one_unit
from fsdplint.rules.wrap_policy_called import bind_policy, module_wrap_policy


def call(at: Snippet, name: str = "call") -> ir.Call:
    node = at[name]
    assert isinstance(node, ir.Call)
    return node


# The root below its parts


def test_the_root_moves_below_its_parts_with_its_comment() -> None:
    at = Snippet(
        "def f(m):\r\n\t# All of it.\r\n\tm = <call:s(m, mesh=mesh):call>\r\n"
        "\tfor b in m.blocks:\r\n\t\t<last:s(b):last>\r\n\treturn m\r\n"
    )
    assert at.fixed(root_last(at.code, call(at), at["last"])) == (
        "def f(m):\r\n\tfor b in m.blocks:\r\n\t\ts(b)\r\n"
        "\t# All of it.\r\n\tm = s(m, mesh=mesh)\r\n\treturn m\r\n"
    )


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "x = <call:s(m):call>\n<last:s(m.a):last>\n",
            "`x = s(m)` does more than shard the model; move the call by hand",
        ),
        (
            "<call:s(m, mesh=g):call>\ng = h\n<last:s(m.a):last>\n",
            "`g = h` changes `g` in between; move `s(m, mesh=g)` by hand",
        ),
        (
            "if x:\n    <call:s(m):call>\nelse:\n    <last:s(m.a):last>\n",
            "`s(m)` and `s(m.a)` are parts of the same statement; change the order by hand",
        ),
    ],
)
def test_a_root_that_cannot_move(marked: str, why: str) -> None:
    at = Snippet(marked)
    assert reason(root_last(at.code, call(at), at["last"])) == why


def turned(at: Snippet, inside: str = "call") -> Fix | Declined:
    around = at.code.ancestors(call(at, inside))
    loop = next(node for node in around if isinstance(node, ir.For))
    return backwards(at.code, call(at), loop)


@pytest.mark.parametrize("before", ["m.modules()", "list(m.modules())"])
def test_a_loop_is_turned_round(before: str) -> None:
    at = Snippet(f"for x in {before}:\n    <call:s(x):call>\n")
    assert at.fixed(turned(at)) == "for x in reversed(list(m.modules())):\n    s(x)\n"


def test_a_loop_over_something_else_stays() -> None:
    at = Snippet("for x in parts:\n    <call:s(x):call>\n")
    assert reason(turned(at)) == (
        "`parts` is not a call that lists modules; reverse its order by hand"
    )


def test_a_loop_of_another_function_stays() -> None:
    at = Snippet("for x in m.modules():\n    <h:h(x):h>\ndef h(y):\n    <call:s(y):call>\n")
    assert reason(turned(at, "h")) == (
        "the loop over the modules is in another function; reverse its order by hand"
    )


# Containers and second calls


def test_a_container_becomes_a_loop() -> None:
    at = Snippet("if x:\n    m.d = <call:f.s(m.d, mesh=g):call>  # all\nblock = 1\n")
    assert at.fixed(container_loop(at.code, call(at), True, True)) == (
        "if x:\n    for block_ in m.d.values():\n        f.s(block_, mesh=g)  # all\nblock = 1\n"
    )


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "x = <call:s(m.d):call>\n",
            "`x = s(m.d)` uses the result of the call; shard the modules in it by hand",
        ),
        (
            "<call:s(m[0].d):call>\n",
            "`s(m[0].d)` does not name the container; shard the modules in it by hand",
        ),
        (
            "for d in ds:\n    <call:s(d):call>\n",
            "`d` is not always a container; shard the modules in it by hand",
        ),
        (
            "<call:s(m.d, mesh=g()):call>\n",
            "the loop would evaluate the arguments of `s(m.d, mesh=g())` again for each module; "
            "assign them to variables first",
        ),
    ],
)
def test_a_container_that_stays(marked: str, why: str) -> None:
    at = Snippet(marked)
    assert reason(container_loop(at.code, call(at), False, True)) == why


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("m = f()\n<call:s(m):call>\nx = 1\n", "m = f()\nx = 1\n"),
        ("m = f()\nm = <call:s(m):call>\nx = 1\n", "m = f()\nx = 1\n"),
        ("for b in m.bs:\n    <call:s(b):call>\nx = 1\n", "x = 1\n"),
        ("def f(m):\n    return <call:s(m):call>\n", "def f(m):\n    return m\n"),
    ],
)
def test_a_second_call_is_taken_away(marked: str, expected: str) -> None:
    at = Snippet(marked)
    assert at.fixed(shard_once(at.code, call(at))) == expected


def test_a_second_call_alone_in_its_block_stays() -> None:
    at = Snippet("if x:\n    <call:s(m):call>\n")
    assert reason(shard_once(at.code, call(at))) == (
        "`s(m)` is the only statement of its block; remove the block by hand"
    )


# Two modules as one unit


def test_two_modules_become_one_unit() -> None:
    at = Snippet("<call:s(m.a, k=1):call>\n<other:s(m.b, k=1):other>\ns(m)\n")
    fix = one_unit(at.code, call(at), ".a", ".b", call(at, "other"))
    assert at.fixed(fix) == "s([m.a, m.b], k=1)\ns(m)\n"


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "<call:s(x):call>\n<other:s(m.b):other>\n",
            "`s(x)` does not name the module by its path; pass both to one `fully_shard` call by "
            "hand",
        ),
        (
            "<call:s(m.a):call>\nif x:\n    <other:s(m.b):other>\n",
            "`s(m.b)` cannot be removed; pass both to one `fully_shard` call by hand",
        ),
        (
            "<call:s(m.a):call>\n<other:s(m.b, k=1):other>\n",
            "the two modules are sharded with different arguments; pass both to one `fully_shard` "
            "call by hand",
        ),
    ],
)
def test_two_modules_that_stay_apart(marked: str, why: str) -> None:
    at = Snippet(marked)
    assert reason(one_unit(at.code, call(at), ".a", ".b", call(at, "other"))) == why


# Copies


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ("c(x)\n", "c = <copy>\ns(m)\nc(x)\n"),
        ("e(c)\n", ""),
        ("zip(c.parameters())\n", ""),
        ("c.state_dict()\n", ""),
    ],
)
def test_a_copy_is_made_first(later: str, expected: str) -> None:
    at = Snippet("<first:s(m):first>\nc = <call:copy.deepcopy(m):call>\n" + later)
    fix = copy_first(at.code, at["call"], at["first"])
    if expected:
        assert at.fixed(fix) == expected.replace("<copy>", "copy.deepcopy(m)")
    else:
        assert reason(fix) == (
            "the copy's tensors may be used with shards; make it before the sharding by hand, and "
            "shard it like the model"
        )


# Arguments


def test_arguments_are_set_and_dropped() -> None:
    at = Snippet("<call:s(m, r=1, k=2):call>\n")
    assert at.fixed(set_argument(at.code, call(at), -1, "r", "True", Safety.SAFE)) == (
        "s(m, r=True, k=2)\n"
    )
    assert at.fixed(drop_argument(at.code, call(at), "r")) == "s(m, k=2)\n"
    hidden = Snippet("<call:s(m, **k):call>\n")
    assert reason(drop_argument(hidden.code, call(hidden), "r")) == (
        "`s(m, **k)` does not spell out `r`; remove it by hand"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("size_based_auto_wrap_policy(5)", "min_num_params=5"),
        ("size_based_auto_wrap_policy(min_num_params=5)", "min_num_params=5"),
        ("transformer_auto_wrap_policy({B})", "transformer_layer_cls={B}"),
    ],
)
def test_a_policy_is_bound(given: str, expected: str) -> None:
    at = Snippet(f"import functools\np = <call:{given}:call>\n")
    name = given.partition("(")[0]
    assert at.fixed(bind_policy(at.code, call(at))) == (
        f"import functools\np = functools.partial({name}, {expected})\n"
    )


def test_classes_become_a_policy() -> None:
    at = Snippet(
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
        "<call:F(m, auto_wrap_policy={B}):call>\n"
    )
    assert at.fixed(module_wrap_policy(at.code, call(at))).endswith(
        "F(m, auto_wrap_policy=ModuleWrapPolicy({B}))\n"
    )


# Meshes


def test_meshes_are_made_right() -> None:
    at = Snippet("<call:i('cuda', (8,), n):call>\n")
    assert at.fixed(name_by_keyword(at.code, call(at))) == "i('cuda', (8,), mesh_dim_names=n)\n"
    at = Snippet("<call:s(m, mesh=g.mesh):call>\n")
    assert at.fixed(slice_mesh(at.code, call(at), "dp")) == 's(m, mesh=g.mesh["dp"])\n'
    at = Snippet("<call:i('cuda', (a, 2), mesh_dim_names=('s', 'r')):call>\n")
    assert at.fixed(swap_dimensions(at.code, call(at))) == (
        "i('cuda', (2, a), mesh_dim_names=('r', 's'))\n"
    )
    at = Snippet("<call:i('cuda', shape, mesh_dim_names=('s', 'r')):call>\n")
    assert reason(swap_dimensions(at.code, call(at))) == (
        "`i('cuda', shape, mesh_dim_names=('s', 'r'))` does not list its two dimensions; "
        "swap them by hand"
    )
