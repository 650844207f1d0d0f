"""What rules may ask: typed facts over the traces of a program.

A fact is a set of events on one feasible path. Two events that each depend on a condition of their
own are only put together where the conditions are not different ways to run the program: `if
args.ddp` and `if args.fsdp` may exclude each other, whatever the code says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from fsdplint.engine import ir
from fsdplint.engine.blocks import block_containers
from fsdplint.engine.events import (
    BuildOptimizer,
    DirectForward,
    NoSync,
    PlainWrite,
    Repoint,
    Shard,
    Trace,
    Use,
)
from fsdplint.engine.execute import explore
from fsdplint.engine.execute.calls import is_module
from fsdplint.engine.link import Project, Reader, Unit
from fsdplint.engine.relevance import related_units
from fsdplint.engine.site import Guard, Site
from fsdplint.engine.tree import Tree
from fsdplint.engine.values import (
    ClassValue,
    Object,
    Origin,
    Parameters,
    StateDict,
    Taint,
    contained,
    reachable,
)
from fsdplint.finding import Evidence, Span
from fsdplint.knowledge.calls import SHARDING_NAMES, Generation
from fsdplint.knowledge.modules import WRAP_POLICIES
from fsdplint.knowledge.names import canonical
from fsdplint.knowledge.words import means_parallel_mode, means_rank

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class StaleOptimizer:
    """An optimizer that holds parameters which ``shard`` replaced afterwards."""

    build: BuildOptimizer
    capture: Parameters
    shard: Shard
    last: Shard

    @property
    def optimizer_captures(self) -> list[Parameters]:
        return self.build.optimizer.captures


@dataclass(frozen=True, slots=True)
class SkippedHooks:
    """A ``.forward`` of an FSDP2 unit that was called without its hooks."""

    forward: DirectForward
    shard: Shard


@dataclass(frozen=True, slots=True)
class MissingNoSync:
    """``no_sync()`` of an FSDP2 unit, which has no such method."""

    call: NoSync
    shard: Shard


@dataclass(frozen=True, slots=True)
class ShardedWrite:
    """A file written with DTensor shards; ``guards`` are the tests that only some ranks pass."""

    write: PlainWrite
    states: tuple[StateDict, ...]
    shard: Shard
    guards: tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class RootOnly:
    """A root call on a model with repeated blocks none of which anybody shards.

    Attributes:
        containers: attribute paths of the block containers below the model; empty when the model
            repeats blocks but not where can be read.
        model_class: the name of the model's class.
        several: the same call shards models whose blocks stand in different places.
        idle_policy: the assignment of a wrap policy that the function goes on to use nowhere.
    """

    shard: Shard
    containers: tuple[str, ...]
    model_class: str
    several: bool
    idle_policy: ir.Assign | None = None


@dataclass(frozen=True)
class Program:
    """A program as the engine understood it."""

    project: Project
    units: tuple[Unit, ...]
    traces: tuple[Trace, ...]
    trees: dict[str, Tree] = field(default_factory=dict)

    # Places

    def tree(self, path: str) -> Tree:
        """The file at ``path``."""
        if path not in self.trees:
            unit = self.project.unit(Path(path))
            assert unit is not None, path
            self.trees[path] = Tree(path, unit.text, unit.module)
        return self.trees[path]

    def span(self, site: Site) -> Span:
        return Span(site.path, site.node.start, site.node.end)

    def text(self, path: str, node: ir.Node) -> str:
        """The source of a node, as the user wrote it, on one line."""
        return " ".join(self.tree(path).text[node.start : node.end].split())

    def evidence(self, site: Site, note: str) -> Evidence:
        return Evidence(self.span(site), note)

    def line(self, site: Site) -> int:
        text = self.tree(site.path).text
        return text.count("\n", 0, site.node.start) + 1

    def where(self, site: Site, seen_from: Site) -> str:
        """ "on line 47", or with the file where that is another one."""
        line = self.line(site)
        return (
            f"on line {line}"
            if site.path == seen_from.path
            else f"in {Path(site.path).name}:{line}"
        )

    def conditions(self, *sites: Site) -> tuple[Evidence, ...]:
        """The branches that had to be taken for these places to be reached."""
        found: dict[tuple[str, int], Evidence] = {}
        for site in sites:
            for guard in site.guards:
                note = self._condition(guard)
                span = Span(guard.path, guard.test.start, guard.test.end)
                chosen = guard.divergent or not (guard.progress or guard.early)
                if chosen and guard.test.end > guard.test.start:
                    found.setdefault((guard.path, guard.test.start), Evidence(span, note))
        return tuple(found.values())

    def _condition(self, guard: Guard) -> str:
        if guard.divergent:
            return "only some ranks pass this test"
        if isinstance(guard.test, (ir.Handler, ir.Try)):
            return "when an exception is caught here" if guard.taken else "when nothing is raised"
        text = _short(self.text(guard.path, guard.test))
        return f"when `{text}` is {'true' if guard.taken else 'false'}"

    # Facts

    def stale_optimizers(self) -> Iterator[StaleOptimizer]:
        """Optimizers that captured parameters before a sharding call replaced them for good."""
        for trace in self.traces:
            for build in _of(trace, BuildOptimizer):
                fact = self._stale(trace, build)
                if fact is not None:
                    yield fact

    def _stale(self, trace: Trace, build: BuildOptimizer) -> StaleOptimizer | None:
        if _repaired(trace, build):
            return None
        for capture in build.optimizer.captures:
            later = [shard for shard in _of(trace, Shard) if replaces(shard, capture)]
            known = [
                s
                for s in later
                if self._together(capture.source, s.site) and self._together(build.site, s.site)
            ]
            if known and len(known) == len(later):
                return StaleOptimizer(build, capture, known[0], known[-1])
        return None

    def skipped_hooks(self) -> Iterator[SkippedHooks]:
        """Forward calls that go around the hooks of an FSDP2 unit."""
        for trace in self.traces:
            for event in _of(trace, DirectForward):
                shard = _sharding_of(trace, event.module)
                if shard is not None and self._together(event.site, shard.site):
                    yield SkippedHooks(event, shard)

    def missing_no_syncs(self) -> Iterator[MissingNoSync]:
        """Calls of FSDP1's ``no_sync`` on an FSDP2 unit."""
        for trace in self.traces:
            for event in _of(trace, NoSync):
                shard = _sharding_of(trace, event.module)
                if shard is not None and self._together(event.site, shard.site):
                    yield MissingNoSync(event, shard)

    def sharded_writes(self) -> Iterator[ShardedWrite]:
        """Plain writes of state whose tensors are shards, to a path that is not one per rank."""
        for trace in self.traces:
            for write in _of(trace, PlainWrite):
                guards = tuple(guard for guard in write.site.guards if self.is_rank_test(guard))
                if not write.states or self._one_per_rank(write, bool(guards)):
                    continue
                shard = _sharding_of(trace, write.states[0].owner)
                if shard is not None and self._together(write.site, shard.site):
                    yield ShardedWrite(write, write.states, shard, guards)

    def _one_per_rank(self, write: PlainWrite, guarded: bool) -> bool:
        """Whether each rank may write a file of its own, or where to is not known."""
        target = write.target
        if target is None:
            return False
        if any(value.taint & Taint.RANK for value in contained(target)):
            return True
        node = write.site.node
        if isinstance(node, ir.Call) and means_rank(self._argument_text(write, node)):
            return True
        handed_in = isinstance(target, Object) and target.origin is Origin.PARAMETER
        return handed_in and not guarded

    def _argument_text(self, write: PlainWrite, node: ir.Call) -> str:
        return " ".join(self.text(write.site.path, argument) for argument in node.args[1:])

    def is_rank_test(self, guard: Guard) -> bool:
        """Whether a branch is, or by its words may be, one that only some ranks take."""
        return guard.divergent or means_rank(self.text(guard.path, guard.test))

    def root_only_shards(self) -> Iterator[RootOnly]:
        """Root calls on models with repeated blocks where all paths shard nothing but the root."""
        spoiled = {
            shard.call
            for trace in self.traces
            for shard in _of(trace, Shard)
            if not _alone(trace, shard)
        }
        for trace in self.traces:
            places: dict[ir.Call, set[tuple[str, ...]]] = {}
            facts = []
            for shard in _of(trace, Shard):
                if shard.call in spoiled or shard.wraps_children is not False:
                    continue
                found = block_containers(shard.module)
                idle = self._idle_policy(shard)
                if found is None and idle is not None:
                    yield RootOnly(shard, (), "", False, idle)
                elif found is not None and not self._other_sharding_near(shard):
                    places.setdefault(shard.call, set()).add(found[0])
                    facts.append((shard, *found))
            for shard, containers, model_class in facts:
                several = len(places[shard.call]) > 1
                yield RootOnly(shard, containers, model_class, several)

    def _idle_policy(self, shard: Shard) -> ir.Assign | None:
        """A wrap policy assigned before an FSDP1 call to a name that nothing reads."""
        tree = self.tree(shard.site.path)
        function = tree.function(shard.call)
        if function is None or shard.generation is not Generation.FSDP1:
            return None
        for node in ir.walk(function):
            if isinstance(node, ir.Assign) and node.end < shard.call.start:
                target = node.targets[0]
                names = [n.id for n in ir.walk(function) if isinstance(n, ir.Name)]
                idle = isinstance(target, ir.Name) and names.count(target.id) == 1
                if idle and self._makes_policy(shard.site.path, node.value):
                    return node
        return None

    def _makes_policy(self, path: str, value: ir.Expr) -> bool:
        bindings = self.project.bindings(Path(path))
        found = [bindings.get(n.id) for n in ir.walk(value) if isinstance(n, ir.Name)]
        return any(b and canonical(f"{b[0]}.{b[2]}") in WRAP_POLICIES for b in found)

    def _other_sharding_near(self, shard: Shard) -> bool:
        """Whether the function of a sharding call shards something else on another path."""
        tree = self.tree(shard.site.path)
        executed = {event.call for trace in self.traces for event in _of(trace, Shard)}
        unit = self.project.unit(Path(shard.site.path))
        function = tree.function(shard.call) or tree.module
        assert unit is not None
        for node in ir.walk(function):
            other = isinstance(node, ir.Call) and node not in executed
            if other and _is_sharding(self.project, unit, node):
                return True
        return False

    # Feasibility

    def _together(self, use: Site, shard: Site) -> bool:
        """Whether a use and a sharding surely can happen in one run of the program."""
        ours, theirs = _modes(use), _modes(shard)
        if not ours.keys() - theirs.keys() or not theirs.keys() - ours.keys():
            return True
        apart = [
            guard for key, guard in (ours | theirs).items() if (key in ours) != (key in theirs)
        ]
        return not any(
            means_parallel_mode(self.text(g.path, g.test)) for g in apart if g in ours.values()
        )


def analyze(
    root: Path, files: Iterable[Path], read: Reader, focus: Collection[Path] | None = None
) -> Program:
    """What the program in ``files`` does, following imports to other files below ``root``.

    Args:
        focus: the files that findings are wanted for, if not for all.
        read: the text of a file, or None if it cannot be read.
    """
    project = Project(root, read)
    units = related_units(project, files, focus)
    return Program(project, tuple(units), tuple(explore(project, units)))


def replaces(shard: Shard, capture: Parameters) -> bool:
    """Whether a sharding call puts new tensors in the place of captured ones."""
    if shard.time < capture.time or shard.keeps_parameters is not False:
        return False
    inside = capture.module is shard.module or shard.module in capture.module.ancestors()
    around = capture.module in shard.module.ancestors() and not capture.filtered
    return inside or around


def _repaired(trace: Trace, build: BuildOptimizer) -> bool:
    """Whether the optimizer is re-pointed, or replaced by a later one and never stepped."""
    shards = [s for s in _of(trace, Shard) if any(replaces(s, c) for c in build.optimizer.captures)]
    if not shards:
        return False
    steps = [use.time for use in _of(trace, Use) if _is_step(use, build, shards[-1].time)]
    for event in _of(trace, Repoint):
        if event.optimizer is build.optimizer and (event.certain or _between(event, shards, steps)):
            return True
    modules = {capture.module for capture in build.captures}
    rebuilt = any(
        capture.module in modules and capture.time > build.time
        for other in _of(trace, BuildOptimizer)
        for capture in other.captures
    )
    return rebuilt and not steps


def _is_step(use: Use, build: BuildOptimizer, after: int) -> bool:
    return use.name == "step" and use.target is build.optimizer and use.time > after


def _between(event: Repoint, shards: list[Shard], steps: list[int]) -> bool:
    """Whether unknown code had the optimizer and its model before the first step."""
    return event.time > shards[-1].time and (not steps or event.time < steps[0])


def _sharding_of(trace: Trace, module: Object) -> Shard | None:
    """The sharding call that made ``module`` hold shards: on it, around it or inside it."""
    shards = [s for s in _of(trace, Shard) if s.generation is Generation.FSDP2]
    own = [s for s in shards if s.module is module]
    around = [s for s in shards if s.module in module.ancestors()]
    inside = [s for s in shards if module in s.module.ancestors()]
    found = own or around or inside
    return found[-1] if found else None


def _alone(trace: Trace, root: Shard) -> bool:
    """Whether it is a fact that nothing inside the root of ``root`` was sharded before it."""
    module = root.module
    if any(is_module(above) for above in module.ancestors()):
        return False
    inside = [module, *reachable(module)]
    if any(part.escaped is not None and part.escaped < root.time for part in inside):
        return False
    if isinstance(module.cls, ClassValue) and module.cls.opaque():
        return False
    others = [shard for shard in _of(trace, Shard) if shard is not root]
    return all(_elsewhere(shard.module, module) for shard in others)


def _elsewhere(other: Object, root: Object) -> bool:
    """Whether a sharded module surely is no part of ``root``."""
    if root in other.ancestors() or other is root:
        return False
    top = other
    for above in other.ancestors():
        top = above
    return top.origin is Origin.ALLOCATED and other not in set(reachable(root))


def _is_sharding(project: Project, unit: Unit, node: ir.Node) -> bool:
    if not isinstance(node, ir.Call):
        return False
    if isinstance(node.func, ir.Name):
        return project.refers_to_sharding(Path(unit.path), node.func.id)
    return isinstance(node.func, ir.Attribute) and node.func.attr in SHARDING_NAMES


def _modes(site: Site) -> dict[object, Guard]:
    """The branches of a place that choose a way to run: neither ranks, nor steps, nor failures."""
    return {
        (guard.key, guard.taken): guard
        for guard in site.guards
        if not guard.divergent
        and not guard.progress
        and not (isinstance(guard.key, tuple) and guard.key[:1] == ("raises",))
    }


def _of(trace: Trace, kind: type[E]) -> list[E]:
    return [event for event in trace.events if isinstance(event, kind)]


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"
