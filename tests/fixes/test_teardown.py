from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix
from fsdplint.fixes.code import Declined
from fsdplint.rules.process_group_not_destroyed import destroy_at_end

HEAD = "import torch.distributed as dist\n"
CLEANUP = "def cleanup():\n    pass\n"


def fix(at: Snippet, unused: bool = False, perhaps: bool = False) -> Fix | Declined:
    """The fix behind the last statement of the function ``f``, or of the file."""
    body = at.code.module.body
    functions = {node.function.name: node for node in body if isinstance(node, ir.FunctionDef)}
    last = functions["f"].function.body[-1] if "f" in functions else body[-1]
    return destroy_at_end(at.code, last, functions["cleanup"] if unused else None, perhaps=perhaps)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n    x()\n", "def f():\n    x()\n    dist.destroy_process_group()\n"),
        ("x()", "x()\ndist.destroy_process_group()"),
        (
            "def f():\n    for y in x:\n        y()\n\n\nz()\n",
            "def f():\n    for y in x:\n        y()\n    dist.destroy_process_group()\n\n\nz()\n",
        ),
        (
            "def f():\n    x()\n    return 1, y\n",
            "def f():\n    x()\n    dist.destroy_process_group()\n    return 1, y\n",
        ),
    ],
)
def test_the_group_is_destroyed_at_the_end(text: str, expected: str) -> None:
    at = Snippet(HEAD + text)
    assert at.fixed(fix(at)) == HEAD + expected


def test_where_there_may_be_none_it_is_asked() -> None:
    at = Snippet(f"{HEAD}def f():\n  x()\n")
    asked = "  if dist.is_initialized():\n    dist.destroy_process_group()\n"
    assert at.fixed(fix(at, perhaps=True)) == at.code.text + asked


def test_the_function_that_does_so_is_called() -> None:
    at = Snippet(f"{CLEANUP}def f():\n    x()\n")
    assert at.fixed(fix(at, unused=True)) == f"{at.code.text}    cleanup()\n"


def test_one_that_wants_to_be_told_more_is_not() -> None:
    at = Snippet(f"{HEAD}{CLEANUP.replace('()', '(rank)')}def f():\n    x()\n")
    expected = f"{at.code.text}    dist.destroy_process_group()\n"
    assert at.fixed(fix(at, unused=True)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "def f():\n    return x()\n",
            "`return x()` may still use the process group; call `destroy_process_group` after it "
            "by hand",
        ),
        (
            "def f(): x()\n",
            "`x()` shares its line with other code; call `destroy_process_group` by hand",
        ),
    ],
)
def test_declines(text: str, why: str) -> None:
    assert reason(fix(Snippet(HEAD + text))) == why
