from __future__ import annotations

import pytest
from snippets import PATH, Snippet

from fsdplint.engine.frontend.lower import lower
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.edits import apply
from fsdplint.fixes.imports import Imports, orphans, qualified


def use(marked: str, *names: str) -> tuple[list[str], str]:
    """The texts that mean ``names`` of m.n at ``<use:…:use>``, and the file with the imports."""
    at = Snippet(marked)
    imports = Imports(at.code, at["use"])
    texts = [imports.name("m.n", name) for name in names]
    result = apply(at.code.text, imports.edits())
    compile(result, PATH, "exec", dont_inherit=True)
    return texts, result


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("from m.n import A\n<use:x:use>\n", "A"),
        ("from m.n import B, A as C\n<use:x:use>\n", "C"),
        ("import m.n as k\n<use:x:use>\n", "k.A"),
        ("import m.n\n<use:x:use>\n", "m.n.A"),
        ("import m\nimport m.n\n<use:x:use>\n", "m.n.A"),
        ("from m import n\n<use:x:use>\n", "n.A"),
        ("def f():\n    <use:x:use>\nfrom m.n import A\n", "A"),
        ("def f():\n    from m.n import A\n    <use:x:use>\n", "A"),
        ("from m.n import A\nfrom m.n import A\n<use:x:use>\n", "A"),
        ("from m.n import A\ndef g(A): pass\n<use:x:use>\n", "A"),
        ("from m.n import A\nclass C:\n    A = 1\n    def f(self):\n        <use:x:use>\n", "A"),
    ],
)
def test_an_existing_binding_is_used(marked: str, text: str) -> None:
    texts, result = use(marked, "A")
    assert texts == [text]
    assert result == Snippet(marked).code.text


@pytest.mark.parametrize(
    ("imports", "text"),
    [
        ("from torch.distributed._tensor import DeviceMesh\n", "DeviceMesh"),
        ("from torch.distributed import DeviceMesh as Mesh\n", "Mesh"),
        (
            "from torch.distributed._tensor import DeviceMesh\n"
            "from torch.distributed.tensor import DeviceMesh\n",
            "DeviceMesh",
        ),
    ],
)
def test_a_binding_by_another_path_is_used(imports: str, text: str) -> None:
    at = Snippet(f"{imports}<use:x:use>\n")
    wanted = Imports(at.code, at["use"])
    assert wanted.name("torch.distributed.device_mesh", "DeviceMesh") == text
    assert wanted.edits() == []


def test_a_module_by_an_older_path_is_not_used() -> None:
    at = Snippet("from torch.distributed._composable import fsdp\n<use:x:use>\n")
    wanted = Imports(at.code, at["use"])
    assert wanted.name("torch.distributed.fsdp", "MixedPrecision") == "MixedPrecision"


@pytest.mark.parametrize(
    ("marked", "result"),
    [
        ("import a\nimport z\nx = 1\n<use:x:use>\n", "import a\nimport z\nFROM\nx = 1\nx\n"),
        (
            "def f():\n    from m.o import q\n    y\n    <use:x:use>\n",
            "def f():\n    from m.o import q\n    FROM\n    y\n    x\n",
        ),
        (
            "import z\ndef f():\n    if y:\n        import m\n    <use:x:use>\n",
            "import z\nFROM\ndef f():\n    if y:\n        import m\n    x\n",
        ),
        (
            "import m.k\ndef f():\n    from m.o import q\n    <use:x:use>\n",
            "import m.k\nFROM\ndef f():\n    from m.o import q\n    x\n",
        ),
        ("import m\nimport z\n<use:x:use>\n", "import m\nFROM\nimport z\nx\n"),
        ("from m.o import q\nimport z\n<use:x:use>\n", "from m.o import q\nFROM\nimport z\nx\n"),
        ("from m.n import *\n<use:x:use>\n", "from m.n import *\nFROM\nx\n"),
        ("from .n import A as Q\n<use:x:use>\n", "from .n import A as Q\nFROM\nx\n"),
        ("from __future__ import annotations\n<use:x:use>\n", None),
        (
            "import os\nos.environ['A'] = '1'\nimport m.k\nimport z\n<use:x:use>\n",
            "import os\nos.environ['A'] = '1'\nimport m.k\nFROM\nimport z\nx\n",
        ),
        ('"""doc"""\n<use:x:use>\n', '"""doc"""\n\nFROM\n\nx\n'),
        ('"""doc"""\n\n\n<use:x:use>\n', '"""doc"""\n\nFROM\n\nx\n'),
        ("#!/bin/python\n# coding: utf-8\n\n<use:x:use>\n", None),
        ("<use:x:use>", "FROM\n\nx"),
        ("try:\n    import m\nexcept E: pass\n<use:x:use>\n", None),
        ("import z  # why\nif x:\n    import m.n\n<use:x:use>\n", None),
        ("import z\r\n<use:x:use>\r\n", "import z\r\nFROM\r\nx\r\n"),
        ("import z\n<use:x:use>\nimport m.o\n", "import z\nFROM\nx\nimport m.o\n"),
        ("def f():\n    from m.n import A\ndef g():\n    <use:x:use>\n", None),
        ("import z; import y\n<use:x:use>\n", "import z; import y\nFROM\nx\n"),
    ],
)
def test_a_new_import_stands_beside_its_like(marked: str, result: str | None) -> None:
    line = "from m.n import A, B"
    text = Snippet(marked).code.text
    expected = {
        "from __future__": "from __future__ import annotations\nFROM\nx\n",
        "#!/bin/python": "#!/bin/python\n# coding: utf-8\n\nFROM\n\nx\n",
        "try:": "FROM\n\ntry:\n    import m\nexcept E: pass\nx\n",
        "import z  # why": "import z  # why\nFROM\nif x:\n    import m.n\nx\n",
        "def f():": "FROM\n\ndef f():\n    from m.n import A\ndef g():\n    x\n",
    }
    if result is None:
        result = next(value for key, value in expected.items() if text.startswith(key))
    assert use(marked, "B", "A") == (["B", "A"], result.replace("FROM", line))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from m.n import C", "from m.n import C, A, B"),
        ("from m.n import C  # why", "from m.n import C, A, B  # why"),
        ("from m.n import (\n    C,\n)", "from m.n import (\n    C,\n    A,\n    B,\n)"),
        ("from m.n import (\n    C\n)", "from m.n import (\n    C,\n    A,\n    B\n)"),
        ("from m.n import (C)", "from m.n import (C)\nfrom m.n import A, B"),
        (
            "from m.n import (  # c\n    C,\n)",
            "from m.n import (  # c\n    C,\n    A,\n    B,\n)",
        ),
        (
            f"from m.n import {'C' * 70}\nfrom m.n import D",
            f"from m.n import {'C' * 70}\nfrom m.n import D, A, B",
        ),
        (
            "from m.n import (\n    C,  # c\n)",
            "from m.n import (\n    C,  # c\n)\nfrom m.n import A, B",
        ),
        (
            f"from m.n import {'C' * 70}",
            f"from m.n import {'C' * 70}\nfrom m.n import A, B",
        ),
        ("from m.n import \\\n    C", "from m.n import \\\n    C\nfrom m.n import A, B"),
    ],
)
def test_an_import_of_the_module_is_extended(before: str, after: str) -> None:
    assert use(f"{before}\n<use:x:use>\n", "A", "B") == (["A", "B"], f"{after}\nx\n")


@pytest.mark.parametrize(
    "marked",
    [
        "A = 1\n<use:x:use>\n",
        "def f(A):\n    <use:x:use>\n",
        "from other import A\n<use:x:use>\n",
        "try:\n    from m.n import A\nexcept E:\n    A = None\n<use:x:use>\n",
        "def f():\n    for A in y: pass\n    <use:x:use>\n",
        "class A: pass\n<use:x:use>\n",
        "from .o import A\n<use:x:use>\n",
    ],
)
def test_a_name_with_another_meaning_is_not_taken(marked: str) -> None:
    with pytest.raises(
        NoFixError, match="`A` means something else in this file; make the change by hand"
    ):
        use(marked, "A")


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        ("import m.n as k\n", "k", "import m.n as k\n"),
        ("import m.n\n", "m.n", "import m.n\n"),
        ("from m import n\n", "n", "from m import n\n"),
        ("import m\n", "q", "import m\nimport m.n as q\n"),
    ],
)
def test_a_module_is_imported_by_its_alias(before: str, text: str, after: str) -> None:
    at = Snippet(before + "<use:x:use>\n")
    imports = Imports(at.code, at["use"])
    assert imports.module("m.n", "q") == text
    assert apply(at.code.text, imports.edits()) == after + "x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import ast\nimport sys\n", "import ast\nimport sys\nfrom enum import A\n"),
        (
            "import ast\nfrom typing import B\n",
            "import ast\nfrom enum import A\nfrom typing import B\n",
        ),
        (
            "from functools import B\nimport os\n\nimport z\n",
            "from enum import A\nfrom functools import B\nimport os\n\nimport z\n",
        ),
        (
            "import sys\nimport os\nimport z\n",
            "import sys\nimport os\nfrom enum import A\nimport z\n",
        ),
        ("import z\n", "from enum import A\n\nimport z\n"),
    ],
)
def test_an_import_of_the_standard_library_keeps_the_order(before: str, after: str) -> None:
    at = Snippet(before + "<use:x:use>\n")
    imports = Imports(at.code, at["use"])
    imports.name("enum", "A")
    assert apply(at.code.text, imports.edits()) == after + "x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch import A\nx\n", "x\n"),
        ("from torch import A, B\n", "from torch import B\n"),
        ("from torch import B, A\n", "from torch import B\n"),
        ("from torch import A as A, B\n", None),
        ("from torch import Q as A, B\n", "from torch import B\n"),
        ("from torch import (\n    A,\n    B,\n)\n", "from torch import (\n    B,\n)\n"),
        ("from torch import (\n    B,\n    A,\n)\n", "from torch import (\n    B,\n)\n"),
        ("from torch import (  # c\n    A,\n    B,\n)\n", "from torch import (  # c\n    B,\n)\n"),
        ("from torch import (\n    A,  # c\n    B,\n)\n", None),
        ("from torch import B, \\\n    A\n", "from torch import B\n"),
        ("import torch as A\n", ""),
        ("import torch as A, B\n", "import B\n"),
        ("from torch import A\n__all__ = ['A']\n", None),
        ("from torch import A\nA()\n", None),
        ("from torch import A; B\n", None),
        ("try:\n    from torch import A\nexcept E: pass\n", None),
        ("from torch import A\nfrom d import A\n", None),
        ("from torch import A\nglobals()[f'{x}']()\n", None),
        ("from registry import A\n", None),
    ],
)
def test_an_import_is_dropped_with_its_last_use(before: str, after: str | None) -> None:
    code = Code(PATH, before, lower(before, PATH), lambda: True)
    assert apply(before, orphans(code, "A", [])) == (before if after is None else after)


def test_the_import_of_a_module_in_a_package_stays() -> None:
    """It binds `torch`, which is written elsewhere."""
    text = "import torch.nn.utils\ntorch.randn(2)\n"
    code = Code(PATH, text, lower(text, PATH), lambda: True)
    assert orphans(code, "torch.nn.utils", []) == []


def test_an_import_stays_in_a_file_that_others_may_import() -> None:
    text = "from torch import A\n"
    assert orphans(Code(PATH, text, lower(text, PATH)), "A", []) == []


def test_nothing_is_dropped_from_a_package() -> None:
    path = "/p/__init__.py"
    text = "import torch as A\n"
    assert orphans(Code(path, text, lower(text, path), lambda: True), "A", []) == []


def test_full_names_follow_the_imports() -> None:
    at = Snippet("import contextlib as c\nfrom d import e\n<a:c.nullcontext:a>\n<b:e:b>\n<z:f:z>\n")
    names = [qualified(at.code, at[name]) for name in ("a", "b", "z")]
    assert names == ["contextlib.nullcontext", "d.e", None]
