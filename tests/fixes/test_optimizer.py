from __future__ import annotations

from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.fixes.move import build_after_sharding


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
    assert (
        reason(fix)
        == "`m.parameters()` is in a block that cannot move as a whole; change the order by hand"
    )


def test_only_captures_move_if_the_optimizer_is_below_already() -> None:
    at, fix = built(
        "a = list(<c1:m.parameters():c1>)\nb = 1\nc = list(<c2:m.buffers():c2>)\n"
        "<s:fully_shard(m):s>\noptimizer = <o:AdamW([a, c, <c3:m.parameters():c3>]):o>\n"
    )
    assert at.fixed(fix) == (
        "b = 1\nfully_shard(m)\na = list(m.parameters())\nc = list(m.buffers())\n"
        "optimizer = AdamW([a, c, m.parameters()])\n"
    )


def test_nothing_to_move_is_declined() -> None:
    fix = built("<s:fully_shard(m):s>\noptimizer = <o:AdamW(<c:m.parameters():c>):o>\n")[1]
    assert (
        reason(fix)
        == "`AdamW(m.parameters())` is already below the sharding; change the order by hand"
    )
