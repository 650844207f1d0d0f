from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix
from fsdplint.fixes.clip import clip_by_root
from fsdplint.fixes.declined import Declined

IMPORT = "from torch.nn.utils import clip_grad_norm_\n"


def clipped(marked: str, wrapped: bool = True) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    node = at["n"]
    assert isinstance(node, ir.Call)
    return at, clip_by_root(at.code, node, wrapped)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("clip(model.parameters(), 1.0)", "model.clip_grad_norm_(1.0)"),
        ("clip(self.net.parameters(), c.max, 2)", "self.net.clip_grad_norm_(c.max, 2)"),
        ("clip(m.module.parameters(), 1.0)", "m.clip_grad_norm_(1.0)"),
        ("clip(max_norm=1.0, parameters=m.parameters())", "m.clip_grad_norm_(max_norm=1.0)"),
        ("clip(parameters=m.parameters(), max_norm=1.0)", "m.clip_grad_norm_(max_norm=1.0)"),
        ("clip(m.parameters(), foreach=True, max_norm=1)", "m.clip_grad_norm_(max_norm=1)"),
        ("clip(m.parameters(), 1.0, 2.0, False, True)", "m.clip_grad_norm_(1.0, 2.0)"),
        ("clip(list(m.parameters()), 1.0)", "m.clip_grad_norm_(1.0)"),
        ("clip([p for p in m.parameters() if p.requires_grad], 1.0)", "m.clip_grad_norm_(1.0)"),
        (
            "clip((p for p in m.parameters() if p.grad is not None), 1.0)",
            "m.clip_grad_norm_(1.0)",
        ),
        ("clip(\n    m.parameters(),\n    1.0,\n)", "m.clip_grad_norm_(\n    1.0,\n)"),
    ],
)
def test_the_call_becomes_the_method(call: str, expected: str) -> None:
    at, fix = clipped(f"norm = <n:{call}:n>.item()\n")
    assert at.fixed(fix) == f"norm = {expected}.item()\n"


def test_an_import_without_use_goes() -> None:
    at, fix = clipped(f"{IMPORT}import os\n<n:clip_grad_norm_(m.parameters(), 1):n>\n")
    assert at.fixed(fix) == "import os\nm.clip_grad_norm_(1)\n"
    at, fix = clipped(f"{IMPORT}<n:clip_grad_norm_(m.parameters(), 1):n>\nf(clip_grad_norm_)\n")
    assert at.fixed(fix) == f"{IMPORT}m.clip_grad_norm_(1)\nf(clip_grad_norm_)\n"


def test_parameters_that_were_listed_before() -> None:
    at, fix = clipped("def f(m):\n    ps = list(m.parameters())\n    return <n:clip(ps, 1.0):n>\n")
    assert at.fixed(fix).endswith("    return m.clip_grad_norm_(1.0)\n")


def test_a_model_that_is_not_always_wrapped_is_asked() -> None:
    at, fix = clipped(f"{IMPORT}\nif x:\n\tn = <n:clip_grad_norm_(m.parameters(), 1):n>\n", False)
    assert at.fixed(fix) == (
        f"{IMPORT}from torch.distributed.fsdp import FullyShardedDataParallel\n\n"
        "if x:\n\tif isinstance(m, FullyShardedDataParallel):\n"
        "\t\tn = m.clip_grad_norm_(1)\n\telse:\n\t\tn = clip_grad_norm_(m.parameters(), 1)\n"
    )


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("<n:clip(m.parameters()):n>", "does not say what to clip to"),
        ("<n:clip(m.parameters(), *a):n>", "not all written out"),
        ("<n:clip(m.parameters(), 1, error_if_nonfinite=True):n>", "no `error_if_nonfinite`"),
        ("<n:clip(m.parameters(), 1, norm=2):n>", "not called as torch defines it"),
        ("<n:clip(ps, 1):n>", "`ps` does not name the model"),
        ("ps = f()\nps = list(m.parameters())\n<n:clip(ps, 1):n>", "does not name the model"),
        ("<n:clip([p for p in m.parameters() if p.ndim > 1], 1):n>", "does not name the model"),
        ("<n:clip(m.parameters(recurse=False), 1):n>", "leaves parameters out"),
        ("<n:clip(unwrap(m).parameters(), 1):n>", "may be the inside of the root"),
        ("x = m.module\n<n:clip(x.parameters(), 1):n>", "`x` is the inside of the root"),
        ("ps = list(m.parameters())\nm = g(m)\n<n:clip(ps, 1):n>", "`m` changes before"),
        ("<n:clip(  # all\n    m.parameters(), 1):n>", "a comment stands inside"),
    ],
)
def test_declines(marked: str, expected: str) -> None:
    _, fix = clipped(f"{marked}\n")
    assert expected in reason(fix)


def test_declines_to_ask_inside_other_code() -> None:
    _, fix = clipped("if <n:clip(m.parameters(), 1):n> > 2:\n    pass\n", wrapped=False)
    assert "stands in a longer one" in reason(fix)
