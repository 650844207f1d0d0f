from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.rules.no_sync_under_fsdp2 import sync_last_micro_batch

BY_HAND = "; call `set_requires_gradient_sync` by hand"

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
    assert reason(synced(marked)[1]) == (
        f"no backward outside the `with` would reduce the gradients{BY_HAND}"
    )


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
            f"`accelerator.no_sync(m)` takes arguments, unlike FSDP's{BY_HAND}",
        ),
        (
            "with <n:m.no_sync():n> as c:\n    a()\n",
            f"`c` keeps the context{BY_HAND}",
        ),
        (
            "async def f():\n    async with b(), <n:m.no_sync():n>:\n        a()\n",
            f"`async with b(), m.no_sync():` is asynchronous{BY_HAND}",
        ),
        (
            "with <n:get().no_sync():n>:\n    a()\n",
            f"`get()` would be evaluated more than once{BY_HAND}",
        ),
        (
            "with <n:m.no_sync():n>:\n    m = a()\n",
            f"`m` is assigned in the `with` statement{BY_HAND}",
        ),
        (
            "with f() as m, <n:m.no_sync():n>:\n    a()\n",
            f"`m` is assigned in the `with` statement{BY_HAND}",
        ),
        (
            "with (  # c\n    <n:m.no_sync():n>\n):\n    a()\n",
            f"a comment is in the header of the `with` statement{BY_HAND}",
        ),
        (
            "with (\n    <n:m.no_sync():n>,  # c\n    b(),\n):\n    a()\n",
            f"`m.no_sync()` cannot be split from the items next to it{BY_HAND}",
        ),
        ("with <n:m.no_sync():n> if x else y():\n    a()\n", f"`y()` may not be a no-op{BY_HAND}"),
        (
            "from contextlib import suppress\n"
            "with <n:m.no_sync():n> if x else suppress(E):\n    a()\n",
            f"`suppress(E)` may not be a no-op{BY_HAND}",
        ),
        (
            f"{NULL}c = <n:m.no_sync():n> if x else nullcontext()\n"
            "with c:\n    a()\nwith c:\n    a()\n",
            f"`c` is not used exactly once{BY_HAND}",
        ),
        (
            "c = <n:m.no_sync():n>\nf(c)\n",
            f"`c` is not used by a `with` statement directly{BY_HAND}",
        ),
        (
            "self.c = <n:m.no_sync():n>\nwith self.c:\n    a()\n",
            f"`self.c = m.no_sync()` may share the context with other code{BY_HAND}",
        ),
        (
            "if y:\n    c = <n:m.no_sync():n>\nwith c:\n    a()\n",
            f"`with c:` may run without `c = m.no_sync()`{BY_HAND}",
        ),
        (
            f"{NULL}c = <n:m.no_sync():n> if x else nullcontext()\nx = 1\nwith c:\n    a()\n",
            f"`x` changes before the `with` statement{BY_HAND}",
        ),
        (
            f"{NULL}c = <n:m.no_sync():n> if x else nullcontext()\nfor i in y:\n    with c:\n"
            "        a()\n    x = i\n",
            f"`x` changes before the `with` statement{BY_HAND}",
        ),
        ("use(<n:m.no_sync():n>)\n", f"`m.no_sync()` is passed to another call{BY_HAND}"),
        (
            "def f(m):\n    return <n:m.no_sync():n>\n",
            f"`m.no_sync()` is not in a `with` statement{BY_HAND}",
        ),
        (
            "y = s.enter_context(<n:m.no_sync():n>)\n",
            f"`m.no_sync()` is passed to another call{BY_HAND}",
        ),
        (
            "c = <n:m.no_sync():n>; b\nwith c:\n    a()\n",
            "`c = m.no_sync()` shares its line with other code; put it on its own line",
        ),
    ],
)
def test_declined(marked: str, why: str) -> None:
    assert reason(synced(marked)[1]) == why
