from __future__ import annotations

import pytest
from snippets import Snippet

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.local_rank import use_local_rank

READ = 'int(os.environ["LOCAL_RANK"])'


@pytest.mark.parametrize(
    ("marked", "expected", "safety"),
    [
        ("import os\nset_device(<n:rank:n>)\n", READ, Safety.UNSAFE),
        (f"import os\nx = {READ}\nset_device(<n:rank:n>)\n", "x", Safety.SAFE),
        (f"import os\ndef f():\n    set_device(<n:r:n>)\nx = {READ}\n", "x", Safety.SAFE),
        (f"import os\nset_device(<n:rank:n>)\nx = {READ}\n", READ, Safety.SAFE),
        (f"import os\nx = {READ} % 2\nset_device(<n:rank:n>)\n", READ, Safety.SAFE),
        (f"import os\nx = {READ}\nx = 1\nset_device(<n:rank:n>)\n", READ, Safety.SAFE),
        (f"import os\nif y:\n    x = {READ}\nset_device(<n:rank:n>)\n", READ, Safety.SAFE),
        ('import os\nf"cuda:{<n:rank:n>}"\n', "os.environ['LOCAL_RANK']", Safety.UNSAFE),
        ("import os\nf'cuda:{<n:rank:n>}'\n", 'os.environ["LOCAL_RANK"]', Safety.UNSAFE),
    ],
)
def test_the_local_rank_is_written(marked: str, expected: str, safety: Safety) -> None:
    at = Snippet(marked)
    node = at["n"]
    assert isinstance(node, ir.Name)
    fix = use_local_rank(at.code, node, "LOCAL_RANK")
    start, end = at.spans["n"]
    assert at.fixed(fix) == at.code.text[:start] + expected + at.code.text[end:]
    assert isinstance(fix, Fix) and fix.safety is safety


def test_os_is_imported_above_all_others() -> None:
    at = Snippet("import torch\n\ntorch.cuda.set_device(<n:rank:n>)\n")
    node = at["n"]
    assert isinstance(node, ir.Name)
    fix = use_local_rank(at.code, node, "LOCAL_RANK")
    assert at.fixed(fix) == f"import os\n\nimport torch\n\ntorch.cuda.set_device({READ})\n"
