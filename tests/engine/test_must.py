"""What holds on every path: reaching definitions, callers, and the values of expressions."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from fsdplint.engine import ir
from fsdplint.engine.must.definitions import Unbound
from fsdplint.engine.must.values import Instance, Literal, Result, possible
from fsdplint.engine.program import Program, analyze

_HEAD = """
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
import torch.nn as nn
"""


def program_of(files: dict[str, str], root: Path = Path("/project")) -> Program:
    """The program of ``files``; imports among several of them need them on the disk."""
    texts = {root / name: dedent(text) for name, text in files.items()}
    for path, text in texts.items() if len(texts) > 1 else ():
        path.write_text(text)
    return analyze(root, sorted(texts), texts.get)


def described(program: Program, path: str, expression: str) -> list[str] | None:
    """What ``expression`` can be where ``here()`` is called."""
    program.project.unit(Path(path))
    tree = program.tree(path)
    calls = [n for n in tree.walk("here") if isinstance(n, ir.Call)]
    marks = [call for call in calls if ir.last_name(call.func) == "here"]
    assert len(marks) == 1
    values = possible(program, path, expression, tree.statement(marks[0]))
    return None if values is None else sorted(map(_name, values))


def _name(value: object) -> str:
    if isinstance(value, Result):
        return value.name.rpartition(".")[2]
    if isinstance(value, Instance):
        return value.cls.name
    if isinstance(value, Literal):
        return repr(value.value)
    return "unbound" if isinstance(value, Unbound) else type(value).__name__


@pytest.mark.parametrize(
    ("code", "expression", "expected"),
    [
        ("s = DistributedSampler(d)\nhere()", "s", ["DistributedSampler"]),
        ("s = RandomSampler(d)\ns = DistributedSampler(d)\nhere()", "s", ["DistributedSampler"]),
        ("here()\ns = DistributedSampler(d)", "s", ["unbound"]),
        ("s = DistributedSampler(d)\ndel s\nhere()", "s", ["unbound"]),
        (
            "s = DistributedSampler(d) if x else None\nhere()",
            "s",
            ["DistributedSampler", "None"],
        ),
        ("if x:\n    s = DistributedSampler(d)\nhere()", "s", ["DistributedSampler", "unbound"]),
        (
            "s = None\nif x:\n    s = DistributedSampler(d)\nelse:\n    raise SystemExit\nhere()",
            "s",
            ["DistributedSampler"],
        ),
        (
            "s = DistributedSampler(d)\nfor e in range(3):\n    here()\n    s = None",
            "s",
            ["DistributedSampler", "None"],
        ),
        (
            "try:\n    s = DistributedSampler(d)\nexcept ValueError:\n    s = None\nhere()",
            "s",
            ["DistributedSampler", "None"],
        ),
        (
            "try:\n    s = DistributedSampler(d)\nexcept ValueError:\n    pass\nhere()",
            "s",
            ["DistributedSampler", "unbound"],
        ),
        (
            "s = None\ntry:\n    s = DistributedSampler(d)\nfinally:\n    here()",
            "s",
            ["DistributedSampler", "None"],
        ),
        (
            "import contextlib\ns = None\nwith contextlib.suppress(ValueError):\n"
            "    s = DistributedSampler(d)\nhere()",
            "s",
            ["DistributedSampler", "None"],
        ),
        (
            "s = DistributedSampler(d)\nif (s := None):\n    pass\nhere()",
            "s",
            ["DistributedSampler", "None"],
        ),
        ("s = t = DistributedSampler(d)\nhere()", "t", ["DistributedSampler"]),
        ("s, t = DistributedSampler(d), None\nhere()", "s", ["DistributedSampler"]),
        ("s = unknown(d)\nhere()", "s", None),
        (
            "from torch.distributed.fsdp import *\nm = FullyShardedDataParallel(x)\nhere()",
            "m",
            ["FullyShardedDataParallel"],
        ),
        ("from somewhere import *\nm = FSDP(x)\nhere()", "m", None),
        ("for s in [DistributedSampler(d)]:\n    here()", "s", None),
        ("s = DistributedSampler(d)\ns += 1\nhere()", "s", None),
        ("s = DistributedSampler(d)\ns.seed = 1\nhere()", "s", ["DistributedSampler"]),
        (
            "l = DataLoader(d, sampler=DistributedSampler(d))\nhere()",
            "l.sampler",
            ["DistributedSampler"],
        ),
        (
            "l = DataLoader(d, 2, False, DistributedSampler(d))\nhere()",
            "l.sampler",
            ["DistributedSampler"],
        ),
        ("l = DataLoader(d, shuffle=True)\nhere()", "l.sampler", ["Sampler"]),
        ("m = FSDP(nn.Linear(2, 2)).cuda()\nhere()", "m", ["FullyShardedDataParallel"]),
        (
            "m = nn.Linear(2, 2)\nif x:\n    m = FSDP(m)\nhere()",
            "m",
            ["FullyShardedDataParallel", "Linear"],
        ),
        (
            "def make(x):\n    if x:\n        return DistributedSampler(d)\ns = make(1)\nhere()",
            "s",
            ["DistributedSampler", "None"],
        ),
        (
            "def make(x):\n    if x:\n        return DistributedSampler(d), 1\n"
            "    return None, 2\ns, n = make(1)\nhere()",
            "s",
            ["DistributedSampler", "None"],
        ),
        (
            "def f(s):\n    here()\nf(DistributedSampler(d))\nf(None)",
            "s",
            ["DistributedSampler", "None"],
        ),
        (
            "def f(s=None):\n    here()\nf(s=DistributedSampler(d))\nf()",
            "s",
            ["DistributedSampler", "None"],
        ),
        (
            "def f(s):\n    here()\nspawn(f, DistributedSampler(d))\nf(DistributedSampler(d))",
            "s",
            None,
        ),
        ("def f(s):\n    here()\nf(*args)", "s", None),
        ("def f(s):\n    here()", "s", None),
        ("s = DistributedSampler(d)\ndef f():\n    global s\n    s = None\nhere()", "s", None),
        (
            "s = DistributedSampler(d)\ndef f():\n    here()\ns = None",
            "s",
            ["DistributedSampler", "None"],
        ),
        ("s = DistributedSampler(d)\nexec(text)\nhere()", "s", None),
        (
            "match x:\n    case 1:\n        s = DistributedSampler(d)\n"
            "    case _:\n        s = None\nhere()",
            "s",
            ["DistributedSampler", "None", "unbound"],
        ),
        (
            "while True:\n    s = DistributedSampler(d)\n    break\nhere()",
            "s",
            ["DistributedSampler", "unbound"],
        ),
    ],
)
def test_values_at_a_statement(code: str, expression: str, expected: list[str] | None) -> None:
    program = program_of({"main.py": f"{_HEAD}\n{code}\n"})
    assert described(program, "/project/main.py", expression) == expected


_TRAINER = """
from torch.utils.data import DataLoader, DistributedSampler
class Trainer:
    def __init__(self, distributed):
        self.sampler = DistributedSampler(d)
        self.late = DistributedSampler(d) if distributed else None
        if distributed:
            self.maybe = DistributedSampler(d)
    def train(self):
        here()
"""


@pytest.mark.parametrize(
    ("more", "expression", "expected"),
    [
        ("", "self.sampler", ["DistributedSampler"]),
        ("", "self.late", ["DistributedSampler", "None"]),
        ("", "self.maybe", ["DistributedSampler", "unbound"]),
        ("", "self.absent", None),
        ("def f(t):\n    t.sampler = None", "self.sampler", ["DistributedSampler", "None"]),
        ("def f(t):\n    setattr(t, 'sampler', None)", "self.sampler", None),
        (
            "class Other:\n    def f(self):\n        self.sampler = None",
            "self.sampler",
            ["DistributedSampler"],
        ),
        (
            "class Derived(Trainer):\n    def f(self):\n        self.sampler = None",
            "self.sampler",
            ["DistributedSampler", "None"],
        ),
        (
            "class Derived(Trainer):\n    def __init__(self):\n        pass",
            "self.sampler",
            ["DistributedSampler", "unbound"],
        ),
    ],
)
def test_attributes_of_objects(more: str, expression: str, expected: list[str] | None) -> None:
    program = program_of({"main.py": f"{_TRAINER}\n{more}\n"})
    assert described(program, "/project/main.py", expression) == expected


def test_callers_in_other_files(tmp_path: Path) -> None:
    program = program_of(
        {
            "loop.py": "def train(sampler):\n    here()\n",
            "one.py": "from torch.utils.data import DistributedSampler\nfrom loop import train\n"
            "train(DistributedSampler(d))\n",
            "two.py": "import loop\nloop.train(None)\n",
            "three.py": "model.train(unrelated)\n",
        },
        tmp_path,
    )
    found = described(program, (tmp_path / "loop.py").as_posix(), "sampler")
    assert found == ["DistributedSampler", "None"]


@pytest.mark.parametrize(
    "importer",
    [
        "from loop import train as run\nrun(None)\n",
        "from loop import train\nspawn(train)\n",
        "import loop\nspawn(loop.train)\n",
        "from loop import *\ntrain(unknown)\n",
    ],
)
def test_a_caller_that_cannot_be_followed(importer: str, tmp_path: Path) -> None:
    program = program_of(
        {
            "loop.py": "def train(sampler):\n    here()\n",
            "one.py": "from torch.utils.data import DistributedSampler\nfrom loop import train\n"
            "train(DistributedSampler(d))\n",
            "two.py": importer,
        },
        tmp_path,
    )
    assert described(program, (tmp_path / "loop.py").as_posix(), "sampler") is None


def test_a_variable_that_another_file_sets(tmp_path: Path) -> None:
    program = program_of(
        {
            "one.py": "from torch.utils.data import DistributedSampler\n"
            "sampler = DistributedSampler(d)\ndef f():\n    here()\n",
            "two.py": "import one\none.sampler = None\n",
        },
        tmp_path,
    )
    assert described(program, (tmp_path / "one.py").as_posix(), "sampler") is None


def test_two_functions_of_one_name() -> None:
    text = (
        "from torch.utils.data import DistributedSampler\n"
        "if x:\n    def make():\n        return 1\n"
        "else:\n    def make():\n        return DistributedSampler(d)\ns = make()\nhere()\n"
    )
    assert described(program_of({"main.py": text}), "/project/main.py", "s") is None


def test_more_files_than_one_question_looks_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdplint.engine.must.references.MAX_FILES", 0)
    text = "from torch.utils.data import DistributedSampler\n" + (
        "def f(s):\n    here()\nf(DistributedSampler(d))\n"
    )
    assert described(program_of({"main.py": text}), "/project/main.py", "s") is None
