from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.declined import Declined
from fsdplint.fixes.forward import call_module


def fixed(marked: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    node = at["f"]
    assert isinstance(node, ir.Attribute)
    return at, call_module(at.code, node)


@pytest.mark.parametrize(
    ("marked", "result"),
    [
        ("<f:model.forward:f>(x)\n", "model(x)\n"),
        (
            "y = <f:self.model.forward:f>(\n    x,\n)  # c\r\n",
            "y = self.model(\n    x,\n)  # c\r\n",
        ),
        ("checkpoint(<f:block.forward:f>, x)\n", "checkpoint(block, x)\n"),
        ("<f:blocks[i].forward:f>(x)\n", "blocks[i](x)\n"),
        ("<f:get(m).forward:f>(x)\n", "get(m)(x)\n"),
        ("<f:(a or b).forward:f>(x)\n", "(a or b)(x)\n"),
        ("y = (<f:model\n     .forward:f>(x))\n", "y = (model(x))\n"),
        ("y = <f:model \\\n     .forward:f>(x)\n", "y = model(x)\n"),
        ("y = (<f:model  # c\n     .forward:f>(x))\n", "y = (model  # c\n     (x))\n"),
        ("<f:a.forward:f>(b.forward(x))\n", "a(b.forward(x))\n"),
        ("f = <f:model.forward:f>; g\n", "f = model; g\n"),
        ("f = lambda x: <f:model.forward:f>(x)\n", "f = lambda x: model(x)\n"),
    ],
)
def test_forward_is_dropped(marked: str, result: str) -> None:
    at, fix = fixed(marked)
    assert at.fixed(fix) == result
    assert isinstance(fix, Fix) and fix.safety is Safety.SAFE


def test_the_title_names_the_module() -> None:
    fix = fixed("<f:self.model.forward:f>(x)\n")[1]
    assert isinstance(fix, Fix) and fix.title == "call `self.model` instead of its `forward`"


def test_super_has_no_module_to_call() -> None:
    marked = "class A(B):\n    def forward(self, x):\n        return <f:super().forward:f>(x)\n"
    assert reason(fixed(marked)[1]) == "`super().forward` has no module of its own to call"


@pytest.mark.parametrize("marked", ["<f:m.forward:f> = g\n", "del <f:m.forward:f>\n"])
def test_an_assigned_forward_is_declined(marked: str) -> None:
    assert reason(fixed(marked)[1]) == "`m.forward` is assigned, not called"
