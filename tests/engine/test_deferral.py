"""Which statements of a module are deferred, and which an import has to run at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import HEADER, path_of, paths_started, program, project

from fsdplint.engine import ir
from fsdplint.engine.interpreter.deferral import top_level
from fsdplint.engine.project.relevance import related_units

SHARDS = (
    "from torch.distributed.fsdp import fully_shard\ndef shard(model):\n    fully_shard(model)\n"
)


def deferred_names(root: Path, files: dict[str, str]) -> set[str]:
    """The names of ``module.py`` that are deferred."""
    linked = project(root, files)
    unit = linked.unit(root / "module.py")
    assert unit is not None
    return set(top_level(linked, unit).deferred)


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
    assert deferred_names(tmp_path, {"module.py": statement + "\n"}) == expected


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


KEEPS = "def keep(fn):\n    TABLE[fn.__name__] = fn\n    return fn"


@pytest.mark.parametrize(("module", "deferred"), [("deco", set()), ("library", {"made"})])
def test_what_the_project_decorates_is_run_at_once(
    tmp_path: Path, module: str, deferred: set[str]
) -> None:
    files = {
        "deco.py": f"TABLE = {{}}\n{KEEPS}\n",
        "module.py": f"from {module} import keep\n@keep\ndef made(model):\n    pass\n",
    }
    assert deferred_names(tmp_path, files) == deferred


@pytest.mark.parametrize(("given", "waits"), [("1", True), ("other", False)])
def test_a_decorator_may_keep_what_it_is_given(tmp_path: Path, given: str, waits: bool) -> None:
    text = (
        "def mark(*given):\n    TABLE.extend(given)\n    def decorate(fn):\n        return fn\n"
        f"    return decorate\ndef other(): pass\n@mark({given})\ndef made(model): pass\n"
    )
    assert ("made" in deferred_names(tmp_path, {"module.py": text})) is waits


@pytest.mark.parametrize(
    ("made", "decorator", "waits"),
    [
        ("APIRouter(prefix='/jobs')", "app.get('/', dependencies=[Depends(check)])", True),
        ("APIRouter()", "app.get(prefix())", False),
        ("APIRouter(prefix=prefix())", "app.get('/')", False),
        ("{}", "app.get('/')", False),
        ("typer.Typer()", "app.command()", False),
    ],
)
def test_what_an_object_of_a_library_decorates_waits(
    tmp_path: Path, made: str, decorator: str, waits: bool
) -> None:
    text = (
        "import typer\nfrom fastapi import APIRouter, Depends\n"
        "def check(): pass\ndef prefix(): return '/'\n"
        f"app = {made}\n@{decorator}\ndef jobs(): pass\n"
    )
    assert ("jobs" in deferred_names(tmp_path, {"module.py": text})) is waits


def test_what_imports_a_registry_is_run_at_once(tmp_path: Path) -> None:
    files = {
        "deco.py": f"TABLE = {{}}\n{KEEPS}\n",
        "models.py": f"from deco import keep\n{SHARDS}@keep\ndef made(model):\n    shard(model)\n",
        "module.py": "if True:\n    from models import made\n",
        "train.py": "from module import made\nfrom deco import TABLE\n",
    }
    linked = project(tmp_path, files)
    related_units(linked, [tmp_path / name for name in files])
    unit = linked.unit(tmp_path / "module.py")
    assert unit is not None
    assert set(top_level(linked, unit).deferred) == set()


def test_what_is_assigned_from_outside_stays_when_its_block_runs_late(tmp_path: Path) -> None:
    files = {
        "lib.py": "if flag:\n    a = 1\n    b = 2\nelse:\n    a = 3\n    b = 4\n",
        "train.py": HEADER + "import lib\nlib.a = 5\nprint(lib.b)\n"
        "if lib.a == 5:\n    fully_shard(model)\n",
    }
    assert path_of(program(tmp_path, files)).decisions == []


WORKER = """\
TABLE = []
KNOWN = {}

class Marks:
    names = []

class Named:
    def __init__(self, f):
        self.f = f

def plain(size):
    assert size
    def wrap(f):
        inner = Named(f)
        setattr(f, "size", size)
        return f
    return wrap

def in_list(size):
    def wrap(f):
        TABLE.append(f)
        return f
    return wrap

def in_dict(size):
    def wrap(f):
        KNOWN[size] = f
        return f
    return wrap

def in_class(size):
    def wrap(f):
        Marks.last = f
        return f
    return wrap

def as_global(size):
    def wrap(f):
        global last
        last = f
        return f
    return wrap

class Worker:
    @{decorator}(SIZE)
    def work(self): pass
"""


@pytest.mark.parametrize(
    ("decorator", "again"),
    [
        ("plain", False),
        ("in_list", True),
        ("in_dict", True),
        ("in_class", True),
        ("as_global", True),
    ],
)
def test_the_body_of_an_imported_class_runs_once_unless_it_changes_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decorator: str, again: bool
) -> None:
    started = paths_started(monkeypatch)
    script = (
        "import sys\nfrom worker import Worker\nfrom shard import shard\n"
        "def main(args, model):\n    shard(model)\n"
        "    if args.other:\n        shard(model.layers)\n    Worker().work()\n"
    )
    worker = WORKER.replace("{decorator}", decorator).replace("SIZE", "2")
    program(tmp_path, {"main.py": script, "worker.py": worker, "shard.py": SHARDS})
    ran = [
        {node.name for node in state.reached if isinstance(node, ir.Function)} for state in started
    ]
    assert ["wrap" in names for names in ran if "work" in names] == [True, again]
