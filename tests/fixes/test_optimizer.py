from __future__ import annotations

from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.declined import Declined
from fsdplint.fixes.optimizer import build_after_sharding


def built(marked: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    optimizer = at["o"]
    assert isinstance(optimizer, ir.Call)
    captures = [at[name] for name in at.spans if name.startswith("c")]
    return at, build_after_sharding(at.code, optimizer, captures, at["s"])


def test_the_optimizer_and_what_captured_its_parameters_move() -> None:
    at, fix = built(
        "groups = [{'params': <c:model.parameters():c>}]\n"
        "optimizer = <o:torch.optim.AdamW(groups):o>\n"
        "model = <s:fully_shard(model):s>\n"
    )
    assert at.fixed(fix) == (
        "model = fully_shard(model)\n"
        "groups = [{'params': model.parameters()}]\n"
        "optimizer = torch.optim.AdamW(groups)\n"
    )
    assert isinstance(fix, Fix)
    assert fix.title == "build the optimizer after the last `fully_shard`"
    assert fix.safety is Safety.UNSAFE


def test_a_capture_in_another_function_is_declined() -> None:
    fix = built(
        "def groups(m):\n    return [<c:m.parameters():c>]\n"
        "optimizer = <o:AdamW(g):o>\n<s:fully_shard(m):s>\n"
    )[1]
    assert reason(fix) == "`m.parameters()` is nested in code that cannot move as a whole"
