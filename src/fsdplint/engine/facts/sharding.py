"""What sharding calls do to modules and parameters."""

from __future__ import annotations

from fsdplint.engine.events import Shard, Trace
from fsdplint.engine.values import Object, Parameters
from fsdplint.knowledge.calls import Generation


def replaces(shard: Shard, capture: Parameters) -> bool:
    """Whether a sharding call puts new tensors in the place of captured ones."""
    if shard.time < capture.time or shard.keeps_parameters is not False:
        return False
    inside = capture.module is shard.module or shard.module in capture.module.ancestors()
    around = capture.module in shard.module.ancestors() and not capture.filtered
    return inside or around


def sharding_of(trace: Trace, module: Object) -> Shard | None:
    """The sharding call that made ``module`` hold shards: on it, around it or inside it."""
    shards = [s for s in trace.of(Shard) if s.generation is Generation.FSDP2]
    own = [s for s in shards if s.module is module]
    around = [s for s in shards if s.module in module.ancestors()]
    inside = [s for s in shards if module in s.module.ancestors()]
    found = own or around or inside
    return found[-1] if found else None
