"""Which conditions each rank decides from its own batch: the key of a condition says.

A key is what a path remembers a condition by. It is made of the operations on a value, down to the
object that they start from. A value is this rank's own if that object is what a sharded model's
forward returned, every operation is known to compute on this rank alone, and no rank gave it away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import collectives
from fsdplint.engine.interpreter.events import Call, Sharding, Trace
from fsdplint.engine.interpreter.values import (
    Choice,
    ClassValue,
    Identity,
    Object,
    Symbol,
    Taint,
    class_names,
    contained,
    key_of,
    must_be,
    read_from,
    taint_of,
)
from fsdplint.knowledge.collectives import ACCELERATOR_METHODS, C10D_CALLS, MAKES_EQUAL
from fsdplint.knowledge.data import DISTRIBUTED_SAMPLERS
from fsdplint.knowledge.initialisation import SEEDS
from fsdplint.knowledge.names import NN
from fsdplint.knowledge.tensors import (
    ARITHMETIC,
    COMPUTING_METHODS,
    DESCRIBES,
    SCALE,
    TENSOR,
    computes_alone,
    only_records,
)

_NOTHING: frozenset[Call] = frozenset()
# With these, a sampler may give several ranks the same.
_OWN = frozenset({"num_replicas", "rank"})
# An expression of a library may nest deeper; what it is computed from is then not known.
_DEPTH = 40


@dataclass(frozen=True)
class LocalValues:
    """The values of one path that each rank computes from its own batch.

    Attributes:
        batches: the loops over loaders, by the numbers of their batches; None if values count that
            come from a forward pass.
    """

    trace: Trace
    expanded: dict[int, object]
    seen: dict[int, frozenset[Call]] = field(default_factory=dict)
    batches: dict[int, Call] | None = None

    @cached_property
    def before_forwards(self) -> LocalValues:
        """What is computed from the batches that a distributed sampler gives this rank alone."""
        found: dict[int, Call] = {}
        for loop in self.trace.calls("iterate"):
            for part in _parts(loop.receiver) if _is_split(loop.receiver) else ():
                if part is not loop.receiver:
                    found.setdefault(part.serial, loop)
        return replace(self, seen={}, batches=found)

    @cached_property
    def forwards(self) -> dict[Call, Sharding]:
        """The forward passes of sharded models that may differ between ranks, in order."""
        found = (c for c in collectives(self.trace) if c.call.name == "forward")
        return {
            each.call: each.shard
            for each in found
            if not isinstance(each.shard, Call) and not _may_be_alike(self.trace, each.call)
        }

    @cached_property
    def _made(self) -> dict[int, Call]:
        """The forward that made an object which keys name by its number."""
        found: dict[int, Call] = {}
        for call in self.trace.calls("forward"):
            own = call in self.forwards or _is_loss(call)
            for part in _parts(call.result) if own else ():
                found.setdefault(part.serial, call)
        return found

    @cached_property
    def _given_away(self) -> set[object]:
        """What a collective, or code that is not known, may have made equal in place."""
        collected = [
            item
            for call in self.trace.of(Call)
            if call.name in C10D_CALLS or call.name in ACCELERATOR_METHODS
            for value in call.arguments.values()
            for item in contained(value)
        ]
        combining = (each for each in self.trace.escapes if _may_combine(each.site.node))
        escaped = [item for each in combining for item in each.objects]
        return {key_of(item) for item in (*collected, *escaped) if isinstance(item, Object)}

    def sources(self, key: object, depth: int = 0) -> frozenset[Call]:
        """Return the forward passes that a value is computed from by this rank alone, if it is."""
        if not isinstance(key, tuple) or not key or depth > _DEPTH or key in self._given_away:
            return _NOTHING
        head, *rest = key
        if head == "key":
            return self._expanded(rest[0], depth)
        if head == "object" and self.batches is not None:
            return frozenset(filter(None, [self.batches.get(rest[0])]))
        if head == "object":
            return self._from_forward(self._made.get(rest[0]), depth)
        if head == "value":
            return self._of_all(_options(rest[0]), depth)
        if head in ARITHMETIC or (head == "opaque" and len(rest) == 1):
            return self._of_any(rest, depth)
        if head == "==":
            number = rest[1][0] == "const" and rest[1][1] in ("int", "float")
            return self._of_any(rest[:1], depth) if number else self._of_all(rest, depth)
        if head in ("position", "item"):
            return self._of_any(rest[:1], depth)
        if head == "part":
            return _NOTHING if rest[1].lstrip(".") in DESCRIBES else self._of_any(rest[:1], depth)
        return self._of_call(head, rest, depth)

    def _expanded(self, number: int, depth: int) -> frozenset[Call]:
        if number not in self.seen:
            self.seen[number] = self.sources(self.expanded.get(number), depth + 1)
        return self.seen[number]

    def _of_call(self, head: object, given: list[object], depth: int) -> frozenset[Call]:
        given = [_argument(each) for each in given]
        if not isinstance(head, tuple):
            return _NOTHING
        if head[0] == "call" and isinstance(head[1], str) and computes_alone(head[1]):
            return self._of_any(given, depth)
        if head[0] == "method" and head[2] in COMPUTING_METHODS:  # not one of a framework's object
            return self._of_any([head[1]], depth)
        if head[0] == "method" and head[2] == SCALE:
            return self._of_any(given, depth)
        return _NOTHING

    def _from_forward(self, call: Call | None, depth: int) -> frozenset[Call]:
        if call is None:
            return _NOTHING
        if call in self.forwards:
            return frozenset((call,))
        return self._of_any(map(key_of, call.arguments.values()), depth)

    def _of_any(self, keys: Iterable[object], depth: int) -> frozenset[Call]:
        return _NOTHING.union(*(self.sources(key, depth + 1) for key in keys))

    def _of_all(self, keys: Iterable[object], depth: int) -> frozenset[Call]:
        found = [self.sources(key, depth + 1) for key in keys]
        return _NOTHING.union(*found) if all(found) else _NOTHING


def local_values(traces: Iterable[Trace]) -> Iterator[LocalValues]:
    """Yield what each path computes on each rank alone; paths of one entry share their keys."""
    tables: dict[int, dict[int, object]] = {}
    for trace in traces:
        if id(trace.keys) not in tables:
            tables[id(trace.keys)] = {number: key for key, number in trace.keys.items()}
        yield LocalValues(trace, tables[id(trace.keys)])


def _parts(value: object) -> Iterator[Object]:
    """Yield what a forward returned and the parts of it that the program reads."""
    if not isinstance(value, Object):
        return
    yield value
    for name, held in (*value.attrs.items(), *value.elements.items()):
        for part in contained(held):
            if isinstance(part, Object) and part.parent is value and name not in DESCRIBES:
                yield from _parts(part)


def _is_split(loader: object) -> bool:
    """Whether a distributed sampler surely gives each rank batches of its own."""
    if not isinstance(loader, Object) or loader.open or "batch_sampler" in loader.keywords:
        return False
    sampler = must_be(loader.keywords.get("sampler"))
    if not isinstance(sampler, Object) or not isinstance(sampler.cls, Symbol):
        return False
    return sampler.cls.name in DISTRIBUTED_SAMPLERS and not sampler.keywords.keys() & _OWN


def _is_loss(call: Call) -> bool:
    """Whether a forward is that of a module of PyTorch's, such as ``nn.CrossEntropyLoss()``."""
    cls = call.receiver.cls if isinstance(call.receiver, Object) else None
    return isinstance(cls, Symbol) and cls.name.startswith(f"{NN}.")


def _may_combine(node: ir.Node) -> bool:
    """Whether a call of code that is not known may do more with a number than to record it."""
    name = ir.last_name(node.func) if isinstance(node, ir.Call) else ""
    return name not in (SCALE, "backward") and not only_records(name)


def _may_be_alike(trace: Trace, forward: Call) -> bool:
    """Whether all ranks may get the same from a forward: by its code, or by what it is given."""
    cls = forward.receiver.cls if isinstance(forward.receiver, Object) else None
    lineage = cls.lineage() if isinstance(cls, ClassValue) else ()
    own = [each for each in lineage if isinstance(each, ClassValue)]
    texts = [each.scope.unit.text[each.node.start : each.node.end] for each in own]
    combined = any(name.rpartition(".")[2] in text for text in texts for name in MAKES_EQUAL)
    return combined or _is_fed_alike(trace, forward)


def _is_fed_alike(trace: Trace, forward: Call) -> bool:
    """Whether every rank surely computes on the same batch: of one file, or made up on the spot."""
    items = [item for value in forward.arguments.values() for item in contained(value)]
    given = [item for item in items if isinstance(item, Object)]
    if not given or forward.arguments.open:
        return False
    seeds = (seed for seed in trace.calls(*SEEDS) if seed.time < forward.time)
    apart = any(taint_of(*seed.arguments.values()) & Taint.RANK for seed in seeds)
    return all(_is_alike(item, apart) for item in given)


def _is_alike(item: Object, seeded_apart: bool) -> bool:
    made = any(TENSOR in class_names(each.cls) for each in (item, *item.ancestors()))
    file = read_from(item)
    common = file is not None and file.file is not None and not file.file.taint & Taint.RANK
    return ((made and not seeded_apart) or common) and not item.taint & Taint.RANK


def _options(value: object) -> list[object]:
    held = value.value if isinstance(value, Identity) else None
    return [key_of(option) for option in held.options] if isinstance(held, Choice) else [None]


def _argument(given: object) -> object:
    """Return the key of an argument, which may be a pair of a keyword and it."""
    pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], tuple)
    return given[1] if pair and given[0] != "not" else given  # type: ignore[index]  # a pair
