"""Linking: which file an import means, what a name of another file is, and what is a library's."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from helpers import project, unit

from fsdplint.engine.project.project import Project, identifiers

SHARD = "from torch.distributed.fsdp import fully_shard\n"


@pytest.fixture
def tree(tmp_path: Path) -> Project:
    return project(
        tmp_path,
        {
            "train.py": "",
            "helper.py": "",
            "json.py": "",
            "torch/__init__.py": "",
            "torch/nn.py": "",
            "src/inner/__init__.py": "",
            "src/inner/deep.py": "",
            "pkg/__init__.py": "",
            "pkg/model.py": "",
            "pkg/helper.py": "",
            "pkg/sub/__init__.py": "",
            "pkg/sub/blocks.py": "",
            "pkg/both.py": "",
            "pkg/both/__init__.py": "",
            "tools/run.py": "",
            "namespace/leaf.py": "",
        },
    )


@pytest.mark.parametrize(
    ("module", "level", "importer", "expected"),
    [
        ("helper", 0, "train.py", "helper.py"),
        ("pkg", 0, "train.py", "pkg/__init__.py"),
        ("pkg.model", 0, "train.py", "pkg/model.py"),
        ("pkg.sub.blocks", 0, "train.py", "pkg/sub/blocks.py"),
        ("namespace.leaf", 0, "train.py", "namespace/leaf.py"),
        ("namespace", 0, "train.py", None),
        ("missing", 0, "train.py", None),
        ("pkg.missing", 0, "train.py", None),
        # from where the importer stands, then from every directory above it
        ("helper", 0, "pkg/model.py", "pkg/helper.py"),
        ("model", 0, "pkg/sub/blocks.py", "pkg/model.py"),
        ("train", 0, "pkg/sub/blocks.py", "train.py"),
        ("pkg.model", 0, "tools/run.py", "pkg/model.py"),
        ("run", 0, "train.py", None),
        # src layout
        ("inner.deep", 0, "train.py", "src/inner/deep.py"),
        ("inner", 0, "pkg/sub/blocks.py", "src/inner/__init__.py"),
        # relative
        ("", 1, "pkg/model.py", "pkg/__init__.py"),
        ("helper", 1, "pkg/model.py", "pkg/helper.py"),
        ("helper", 1, "pkg/__init__.py", "pkg/helper.py"),
        ("sub.blocks", 1, "pkg/model.py", "pkg/sub/blocks.py"),
        ("", 2, "pkg/sub/blocks.py", "pkg/__init__.py"),
        ("model", 2, "pkg/sub/blocks.py", "pkg/model.py"),
        ("train", 1, "pkg/model.py", None),
        ("json", 1, "train.py", "json.py"),
        # a module beside a package of the same name
        ("pkg.both", 0, "train.py", "pkg/both.py"),
        # never a file of the project
        ("json", 0, "train.py", None),
        ("torch", 0, "train.py", None),
        ("torch.nn", 0, "train.py", None),
    ],
)
def test_the_file_of_an_import(
    tree: Project, module: str, level: int, importer: str, expected: str | None
) -> None:
    found = tree.find(module, level, unit(tree, importer))
    assert found == (None if expected is None else tree.root / expected)
    assert tree.find(module, level, (tree.root / importer).parent) == found


def test_imports_do_not_leave_the_root(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("")
    inner = project(tmp_path / "root", {"train.py": "", "pkg/a.py": ""})
    assert inner.find("outside", 0, unit(inner, "train.py")) is None
    assert inner.find("outside", 0, unit(inner, "pkg/a.py")) is None
    assert inner.find("outside", 2, unit(inner, "train.py")) is None
    assert inner.find("outside", 3, unit(inner, "pkg/a.py")) is None


def test_bindings(tmp_path: Path) -> None:
    text = """\
        import a.b
        import c.d as e
        from f.g import h as i, j
        from . import k
        from ..l import m
        from n import *
        from r import (
            s,  # t
            u as v,
        )  # w
        import x, y.z as aa  # bb
        try:
            from fast import o
        except ImportError:
            import slow as o
        def f():
            from p import q
    """
    linked = project(tmp_path, {"x.py": text})
    assert unit(linked, "x.py").bindings == {
        "a": ("a", 0, None),
        "e": ("c.d", 0, None),
        "i": ("f.g", 0, "h"),
        "j": ("f.g", 0, "j"),
        "k": ("", 1, "k"),
        "m": ("l", 2, "m"),
        "o": ("slow", 0, None),
        "q": ("p", 0, "q"),
        "s": ("r", 0, "s"),
        "v": ("r", 0, "u"),
        "x": ("x", 0, None),
        "aa": ("y.z", 0, None),
    }


def test_definitions_are_those_of_the_top_level(tmp_path: Path) -> None:
    text = """\
        def f():
            def inner(): pass
        class A:
            def method(self): pass
            if x:
                def conditional(self): pass
            class Nested: pass
        if a:
            def g(): pass
        else:
            def h(): pass
        try:
            class B: pass
        except ImportError:
            class C: pass
        TABLE = {"f": f}
        a.b = 1
        f = wrap(f)
    """
    definitions = unit(project(tmp_path, {"x.py": text}), "x.py").definitions
    assert sorted(definitions) == ["A", "B", "C", "TABLE", "f", "g", "h"]
    assert sorted(definitions["A"].methods) == ["Nested", "conditional", "method"]
    assert definitions["A"].methods["method"].owner is definitions["A"]
    assert definitions["TABLE"].names == {"f"}
    assert definitions["f"].names == set(), "the function, not the variable that follows"


def test_identifiers_are_names_and_attributes(tmp_path: Path) -> None:
    linked = project(tmp_path, {"x.py": "def f(a: T = d):\n    a.b(c=g[h]).i = f'{j}'\n"})
    names, attributes = identifiers(unit(linked, "x.py").module)
    assert names == {"T", "d", "a", "g", "h", "j"}
    assert attributes == {"b", "i"}


@pytest.mark.parametrize(
    ("importer", "expected"),
    [
        ("from pkg.model import build", "pkg/model.py"),
        ("from pkg import build", "pkg/model.py"),
        ("from pkg import renamed as build", "pkg/model.py"),
        ("from pkg.chain import build", "pkg/model.py"),
        ("from pkg.cycle_a import build", None),
        ("from pkg.library import build", None),
        ("import pkg.model as build", None),
        ("def build(): pass", "train.py"),
    ],
)
def test_a_definition_is_found_through_reexports(
    tmp_path: Path, importer: str, expected: str | None
) -> None:
    files = {
        "train.py": importer,
        "pkg/__init__.py": "from .model import build\nfrom .model import build as renamed\n",
        "pkg/model.py": "def build(): pass\n",
        "pkg/chain.py": "try:\n    from pkg import build\nexcept ImportError:\n    pass\n",
        "pkg/cycle_a.py": "from pkg.cycle_b import build\n",
        "pkg/cycle_b.py": "from pkg.cycle_a import build\n",
        "pkg/library.py": "from torch import build\n",
    }
    linked = project(tmp_path, files)
    for name in files:
        unit(linked, name)
    found = linked.loaded_definition(unit(linked, "train.py"), "build")
    assert (found and found.unit.path) == (expected and (tmp_path / expected).as_posix())


def test_looking_a_definition_up_lowers_nothing(tmp_path: Path) -> None:
    linked = project(
        tmp_path, {"a.py": "from b import f\n", "b.py": "from c import f\n", "c.py": "def f(): 1\n"}
    )
    first = unit(linked, "a.py")
    assert linked.loaded_definition(first, "f") is None
    assert [Path(path).name for path in linked.units] == ["a.py"]
    unit(linked, "b.py")
    assert linked.loaded_definition(first, "f") is None
    last = unit(linked, "c.py")
    assert linked.loaded_definition(first, "f") is last.definitions["f"]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (SHARD, "fully_shard", True),
        ("from torch.distributed.fsdp import fully_shard as fs\n", "fs", True),
        ("from torch.distributed.fsdp import fully_shard as fs\n", "fully_shard", False),
        ("from torch.distributed._composable.fsdp import fully_shard\n", "fully_shard", True),
        ("from torch.distributed._composable import fully_shard\n", "fully_shard", False),
        ("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n", "FSDP", True),
        (
            "from torch.distributed.fsdp import MixedPrecisionPolicy\n",
            "MixedPrecisionPolicy",
            False,
        ),
        ("from megatron_fsdp import fully_shard\n", "fully_shard", False),
        ("from compat import fully_shard\n", "fully_shard", True),
        ("from compat import shard\n", "shard", True),
        ("from compat import other\n", "other", False),
        ("from loop import fully_shard\n", "fully_shard", False),
        ("import torch.distributed.fsdp as f\n", "f", False),
        ("def fully_shard(m): pass\n", "fully_shard", False),
    ],
)
def test_a_name_refers_to_sharding(tmp_path: Path, text: str, name: str, expected: bool) -> None:
    compat = """\
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            fully_shard = None
        from torch.distributed.fsdp import fully_shard as shard
        def other(): pass
    """
    linked = project(
        tmp_path,
        {
            "train.py": text,
            "compat.py": textwrap.dedent(compat),
            "loop.py": "from loop2 import fully_shard\n",
            "loop2.py": "from loop import fully_shard\n",
        },
    )
    assert linked.refers_to_sharding(tmp_path / "train.py", name) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.forward(x)\n", True),
        ("f = block.forward\n", True),
        ("super().forward(x)\n", False),
        ("super(A, self).forward(x)\n", False),
        ("def forward(self): pass\n", False),
        ("logits = hidden @ self.head.weight.T\n", True),
        ("loss = fused(hidden.flatten(0, 1), self.head.weight)\n", True),
        ("nn.init.normal_(self.head.weight, std=0.02)\n", False),
        ("return F.linear(hidden, self.weight)\n", False),
    ],
)
def test_forwards_are_followed_where_they_matter(tmp_path: Path, text: str, expected: bool) -> None:
    assert unit(project(tmp_path, {"x.py": text}), "x.py").follows_forward is expected


def test_counters_are_the_attributes_counted_up(tmp_path: Path) -> None:
    text = (
        "class A:\n    def f(self):\n        self.step += 1\n        n += 1\n        self.x = 1\n"
    )
    assert unit(project(tmp_path, {"x.py": text}), "x.py").counters == {"step"}


def test_a_file_that_is_not_python_is_a_failure(tmp_path: Path) -> None:
    linked = project(tmp_path, {"bad.py": "def f(:\n", "good.py": "x = 1\n"})
    assert linked.unit(tmp_path / "bad.py") is None
    assert linked.unit(tmp_path / "missing.py") is None
    assert linked.unit(tmp_path / "good.py") is linked.unit(tmp_path / "good.py")
    assert list(linked.failures) == [(tmp_path / "bad.py").as_posix()]


def test_a_huge_file_is_not_lowered(tmp_path: Path) -> None:
    linked = Project(tmp_path, lambda _: "x = 1\n" * 400_000)
    assert linked.unit(tmp_path / "a.py") is None
    assert linked.failures == {}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("test_training.py", True),
        ("training_test.py", True),
        ("notes_test.ipynb", True),
        ("tests/run.py", True),
        ("tests/experimental/parallel/launched/run.py", True),
        ("unit_tests/run.py", True),
        ("unittests/a/b/c/run.py", True),
        ("pkg/testing/run.py", True),
        ("train.py", False),
        ("latest/train.py", False),
        ("contest.py", False),
        ("attest/train.py", False),
        ("best_testament.py", False),
    ],
)
def test_what_is_a_test(tree: Project, path: str, expected: bool) -> None:
    assert tree.is_test((tree.root / path).as_posix()) is expected


def test_the_folders_above_a_project_make_no_test_of_it(tmp_path: Path) -> None:
    root = tmp_path / "tests" / "project"
    assert not Project(root, lambda _: None).is_test((root / "train.py").as_posix())
