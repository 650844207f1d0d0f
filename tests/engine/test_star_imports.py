"""Star imports for type checkers, by which a package that loads its modules lazily names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import HEADER, event, program

from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.stars import may_bring
from fsdplint.engine.program import Program
from fsdplint.engine.project.project import Project
from fsdplint.files.file import load

_LAZY = """\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from .wrap import *
    from .other import *
else:
    import sys
    sys.modules[__name__] = None
"""
_WRAP = HEADER + "def shard(m):\n    fully_shard(m)\n"
_USES = [
    "from lib import shard\nshard(m)\n",
    "import lib\nlib.shard(m)\n",
    "from lib import *\nshard(m)\n",
    "from again import shard\nshard(m)\n",
    "from again import *\nshard(m)\n",
]


def found_by(root: Path, use: str, **others: str) -> Program:
    files = {
        "train.py": HEADER + "m = Net()\n" + use,
        "again.py": "from lib import *\n",
        "lib/__init__.py": _LAZY,
        "lib/wrap.py": _WRAP,
        "lib/other.py": "REGISTRY = {}\nREGISTRY['x'] = 1\n",
    }
    return program(root, {**files, **{f"lib/{name}.py": text for name, text in others.items()}})


def script_of(found: Program) -> Trace:
    """The one path of the script; a function that it does not reach is an entry of its own."""
    (trace,) = (each for each in found.traces if each.path.endswith("train.py"))
    return trace


def shards(found: Program) -> list[str]:
    return [event(found, each)[1] for each in script_of(found).of(Shard)]


@pytest.mark.parametrize("use", _USES)
def test_a_name_is_found_where_it_is_defined(tmp_path: Path, use: str) -> None:
    assert shards(found_by(tmp_path, use)) == ["fully_shard(m)"]


@pytest.mark.parametrize("use", _USES)
def test_a_file_that_defines_no_name_that_is_read_is_not_imported(tmp_path: Path, use: str) -> None:
    found = found_by(tmp_path, use)
    unit = found.project.units.get((tmp_path / "lib" / "other.py").as_posix())
    assert unit is None or unit.lowered is None


@pytest.mark.parametrize("use", _USES)
def test_the_last_of_two_star_imports_wins(tmp_path: Path, use: str) -> None:
    other = "from torch.distributed.fsdp import fully_shard\ndef shard(n):\n    fully_shard(n)\n"
    assert shards(found_by(tmp_path, use, other=other)) == ["fully_shard(n)"]


def test_what_a_package_binds_itself_goes_first(tmp_path: Path) -> None:
    package = _LAZY + "from .own import shard\n"
    own = "from torch.distributed.fsdp import fully_shard\ndef shard(n):\n    fully_shard(n)\n"
    found = found_by(tmp_path, _USES[0], __init__=package, own=own)
    assert shards(found) == ["fully_shard(n)"]


def test_files_that_import_each_other_have_an_unknown_name(tmp_path: Path) -> None:
    wrap = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lib import *\nshard\n"
    use = "from lib import shard\nshard(m)\nfully_shard(m)\n"
    found = found_by(tmp_path, use, wrap=wrap)
    assert shards(found) == ["fully_shard(m)"]
    assert script_of(found).complete


def test_a_star_import_that_a_program_runs_brings_its_effects(tmp_path: Path) -> None:
    found = found_by(tmp_path, _USES[0], __init__="from .wrap import *\nfrom .other import *\n")
    unit = found.project.units[(tmp_path / "lib" / "other.py").as_posix()]
    assert unit is not None and unit.lowered is not None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = b = 1\ndef c():\n    d = 1\nclass E:\n    f = 1\n", "abcE"),
        ("if a:\n    b, c = d\nfor e in f: pass\n", "abcdef"),
        ("import a as b\nfrom a import c\n", "abc"),
        ("__all__ = ['a', \"b\"]\na = b = c = 1\n", "ab"),
        ("__all__ = (\n    'a',  # the first\n)\na = b = 1\n", "a"),
        ("__all__ = ['a'] + b.__all__\na = c = 1\n", "abc"),
        ("__all__ = ['a']\n__all__ += ['b']\na = b = c = 1\n", "abc"),
        ("from more import *\na = 1\n", "az"),
        ("__all__ = ['a']\nfrom more import *\n", "az"),
        ("'a'\n# b\nc = 1\n", "c"),
    ],
)
def test_the_names_that_a_star_import_may_bring(tmp_path: Path, text: str, names: str) -> None:
    (tmp_path / "more.py").write_text("z = _hidden = 1\n")
    file = tmp_path / "module.py"
    file.write_text(text)
    linked = Project(tmp_path, lambda path: load(path).text)
    brought = {name for name in (*"abcdeEfz", "_hidden") if may_bring(linked, file, name)}
    assert brought == set(names)


def test_a_star_import_of_a_library_brings_what_is_known_of_it(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("from torch.distributed.fsdp import *\n")
    linked = Project(tmp_path, lambda path: load(path).text)
    assert may_bring(linked, file, "fully_shard")
    assert not may_bring(linked, file, "full_shard")
