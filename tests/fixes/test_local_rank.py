from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.local_rank import use_rank

READ = 'int(os.environ["LOCAL_RANK"])'


HEAD = "import os\nimport torch.distributed as dist\n"
RANK = "rank = dist.get_rank()\n"
USE = "set_device(<n:rank:n>)\n"
GET = 'int(os.environ.get("LOCAL_RANK", 0))'
UNSAFE = Safety.UNSAFE


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("program", "expected", "safety"),
    [
        (f"{RANK}{USE}", READ, UNSAFE),
        (f"{RANK}x = {READ}\n{USE}", "x", UNSAFE),
        (f"{RANK}x = {READ} % 2\n{USE}", READ, UNSAFE),
        (f"{RANK}x = {READ}\nx = 1\n{USE}", READ, UNSAFE),
        (f"{RANK}set_device({READ})\n{USE}", READ, UNSAFE),
        (f"rank = int(os.environ['RANK'])\nx = {READ}\n{USE}", "x", UNSAFE),
        (f"x = {READ}\ndef f():\n{indented(RANK + USE)}", "x", UNSAFE),
        (f"def f():\n{indented(f'x = {READ}')}{indented(RANK + USE)}", "x", UNSAFE),
        (f"{RANK}x = int(os.environ.get('LOCAL_RANK'))\n{USE}", "x", UNSAFE),
        # Without torchrun this is 0 on every rank, where the rank was a device's number.
        (f"{RANK}x = {GET}\n{USE}", "x", UNSAFE),
        (f"{RANK}x = int(os.getenv('LOCAL_RANK', '0'))\n{USE}", "x", UNSAFE),
        (f"{RANK}print({READ})\nx = {GET}\n{USE}", "x", UNSAFE),
        # It may not be bound, or not be read yet.
        (f"{RANK}{USE}x = {READ}\n", READ, UNSAFE),
        (f"def f():\n{indented(RANK + USE)}x = {READ}\n", READ, UNSAFE),
        (f"{RANK}if y:\n    x = {READ}\n{USE}", READ, UNSAFE),
        (f"{RANK}try:\n    x = {READ}\nexcept KeyError:\n    pass\n{USE}", READ, UNSAFE),
        (f"{RANK}def g():\n    x = {READ}\n{USE}", READ, UNSAFE),
        (f"{RANK}x = lambda: {READ}\n{USE}", READ, UNSAFE),
        (f"{RANK}x = y and {READ}\n{USE}", READ, UNSAFE),
        (f"{RANK}x = 0 if y else {READ}\n{USE}", READ, UNSAFE),
        # It may be another number by then.
        (f"{RANK}x = {READ}\ndel x\n{USE}", READ, UNSAFE),
        (f"{RANK}x = {READ}\nx += 10\n{USE}", READ, UNSAFE),
        (f"{RANK}x = {READ}\nfor x in y:\n    pass\n{USE}", READ, UNSAFE),
        (f"{RANK}x = {READ}\ndef g():\n    global x\n    x = 3\n{USE}", READ, UNSAFE),
        (f"x = {READ}\ndef f(x):\n{indented(RANK + USE)}", READ, UNSAFE),
        (f"{RANK}x = int('LOCAL_RANK' in os.environ)\n{USE}", READ, UNSAFE),
        (f"{RANK}x = {READ} == 0\n{USE}", READ, UNSAFE),
        (f"{RANK}x = int(os.environ['LOCAL_RANK']) // 2\n{USE}", READ, UNSAFE),
        (f"{RANK}x = int(os.environ.get('LOCAL_RANK', '0') or 1)\n{USE}", READ, UNSAFE),
        (f"{RANK}x = {READ}\nos.environ['LOCAL_RANK'] = '3'\n{USE}", "x", UNSAFE),
        (f"{RANK}x = {READ}\nos.environ.update(LOCAL_RANK='3')\n{USE}", "x", UNSAFE),
        (f"os.environ.setdefault('LOCAL_RANK', '0')\n{RANK}x = {READ}\n{USE}", "x", UNSAFE),
        # The rank is not surely the one among all nodes.
        (f"x = {READ}\ndef f(rank):\n    {USE}", "x", UNSAFE),
        (f"x = {READ}\nrank = dist.get_rank() if y else 1\n{USE}", "x", UNSAFE),
        (f"x = {READ}\nrank = dist.get_rank(group)\n{USE}", "x", UNSAFE),
        (f'{RANK}f"cuda:{{<n:rank:n>}}"\n', "os.environ['LOCAL_RANK']", UNSAFE),
        (f"{RANK}f'cuda:{{<n:rank:n>}}'\n", 'os.environ["LOCAL_RANK"]', UNSAFE),
    ],
)
def test_the_local_rank_is_written(program: str, expected: str, safety: Safety) -> None:
    at = Snippet(HEAD + program)
    node = at["n"]
    assert isinstance(node, ir.Name)
    fix = use_rank(at.code, node, "LOCAL_RANK", "local rank")
    start, end = at.spans["n"]
    assert at.fixed(fix) == at.code.text[:start] + expected + at.code.text[end:]
    assert isinstance(fix, Fix) and fix.safety is safety


def test_os_is_imported_above_all_others() -> None:
    at = Snippet("import torch\n\ntorch.cuda.set_device(<n:rank:n>)\n")
    node = at["n"]
    assert isinstance(node, ir.Name)
    fix = use_rank(at.code, node, "LOCAL_RANK", "local rank")
    assert at.fixed(fix) == f"import os\n\nimport torch\n\ntorch.cuda.set_device({READ})\n"


def test_another_int_reads_no_number() -> None:
    at = Snippet(f"{HEAD}{RANK}def int(x): return 3\nx = {READ}\n{USE}")
    node = at["n"]
    assert isinstance(node, ir.Name)
    assert reason(use_rank(at.code, node, "LOCAL_RANK", "local rank")) == (
        "`int` means something else in this file; make the change by hand"
    )
