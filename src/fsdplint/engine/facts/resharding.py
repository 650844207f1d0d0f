"""Values of ``reshard_after_forward`` that it cannot have, or that mean something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Sequence, Symbol, Value
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fsdp import SHARDING_STRATEGIES

_KEYWORD = "reshard_after_forward"
# What the strategies of FSDP1, and values that look like booleans, mean.
_MEANT: dict[str, bool] = {"FULL_SHARD": True, "SHARD_GRAD_OP": False, "True": True, "False": False}


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value that is no boolean and no number of ranks.

    Attributes:
        setter: it is given to ``set_reshard_after_forward``.
        quiet: it is taken, for something else than what it looks like.
        meant: the boolean that it must stand for, None where that is not known.
    """

    site: Site
    setter: bool
    quiet: bool
    meant: bool | None


def bad_values(program: Program) -> Iterator[BadValue]:
    """Arguments of FSDP2's calls that are no booleans, and no numbers of ranks."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            value = shard.keywords.get(_KEYWORD)
            if shard.generation is Generation.FSDP2 and value is not None and _is_bad(value):
                yield BadValue(shard.site, False, _number(value) == 1, _meant(value))
        for call in trace.calls("set_reshard_after_forward"):
            given = call.arguments.get(0, _KEYWORD)
            module = call.receiver
            if given is None or not isinstance(module, Object):
                continue
            if sharding_of(trace, module) is not None and (_is_bad(given) or _is_number(given)):
                yield BadValue(call.site, True, False, _meant(given))


def _is_number(value: Value) -> bool:
    return isinstance(value, Const) and not isinstance(value.value, bool)


def _number(value: Value) -> int | None:
    """An integer that is known and is no boolean."""
    if not isinstance(value, Const) or isinstance(value.value, bool):
        return None
    return value.value if isinstance(value.value, int) else None


def _is_bad(value: Value) -> bool:
    if isinstance(value, Const):
        number = _number(value)
        wrong = number is not None and number < 2
        return wrong or isinstance(value.value, (str, bytes, float))
    if isinstance(value, Symbol):
        return value.name.startswith(SHARDING_STRATEGIES)
    return isinstance(value, Sequence)


def _meant(value: Value) -> bool | None:
    if isinstance(value, Symbol):
        return _MEANT.get(value.name.removeprefix(SHARDING_STRATEGIES))
    if isinstance(value, Const) and isinstance(value.value, str):
        return _MEANT.get(value.value.capitalize())
    number = _number(value)
    return None if number is None else {0: False, 1: True}.get(number)


def kept_blocks(program: Program) -> Iterator[tuple[Shard, Shard]]:
    """Blocks that stay gathered from forward to backward, with the call on the model around."""
    shards = [shard for trace in program.traces for shard in trace.of(Shard)]
    chosen = {shard.call for shard in shards if not _keeps(shard)}  # on some other path
    for trace in program.traces:
        for shard in trace.of(Shard):
            kept = _keeps(shard) and shard.call not in chosen
            if kept and shard.generation is Generation.FSDP2 and shard.module.step == "[]":
                root = _root(trace, shard)
                if root is not None:
                    yield shard, root


def _keeps(shard: Shard) -> bool:
    value = shard.keywords.get(_KEYWORD)
    return isinstance(value, Const) and value.value is False


def _root(trace: Trace, block: Shard) -> Shard | None:
    """The call on the model around a block, if blocks are not told apart."""
    if any(guard.progress for guard in block.site.guards):
        return None
    others = [s for s in trace.of(Shard) if s.module is block.module and s is not block]
    roots = [s for s in trace.of(Shard) if s.module in block.module.ancestors()]
    return roots[-1] if roots and not others else None
