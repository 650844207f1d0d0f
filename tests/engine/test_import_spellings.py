"""Imports are read off the text as Python reads them, however they are spelled."""

from __future__ import annotations

import pytest

from fsdplint.engine.project.imports import Binding, imports


@pytest.mark.parametrize(
    ("text", "bindings", "modules"),
    [
        ("from torch .distributed . fsdp import a\n", {"a": ("torch.distributed.fsdp", 0, "a")}, 2),
        ("from.a import b\n", {"b": ("a", 1, "b")}, 2),
        ("from .. a import(b\tas c,\n  d)\n", {"c": ("a", 2, "b"), "d": ("a", 2, "d")}, 3),
        (
            "import torch . nn\tas\x0cn, os\n",
            {"n": ("torch.nn", 0, None), "os": ("os", 0, None)},
            2,
        ),
        ("if x: from . import b ; import c . d\n", {"b": ("", 1, "b"), "c": ("c", 0, None)}, 3),
        ("fromage = important = 1\n", {}, 0),
    ],
)
def test_blanks_stand_where_python_allows_them(
    text: str, bindings: dict[str, Binding], modules: int
) -> None:
    assert imports(text, {}).bindings == bindings
    assert len(imports(text, {}).modules) == modules
