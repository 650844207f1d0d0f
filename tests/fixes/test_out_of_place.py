from __future__ import annotations

import pytest
import torch
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
    assert found(step) == (Safety.SAFE, expected)


@pytest.mark.parametrize(
    "step",
    [
        f"{CALL}kept = out\n{CHANGE}",
        f"{CALL}outs = [out]\n{CHANGE}",
        f"{CALL}outs.append(out)\n{CHANGE}",
        f"{CALL}batch['logits'] = out\n{CHANGE}",
        f"{CALL}first = out[:2]\n{CHANGE}",
        f"{CALL}flat = out.view(-1)\n{CHANGE}",
        f"{CALL}same = out.float()\n{CHANGE}",
        f"{CALL}model.last = out\n{CHANGE}",
        f"{CALL}keep(out)\n{CHANGE}",
        f"{CALL}show = lambda out=out: out\n{CHANGE}",
        f"{CALL}def show(o=out): return o\n{CHANGE}",
        f"{CALL}kept = (other := out)\n{CHANGE}",
        f"{CALL}kept = out\nkept.mul_(0.5)",
        f"{CALL}variables = locals()\n{CHANGE}",
        f"(out, y) = (model(x), 1)\n{CHANGE}",
        f"out = x\ntry:\n    {CALL}except ValueError:\n    pass\n{CHANGE}",
        # Another dtype or shape may come of it.
        f"{CALL}out += x[:, 0]",
        f"{CALL}out.add_(x[:, 0])",
        f"{CALL}out.clamp_(max=x.max())",
        f"{CALL}out *= True",
        # What any module returns may be kept.
        f"model.register_forward_hook(print)\n{CALL}{CHANGE}",
        f"watch(model)\n{CALL}{CHANGE}",
    ],
)
def test_a_change_that_may_be_seen_elsewhere_is_no_safe_fix(step: str) -> None:
    assert found(step)[0] is Safety.UNSAFE


@pytest.mark.parametrize(
    "forward",
    [
        "return x.view(-1)",
        "x = x.view(-1)\nreturn x.squeeze(-1)",
        "y = self.linear(x)\nself.last = y\nreturn y.squeeze(-1)",
        "y = self.linear(x)\nouts.append(y)\nreturn y.squeeze(-1)",
        "return self.encoder(x).squeeze(-1)",
        "return self.dropout(x).squeeze(-1)",
        "return helper(x).squeeze(-1)",
        "return x.float().squeeze(-1)",
        "if x.ndim == 1:\n    return x.squeeze(-1)\nreturn self.linear(x).squeeze(-1)",
    ],
)
def test_a_view_of_what_the_module_was_given_or_keeps_is_no_safe_fix(forward: str) -> None:
    assert found(f"{CALL}{CHANGE}", forward)[0] is Safety.UNSAFE


@pytest.mark.parametrize(
    "forward",
    [
        "y = self.linear(x)\nreturn y.view(y.shape)",
        "y = self.linear(x).relu()\nz = y.squeeze(-1)\nreturn z",
        "return (self.linear(x) + x.mean()).squeeze(-1)",
    ],
)
def test_a_view_of_a_new_tensor(forward: str) -> None:
    assert found(f"{CALL}{CHANGE}", forward)[0] is Safety.SAFE


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (f"h.{name}()", f"`{name}` has no form that gives the same in a new tensor")
        for name in (
            *("exponential_", "random_", "geometric_", "cauchy_", "log_normal_", "bernoulli_"),
            *("normal_", "zero_", "copy_", "eq_", "resize_", "float_power_", "detach_"),
        )
    ]
    + [("h[0] = 0", "`h[0] = 0` writes to a part of the view")],
)
def test_what_has_no_twin_is_declined(change: str, why: str) -> None:
    at = Snippet(f"h = <call:model(x):call>\n{change}\n")
    statement = at.code.module.body[1]
    node = statement.value if isinstance(statement, ir.Expression) else statement
    assert reason(out_of_place(at.code, node, at["call"], True)) == why


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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_twin_gives_the_same(name: str, dtype: torch.dtype) -> None:
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
