from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.rules.no_sync_under_fsdp2 import sync_last_micro_batch

NULL = "from contextlib import nullcontext\n"


def synced(marked: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    node = at["n"]
    assert isinstance(node, (ir.Call, ir.Attribute))
    return at, sync_last_micro_batch(at.code, node)


def check(marked: str, expected: str) -> None:
    at, fix = synced(marked)
    assert at.fixed(fix) == expected
    assert isinstance(fix, Fix) and fix.safety is Safety.UNSAFE


def test_a_body_keeps_its_bytes() -> None:
    check(
        """\
for i, x in enumerate(loader):
    # Not the last.
    with <n:self.model.no_sync():n>:  # accumulate
        loss = model(x, '''
  y''')

        loss.backward()
        # done
    last.backward()
    step()
""",
        """\
for i, x in enumerate(loader):
    # Not the last.
    self.model.set_requires_gradient_sync(False)  # accumulate
    try:
        loss = model(x, '''
  y''')

        loss.backward()
        # done
    finally:
        self.model.set_requires_gradient_sync(True)
    last.backward()
    step()
""",
    )


def test_declines_when_every_backward_is_inside() -> None:
    marked = "for x in y:\n    with <n:m.no_sync():n>:\n        m(x).backward()\n    step()\n"
    assert reason(synced(marked)[1]) == "no backward outside the context would reduce the gradients"


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "if x:\r\n\twith <n:m.no_sync():n>:\r\n\t\ta()",
            "if x:\r\n\tm.set_requires_gradient_sync(False)\r\n\ttry:\r\n\t\ta()\r\n"
            "\tfinally:\r\n\t\tm.set_requires_gradient_sync(True)",
        ),
        (
            "with <n:m.no_sync():n>: a(); b()  # c\n",
            "m.set_requires_gradient_sync(False)\ntry:\n    a(); b()  # c\n"
            "finally:\n    m.set_requires_gradient_sync(True)\n",
        ),
        (
            "with (\n    <n:m.no_sync():n>,\n):\n    a()\n",
            "m.set_requires_gradient_sync(False)\ntry:\n    a()\n"
            "finally:\n    m.set_requires_gradient_sync(True)\n",
        ),
        (
            "with autocast(), <n:m.no_sync():n>:\n    a('''\nb\n''')\n\n    c()\n",
            "m.set_requires_gradient_sync(False)\ntry:\n    with autocast():\n"
            "        a('''\nb\n''')\n\n        c()\nfinally:\n"
            "    m.set_requires_gradient_sync(True)\n",
        ),
        (
            "with <n:m.no_sync():n>, autocast() as c:\n    a()\n",
            "m.set_requires_gradient_sync(False)\ntry:\n    with autocast() as c:\n        a()\n"
            "finally:\n    m.set_requires_gradient_sync(True)\n",
        ),
        (
            "with (\n    autocast() as c,\n    <n:m.no_sync():n>,\n):\n    a()\n",
            "m.set_requires_gradient_sync(False)\ntry:\n    with (\n"
            "        autocast() as c,\n    ):\n        a()\nfinally:\n"
            "    m.set_requires_gradient_sync(True)\n",
        ),
        (
            "async def f():\n    with <n:m[0].no_sync():n>:\n        await a()\n",
            "async def f():\n    m[0].set_requires_gradient_sync(False)\n    try:\n"
            "        await a()\n    finally:\n        m[0].set_requires_gradient_sync(True)\n",
        ),
        (
            "ctx = <n:m.no_sync():n>\nwith ctx:\n    a()\n",
            "m.set_requires_gradient_sync(False)\ntry:\n    a()\n"
            "finally:\n    m.set_requires_gradient_sync(True)\n",
        ),
    ],
)
def test_unconditional(marked: str, expected: str) -> None:
    check(marked, expected)


@pytest.mark.parametrize(
    ("test", "flag"),
    [
        ("last", "not last"),
        ("not last", "last"),
        ("not (a or b)", "a or b"),
        ("(a or b)", "not (a or b)"),
        ("(i + 1) % n != 0", "(i + 1) % n == 0"),
        ("(i + 1) % (n) == 0", "(i + 1) % (n) != 0"),
        ("i < n - 1", "i >= n - 1"),
        ("i < j < n", "not (i < j < n)"),
        ("x is not None", "x is None"),
        ("x not  in y", "x in y"),
        ("(i + 1) % n", "(i + 1) % n == 0"),
        ("a + b", "not (a + b)"),
        ("f(x)", "not f(x)"),
        ("self.on[0]", "not self.on[0]"),
    ],
)
def test_the_condition_is_turned_round_readably(test: str, flag: str) -> None:
    check(
        f"{NULL}with <n:m.no_sync():n> if {test} else nullcontext():\n    a()\n",
        f"m.set_requires_gradient_sync({flag})\ntry:\n    a()\n"
        "finally:\n    m.set_requires_gradient_sync(True)\n",
    )


BODY = "try:\n    a()\nfinally:\n    m.set_requires_gradient_sync(True)\n"


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "import contextlib\nwith contextlib.nullcontext() if i % n == 0 else "
            "<n:m.no_sync():n>:\n    a()\n",
            f"m.set_requires_gradient_sync(i % n == 0)\n{BODY}",
        ),
        (
            "from contextlib import nullcontext as nc, suppress\n"
            "with (<n:m.no_sync():n> if x else nc()):\n    a()\n",
            f"from contextlib import suppress\nm.set_requires_gradient_sync(not x)\n{BODY}",
        ),
        (
            "from contextlib import nullcontext\n# Which.\nc = <n:m.no_sync():n> if x else "
            "nullcontext()\nwith c:\n    a()\n",
            f"m.set_requires_gradient_sync(not x)\n{BODY}",
        ),
        (
            "from contextlib import nullcontext\nc = <n:m.no_sync:n> if x else nullcontext\n"
            "with c():\n    a()\n",
            f"m.set_requires_gradient_sync(not x)\n{BODY}",
        ),
        (
            "from contextlib import nullcontext\nif x:\n    c = nullcontext()\nelse:\n"
            "    c = <n:m.no_sync():n>\nb = 1\nwith c:\n    a()\n",
            f"b = 1\nm.set_requires_gradient_sync(x)\n{BODY}",
        ),
    ],
)
def test_conditional(marked: str, expected: str) -> None:
    check(marked, expected)


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "with <n:accelerator.no_sync(m):n>:\n    a()\n",
            "`accelerator.no_sync(m)` is not a method of a sharded module",
        ),
        ("with <n:m.no_sync():n> as c:\n    a()\n", "`c` is bound to the context"),
        (
            "async def f():\n    async with b(), <n:m.no_sync():n>:\n        a()\n",
            "`async with b(), m.no_sync():` is asynchronous",
        ),
        ("with <n:get().no_sync():n>:\n    a()\n", "`get()` cannot be evaluated more than once"),
        ("with <n:m.no_sync():n>:\n    m = a()\n", "`m` is assigned in the with statement"),
        (
            "with f() as m, <n:m.no_sync():n>:\n    a()\n",
            "`m` is assigned in the with statement",
        ),
        (
            "with (  # c\n    <n:m.no_sync():n>\n):\n    a()\n",
            "there is a comment in the head of the with statement",
        ),
        (
            "with (\n    <n:m.no_sync():n>,  # c\n    b(),\n):\n    a()\n",
            "`m.no_sync()` shares the with statement with items that cannot be separated",
        ),
        ("with <n:m.no_sync():n> if x else y():\n    a()\n", "`y()` may do something else"),
        (
            "from contextlib import suppress\n"
            "with <n:m.no_sync():n> if x else suppress(E):\n    a()\n",
            "`suppress(E)` may do something else",
        ),
        (
            f"{NULL}c = <n:m.no_sync():n> if x else nullcontext()\n"
            "with c:\n    a()\nwith c:\n    a()\n",
            "`c` is not used in exactly one with statement",
        ),
        (
            "c = <n:m.no_sync():n>\nf(c)\n",
            "`c` is also used outside the with statement",
        ),
        (
            "self.c = <n:m.no_sync():n>\nwith self.c:\n    a()\n",
            "`self.c = m.no_sync()` keeps the context where it may be used again",
        ),
        (
            "if y:\n    c = <n:m.no_sync():n>\nwith c:\n    a()\n",
            "`with c:` may be reached without `c = m.no_sync()`",
        ),
        (
            f"{NULL}c = <n:m.no_sync():n> if x else nullcontext()\nx = 1\nwith c:\n    a()\n",
            "`x` changes before the context is entered",
        ),
        (
            f"{NULL}c = <n:m.no_sync():n> if x else nullcontext()\nfor i in y:\n    with c:\n"
            "        a()\n    x = i\n",
            "`x` changes before the context is entered",
        ),
        (
            "use(<n:m.no_sync():n>)\n",
            "`m.no_sync()` is passed to unknown code; call "
            "`set_requires_gradient_sync` there by hand",
        ),
        (
            "def f(m):\n    return <n:m.no_sync():n>\n",
            "`m.no_sync()` is not entered where it is created; call "
            "`set_requires_gradient_sync` by hand",
        ),
        (
            "y = s.enter_context(<n:m.no_sync():n>)\n",
            "`m.no_sync()` is passed to unknown code; call "
            "`set_requires_gradient_sync` there by hand",
        ),
        (
            "c = <n:m.no_sync():n>; b\nwith c:\n    a()\n",
            "`c = m.no_sync()` shares its line with other code; put it on its own line",
        ),
    ],
)
def test_declined(marked: str, why: str) -> None:
    assert reason(synced(marked)[1]) == why
