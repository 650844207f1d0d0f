from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.check import check_text
from fsdplint.engine import ir
from fsdplint.finding import Safety
from fsdplint.knowledge.tensors import MAKES_NEW
from fsdplint.rules.inplace_on_sharded_output import out_of_place

MODEL = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 1)
        self.encoder = nn.TransformerEncoder(layer, 0)

    def forward(self, x):
        {forward}


x = torch.randn(8, 64)
outs, batch = [], {{}}
model = fully_shard(Head())
{step}
out.mean().backward()
"""
RETURN = "return self.linear(x).squeeze(-1)"
CALL = "out = model(x)\n"
CHANGE = "out.mul_(0.5)"


def found(step: str, forward: str = RETURN) -> tuple[Safety, str]:
    """How safe the fix of the one finding is, and what its edit writes."""
    text = MODEL.format(step=step, forward=forward.replace("\n", "\n        "))
    (finding,) = (f for f in check_text(text) if f.rule == "inplace-on-sharded-output")
    assert finding.fix is not None, finding.fix_declined
    return finding.fix.safety, finding.fix.edits[0].text


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (f"{CALL}{CHANGE}", "out = out.mul(0.5)"),
        (f"{CALL}out *= 0.5", "out = out * 0.5"),
        (f"scale = 0.5\n{CALL}out /= scale", "out = out / scale"),
        (f"{CALL}out.clamp_(min=-1)", "out = out.clamp(min=-1)"),
        (f"{CALL}print(out.shape, out.size(0))\n{CHANGE}", "out = out.mul(0.5)"),
        (f"{CALL}{CHANGE}\nouts.append(out)", "out = out.mul(0.5)"),
        (f"with torch.autocast('cpu'):\n    {CALL}    {CHANGE}", "out = out.mul(0.5)"),
        (f"def show(): return out\n{CALL}{CHANGE}", "out = out.mul(0.5)"),
    ],
)
def test_a_tensor_of_one_name_is_exchanged(step: str, expected: str) -> None:
    assert found(step) == (Safety.UNSAFE, expected)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (f"h.{name}()", f"`{name}` has no out-of-place equivalent; clone the output first by hand")
        for name in (
            *("exponential_", "random_", "geometric_", "cauchy_", "log_normal_", "bernoulli_"),
            *("normal_", "zero_", "copy_", "eq_", "resize_", "float_power_", "detach_"),
        )
    ]
    + [("h[0] = 0", "`h[0] = 0` writes to a part of the view; clone the output first by hand")],
)
def test_what_has_no_twin_is_declined(change: str, why: str) -> None:
    at = Snippet(f"h = <call:model(x):call>\n{change}\n")
    statement = at.code.module.body[1]
    node = statement.value if isinstance(statement, ir.Expression) else statement
    assert reason(out_of_place(at.code, node)) == why


WITH_NUMBERS = {
    **dict.fromkeys(("add", "sub", "subtract", "mul", "multiply", "div", "divide"), (0.3,)),
    **dict.fromkeys(("true_divide", "floor_divide", "fmod", "remainder", "pow"), (0.3,)),
    **dict.fromkeys(("clamp", "clip"), (0.1, 0.5)),
    **dict.fromkeys(("clamp_min", "clamp_max"), (0.4,)),
    **dict.fromkeys(("cumsum", "cumprod"), (0,)),
    "renorm": (2, 0, 1.0),
}
WITH_TENSORS = {
    *("lerp", "masked_fill", "index_add", "index_copy", "index_fill", "scatter", "scatter_add")
}


@pytest.mark.parametrize("name", sorted(MAKES_NEW))
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_twin_gives_the_same(name: str, kind: str) -> None:
    import torch  # collecting tests takes seconds less

    dtype = getattr(torch, kind)
    given = torch.rand(4, 4).to(dtype) * 0.9
    changed = given.clone()
    if name in WITH_TENSORS:
        assert callable(getattr(given, f"{name}_"))
        return
    arguments = WITH_NUMBERS.get(name, ())
    new = getattr(given, name)(*arguments)
    assert getattr(changed, f"{name}_")(*arguments) is changed
    assert new.dtype is dtype and new.data_ptr() != given.data_ptr()
    torch.testing.assert_close(new, changed, rtol=0, atol=0, equal_nan=True)
