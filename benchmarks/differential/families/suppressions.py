"""Comments that silence nothing, and share their line with what other tools read."""

from benchmarks.differential.families.family import Family

_TEXT = """
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(8, 8)
fully_shard(model)
print(type(model).__name__)  «comment»
dist.destroy_process_group()
"""

_OURS = "# fsdplint: ignore[direct-forward]"
_OTHERS = {
    "cover": "# pragma: no cover",
    "type": "# type: ignore[attr-defined]",
    "noqa": "# noqa: T201",
    "text": "# a reader wants this",
    "pylint": "# pylint: disable=bad-builtin",
    "nosec": "# nosec B101",
}

_COMMENT = {
    "alone": _OURS,
    **{f"before_{name}": f"{_OURS}  {other}" for name, other in _OTHERS.items()},
    **{f"after_{name}": f"{other}  {_OURS}" for name, other in _OTHERS.items()},
    **{f"reason_{name}": f"{_OURS} -- why  {other}" for name, other in _OTHERS.items()},
    **{
        f"until_{name}": f"{_OURS} until torch>=2.9 -- why  {other}"
        for name, other in _OTHERS.items()
    },
}

FAMILIES = (Family("suppressions", {"train.py": _TEXT}, {"comment": _COMMENT}),)
