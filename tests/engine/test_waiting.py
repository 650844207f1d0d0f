"""What of a module waits until it is read, and what an import has to run at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import HEADER, path_of, program, project

from fsdplint.engine.interpreter.deferral import top_level
from fsdplint.engine.project.relevance import related_units

SHARDS = (
    "from torch.distributed.fsdp import fully_shard\ndef shard(model):\n    fully_shard(model)\n"
)


def waiting(root: Path, files: dict[str, str]) -> set[str]:
    """The names of ``module.py`` that wait."""
    linked = project(root, files)
    unit = linked.unit(root / "module.py")
    assert unit is not None
    return set(top_level(linked, unit).waiting)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("def f(): pass", {"f"}),
        ("a = b = [1, 2]", {"a", "b"}),
        ("if os.name:\n    import x\n    def f(): x.y\nelse:\n    x = None", {"x", "f"}),
        ("try:\n    from x import f\nexcept ImportError:\n    f = None", {"f"}),
        ("try:\n    from x import f\nfinally:\n    pass", {"f"}),
        ("if (n := 3):\n    a = n", set()),
        ("if True:\n    from x import *", set()),
        ("if True:\n    import never_read", set()),
        ("if True:\n    print(1)\n    a = 1", set()),
        ("a = 1\ndel a", set()),
        ("a = 1\na = 2", set()),
        ("table[1] = 2", set()),
    ],
)
def test_what_only_binds_names_waits(tmp_path: Path, statement: str, expected: set[str]) -> None:
    assert waiting(tmp_path, {"module.py": statement + "\n"}) == expected


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        ("if __name__ == '__main__':", False),
        ("if '__main__' == __name__:", False),
        ("if __name__ != '__main__':", True),
        ("if __name__ == '__main__':\n    pass\nelse:", True),
    ],
)
def test_what_is_for_the_program_alone_is_not_run_by_an_import(
    tmp_path: Path, test: str, runs: bool
) -> None:
    linked = project(tmp_path, {"module.py": f"{test}\n    main()\n"})
    unit = linked.unit(tmp_path / "module.py")
    assert unit is not None
    assert bool(top_level(linked, unit).at_once) is runs


PLAIN = [
    "def keep(fn):\n    return fn",
    "def keep(fn):\n    setattr(fn, 'marked', True)\n    return fn",
    "def keep(fn):\n    fn.marked = True\n    return fn",
    "def keep(fn):\n    @wraps(fn)\n    def two(*a):\n        return fn(*a)\n    return two",
    "def keep(fn):\n    seen = {}\n    seen[fn] = 1\n    return fn",
]
KEEPING = [
    "def keep(fn):\n    TABLE[fn.__name__] = fn\n    return fn",
    "def keep(fn):\n    TABLE.setdefault('a', fn)\n    return fn",
    "def keep(fn):\n    table = TABLE\n    table['a'] = fn\n    return fn",
    "def keep(fn):\n    first = TABLE\n    table = first\n    table['a'] = fn\n    return fn",
    "def keep(fn):\n    for table in [TABLE]:\n        table['a'] = fn\n    return fn",
    "def keep(fn, table=TABLE):\n    table['a'] = fn\n    return fn",
    "def keep(fn):\n    if (table := TABLE) is not None:\n        table['a'] = fn\n    return fn",
    "def keep(fn):\n    dict.update(TABLE, a=fn)\n    return fn",
    "def keep(fn):\n    setattr(TABLE, 'a', fn)\n    return fn",
    "def keep(fn):\n    global LAST\n    LAST = fn\n    return fn",
    "def keep(fn):\n    note(fn)\n    return fn\ndef note(fn):\n    TABLE['a'] = fn",
    "class keep:\n    def __init__(self, fn):\n        TABLE['a'] = fn",
]


@pytest.mark.parametrize("decorator", [*PLAIN, *KEEPING])
def test_what_a_decorator_may_keep_is_run_at_once(tmp_path: Path, decorator: str) -> None:
    files = {
        "deco.py": f"from functools import wraps\nTABLE = {{}}\nLAST = None\n{decorator}\n",
        "module.py": "from deco import keep\n@keep\ndef made(model):\n    pass\n",
    }
    assert waiting(tmp_path, files) == ({"made"} if decorator in PLAIN else set())


def test_what_imports_a_registry_is_run_at_once(tmp_path: Path) -> None:
    files = {
        "deco.py": f"TABLE = {{}}\n{KEEPING[0]}\n",
        "models.py": f"from deco import keep\n{SHARDS}@keep\ndef made(model):\n    shard(model)\n",
        "module.py": "if True:\n    from models import made\n",
        "train.py": "from module import made\nfrom deco import TABLE\n",
    }
    linked = project(tmp_path, files)
    related_units(linked, [tmp_path / name for name in files])
    unit = linked.unit(tmp_path / "module.py")
    assert unit is not None
    assert set(top_level(linked, unit).waiting) == set()


def test_what_is_assigned_from_outside_stays_when_its_block_runs_late(tmp_path: Path) -> None:
    files = {
        "lib.py": "if flag:\n    a = 1\n    b = 2\nelse:\n    a = 3\n    b = 4\n",
        "train.py": HEADER + "import lib\nlib.a = 5\nprint(lib.b)\n"
        "if lib.a == 5:\n    fully_shard(model)\n",
    }
    assert path_of(program(tmp_path, files)).decisions == []
