"""Which texts may hold settings by which a framework shards."""

from __future__ import annotations

import pytest

from fsdplint.knowledge.frameworks import sets_sharding


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("strategy=FSDPStrategy()", True),
        ("strategy=ModelParallelStrategy()", True),
        ("strategy='fsdp'", True),
        ('strategy="fsdp_cpu_offload"', True),
        ("fsdp=True", True),
        ("fsdp = ['x']", True),
        ("x = 'full_shard auto_wrap'", True),
        ("x = 'hybrid_shard'", True),
        ("x = 'shard_grad_op'", True),
        ("fsdp=args.fsdp", False),
        ("MyFSDPStrategyTest", False),
        ("reshard_after_forward", False),
        ("strategy='ddp'", False),
    ],
)
def test_the_settings_that_a_text_may_hold(text: str, expected: bool) -> None:
    for package in ("lightning", "transformers", "trl"):
        assert sets_sharding(f"import {package}\n{text}\n") is expected
    assert not sets_sharding(f"import other\n{text}\n")
