"""Runs snippets where two CUDA devices seem to be."""

from __future__ import annotations

import textwrap

import torch_release
from ranks import Ranks, report

_HEAD = f"""
import os
import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.nn.functional as F
from torch import nn
from fsdplint.verify.rank.shim import Unmappable, install, logical_device
install(int(os.environ["LOCAL_RANK"]), 2)
GLOO_REDUCES_LISTS = {torch_release.GLOO_REDUCES_LISTS}
GLOO_EXCHANGES_LISTS = {torch_release.GLOO_EXCHANGES_LISTS}

def raises(kind, text, action):
    try:
        action()
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"did not raise {{kind.__name__}}: {{text}}")
"""


def check(ranks: Ranks, code: str, world_size: int = 1) -> list[str]:
    """Run a snippet in processes of their own; what each one printed."""
    outcomes = ranks.run(_HEAD + textwrap.dedent(code), world_size=world_size, process_group=False)
    assert not report(outcomes), report(outcomes)
    return [outcome.output for outcome in outcomes]
