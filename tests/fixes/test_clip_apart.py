from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.finding import Fix
from fsdplint.fixes.code import Declined
from fsdplint.rules.foreach_with_mixed_parameters import clip_apart

TORCH = """\
import torch
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
"""


def apart(marked: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(TORCH + marked)
    return at, clip_apart(at.code, at["n"])


def test_a_norm_that_is_kept_has_its_name() -> None:
    at, fix = apart(
        "def step(model, kind):\n"
        "    norm = <n:torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=c.max):n>\n"
        "    print(norm, kind)\n"
    )
    assert at.fixed(fix) == (
        f"{TORCH}def step(model, kind):\n"
        "    clipped = [p for p in model.parameters() if p.grad is not None]\n"
        "    kinds = [[p for p in clipped if isinstance(p, DTensor) is k] for k in (True, False)]\n"
        "    norms = [get_total_norm([p.grad for p in kind]) for kind in kinds]\n"
        "    norms = [n.full_tensor() if isinstance(n, DTensor) else n for n in norms]\n"
        "    norm = torch.stack(norms).norm()\n"
        "    for kind_ in kinds:\n"
        "        clip_grads_with_norm_(kind_, c.max, norm)\n"
        "    print(norm, kind)\n"
    )


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("print(<n:clip(m.parameters(), 1.0):n>)", "have to be clipped apart, by one norm"),
        ("self.norm = <n:clip(m.parameters(), 1.0):n>", "have to be clipped apart, by one norm"),
        ("<n:clip(m.parameters(), 1.0, 1):n>", "only the norm that is torch's default"),
        ("<n:clip(m.parameters(), *given):n>", "are not all written out"),
        ("<n:clip(m.parameters()):n>", "does not say what to clip to"),
    ],
)
def test_what_is_not_taken_apart(call: str, why: str) -> None:
    assert why in reason(apart(f"{call}\n")[1])
