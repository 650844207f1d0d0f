"""Relevance: which files take part in sharding, and which of their definitions can reach it."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from helpers import program, project, write

from fsdplint.engine.budget import BUDGET
from fsdplint.engine.interpreter.deferral import registers
from fsdplint.engine.project import reachability, relevance
from fsdplint.engine.project.prefilter import mentions_sharding
from fsdplint.engine.project.relevance import related_units

SHARD = "from torch.distributed.fsdp import fully_shard\n"


def related(root: Path, files: dict[str, str]) -> list[str]:
    linked = project(root, files)
    units = related_units(linked, [root / name for name in files])
    return [Path(each.path).relative_to(root).as_posix() for each in units]


def hot(root: Path, files: dict[str, str]) -> set[str]:
    """Hot definitions as ``file:name`` or ``file:Class.method``."""
    found = set()
    for each in program(root, files).units:
        stem = Path(each.path).stem
        for definition in each.definitions.values():
            methods = definition.methods.values()
            found |= {f"{stem}:{definition.name}"} if definition.may_shard else set()
            found |= {f"{stem}:{definition.name}.{m.name}" for m in methods if m.may_shard}
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fully_shard(model)", True),
        ("fsdp.FullyShardedDataParallel", True),
        ("import torch.distributed.fsdp", False),
        ("FSDP(model)", False),
    ],
)
def test_a_mention_of_sharding(text: str, expected: bool) -> None:
    assert mentions_sharding(text) is expected


# Files


def test_importers_are_found_through_any_number_of_files(tmp_path: Path) -> None:
    files = {
        "top.py": "from middle import m\n",
        "middle.py": "import lower\n",
        "lower.py": "from pkg import *\n",
        "pkg/__init__.py": "from .wrap import shard\n",
        "pkg/wrap.py": SHARD + "def shard(m): fully_shard(m)\n",
        "unrelated.py": "import json\nimport other\n",
        "other.py": "x = 1\n",
    }
    assert related(tmp_path, files) == [
        "top.py",
        "middle.py",
        "lower.py",
        "pkg/__init__.py",
        "pkg/wrap.py",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import wrap\n",
        "import os, wrap as w\n",
        "from wrap import (\n    a,  # of all\n    shard,\n)\n",
        "if x:\n    from wrap import shard\n",
        "def f():\n\tfrom wrap import shard as s\n",
        "try:\n    import wrap\nexcept ImportError:\n    wrap = None\n",
        "from wrap import *\n",
        "from . import wrap\n",
        "from  .  import wrap\n",
        "from .wrap import shard\n",
    ],
)
def test_every_form_of_import_is_seen(tmp_path: Path, text: str) -> None:
    files = {"train.py": text, "wrap.py": SHARD + "def shard(m): fully_shard(m)\n"}
    assert related(tmp_path, files) == ["train.py", "wrap.py"]


@pytest.mark.parametrize(
    "text",
    ["# import wrap\n", "x = 'import wrap'\n", "import wrapper\n", "from other import wrap\n"],
)
def test_what_is_no_import_is_not_followed(tmp_path: Path, text: str) -> None:
    assert related(tmp_path, {"train.py": text, "wrap.py": SHARD}) == ["wrap.py"]


def test_cyclic_imports_end(tmp_path: Path) -> None:
    files = {
        "a.py": "import b\n",
        "b.py": "import a\nimport c\n",
        "c.py": SHARD + "import a\n",
    }
    assert related(tmp_path, files) == ["a.py", "b.py", "c.py"]


def test_a_file_named_like_the_standard_library_is_not_imported(tmp_path: Path) -> None:
    files = {"train.py": "import types\n", "types.py": SHARD}
    assert related(tmp_path, files) == ["types.py"]


def test_a_program_without_sharding_has_no_files(tmp_path: Path) -> None:
    assert related(tmp_path, {"a.py": "import b\n", "b.py": "x = 1\n"}) == []


def test_a_large_project_is_narrowed_to_files_that_name_what_they_import(tmp_path: Path) -> None:
    files = {
        "wrap.py": SHARD + "def shard_model(m): fully_shard(m)\ndef cold(m): pass\n",
        "build.py": "from wrap import shard_model\ndef build_model():\n    shard_model(1)\n",
        "train.py": "import build\nbuild.build_model()\n",
        "same_word.py": "import train\nshard_model = 1\n",
        **{f"user{i}.py": "import wrap\nwrap.cold(1)\n" for i in range(relevance._MAX_IMPORTERS)},
    }
    assert related(tmp_path, files) == ["wrap.py", "build.py", "train.py"]
    assert hot(tmp_path, files) == {"wrap:shard_model", "build:build_model"}


def test_of_many_programs_those_that_are_asked_about_come_first(tmp_path: Path) -> None:
    users = [f"user{number:03}.py" for number in range(BUDGET.users + 5)]
    files = {
        "wrap.py": SHARD + "def shard_model(m): fully_shard(m)\n",
        **dict.fromkeys(users, "import wrap\nwrap.shard_model(1)\n"),
    }
    every = [tmp_path / name for name in files]
    linked = project(tmp_path, files)
    units = related_units(linked, every, [tmp_path / "wrap.py", tmp_path / users[-1]])
    names = [Path(each.path).name for each in units]
    assert names == ["wrap.py", *users[: BUDGET.users - 1], users[-1]]
    left_out = {Path(stop.path).name for stop in linked.early_stops}
    assert left_out == set(users[BUDGET.users - 1 : -1])


def test_a_small_project_is_taken_whole(tmp_path: Path) -> None:
    files = {
        "wrap.py": SHARD + "def cold(m): pass\n",
        **{f"user{i}.py": "import wrap\n" for i in range(5)},
    }
    assert related(tmp_path, files) == list(files)


# Definitions


def test_hot_definitions_of_a_file(tmp_path: Path) -> None:
    text = (
        SHARD
        + """\
def direct(m): fully_shard(m)
def caller(m): direct(m)
def nested(m):
    def inner(): direct(m)
    return inner
def cold(m): m.train()
def spelled(fully_shards): fully_shards()
TABLE = {"a": direct}
COLD = {"a": cold}
def by_table(m): TABLE["a"](m)
def by_cold_table(m): COLD["a"](m)
class Trainer:
    def setup(self): self.wrap()
    def wrap(self): fully_shard(self.model)
    def log(self): cold(self.model)
class Derived(Trainer):
    def run(self): pass
class Plain:
    def run(self): pass
def uses_class(): Trainer()
"""
    )
    assert hot(tmp_path, {"x.py": text}) == {
        "x:direct",
        "x:caller",
        "x:nested",
        "x:TABLE",
        "x:by_table",
        "x:Trainer",
        "x:Trainer.setup",
        "x:Trainer.wrap",
        "x:Derived",
        "x:uses_class",
    }


def test_hot_through_attributes_of_the_library(tmp_path: Path) -> None:
    text = """\
import torch.distributed.fsdp as fsdp
def one(m): fsdp.fully_shard(m)
def two(m): fsdp.FullyShardedDataParallel(m)
def three(m): fsdp.MixedPrecisionPolicy()
"""
    assert hot(tmp_path, {"x.py": text}) == {"x:one", "x:two"}


def test_hot_through_imports(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from .wrap import shard as shard_model\n",
        "pkg/wrap.py": SHARD + "def shard(m): fully_shard(m)\ndef cold(m): pass\n",
        "a.py": "from pkg import shard_model\ndef f(m): shard_model(m)\n",
        "b.py": "from pkg.wrap import shard, cold\ndef g(m): shard(m)\ndef h(m): cold(m)\n",
        "c.py": "import pkg.wrap\ndef i(m): pkg.wrap.shard(m)\ndef j(m): pkg.wrap.cold(m)\n",
        "d.py": "def k(m):\n    from pkg.wrap import shard as s\n    s(m)\n",
        "e.py": "from pkg.wrap import cold as shard\ndef l(m): shard(m)\n",
    }
    assert hot(tmp_path, files) == {"wrap:shard", "a:f", "b:g", "c:i", "d:k"}


def test_hot_through_a_base_class_of_another_file(tmp_path: Path) -> None:
    files = {
        "base.py": SHARD + "class Base:\n    def setup(self): fully_shard(self.model)\n",
        "own.py": "from base import Base\nclass Own(Base):\n    def run(self): pass\n"
        "class Other:\n    def run(self): pass\n",
        "main.py": "from own import Own\ndef main(): Own().run()\n",
    }
    assert hot(tmp_path, files) == {"base:Base", "base:Base.setup", "own:Own", "main:main"}


def test_an_attribute_with_many_namesakes_means_those_of_its_file(tmp_path: Path) -> None:
    many = {
        f"m{i}.py": SHARD + "class A:\n    def run(self): fully_shard(self)\n"
        for i in range(reachability._MAX_NAMESAKES + 1)
    }
    text = "import m0\ndef f(x): x.run()\n"
    assert "x:f" not in hot(tmp_path / "many", {**many, "x.py": text})
    assert "x:f" in hot(tmp_path / "few", {"m0.py": many["m0.py"], "x.py": text})


def test_a_table_goes_on_in_lines_that_are_not_indented(tmp_path: Path) -> None:
    table = "TABLE = {'way': (\nshard,\n)}\nother = 1\n"
    files = {"x.py": SHARD + f"def shard(m): fully_shard(m)\n{table}"}
    assert hot(tmp_path, files) == {"x:shard", "x:TABLE"}


def test_a_file_registers_when_a_decorated_function_shards(tmp_path: Path) -> None:
    registry = "TABLE = {}\ndef register(f):\n    TABLE[f.__name__] = f\n    return f\n"
    body = SHARD + "from registry import register\n@register\ndef shard(m): {}\n"
    routes = body.replace("from registry import", "from web import app\nregister = app\n#")
    files = {
        "registry.py": registry,
        "hot.py": body.format("fully_shard(m)"),
        "cold.py": body.format("pass"),
        "routes.py": routes.format("fully_shard(m)"),
    }
    units = program(tmp_path, files).units
    told = {Path(each.path).stem: each.registers for each in units}
    assert told == {"hot": True, "cold": False, "routes": False}


@pytest.mark.parametrize("order", [*permutations("abcd")], ids="".join)
def test_what_importing_files_registers_does_not_hang_on_which_is_asked_first(
    order: tuple[str, ...], tmp_path: Path
) -> None:
    registers_one = SHARD + "from keeping import keep\n@keep\ndef shard(m):\n    fully_shard(m)\n"
    files = {
        "keeping.py": "FOUND = []\ndef keep(f):\n    FOUND.append(f)\n    return f\n",
        "a.py": SHARD + "import b\n",
        "b.py": SHARD + "import a, c\n",
        "c.py": registers_one,
        "d.py": SHARD + "import keeping\n",
    }
    found = program(tmp_path, files)
    units = {Path(unit.path).stem: unit for unit in found.units}
    found.project.registering.clear()
    told = {name: registers(found.project, units[name]) for name in order}
    assert told == {"a": True, "b": True, "c": True, "d": False}


def test_the_order_of_files_is_kept(tmp_path: Path) -> None:
    names = ["z.py", "a.py", "m.py"]
    paths = write(tmp_path, dict.fromkeys(names, SHARD))
    linked = project(tmp_path, {})
    assert [Path(each.path).name for each in related_units(linked, paths)] == names
