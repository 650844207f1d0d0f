"""Which entries of a program to follow: its scripts, then what can reach sharding besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.interpreter.entry_point import Driven, Entry
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.live import Live, chains, mentioned, uses_sharded
from fsdplint.engine.interpreter.paths import TOO_LONG, Exploration, Known
from fsdplint.engine.interpreter.priority import Priorities
from fsdplint.engine.project.project import Project, identifiers
from fsdplint.engine.project.rapid_types import RapidTypes
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.knowledge.calls import SHARDING_NAMES, UNIT_NAMES
from fsdplint.knowledge.frameworks import SHARDING_METHODS
from fsdplint.knowledge.fsdp import WRAPPERS
from fsdplint.knowledge.methods import EVENT_NAMES, TRAINING_CALLS
from fsdplint.outcome import OutdatedError, never

_WRAPS = frozenset(name.rpartition(".")[2] for name in WRAPPERS)


def explore(
    project: Project, units: Iterable[Unit], is_outdated: Callable[[], bool] = never
) -> tuple[list[Trace], list[Trace]]:
    """Return the traces of every entry of ``units`` that can reach a sharding call.

    Those of methods that nothing calls, of the objects that hold what was sharded, are apart.

    Raises:
        OutdatedError: nobody waits any more for the traces.
    """
    units = list(units)
    sharding = SHARDING_NAMES | UNIT_NAMES | _names_of_sharding_code(project, units)
    priorities = Priorities(sharding, EVENT_NAMES)
    explorer = _Explorer(project, priorities, RapidTypes(project, units), is_outdated)
    # Programs before their tests, should the budget not do for both. What a test constructs says
    # nothing of how a program uses it, so that no method is followed from there.
    programs = [unit for unit in units if not project.is_test(unit.path)]
    explorer.follow_entries(programs)
    explorer.follow_kept_from_sharding(programs)
    explorer.follow_methods()
    budget = project.budget
    explorer.known.patient = True
    # What is left of programs that shard, then what was put off for programs that do not.
    explorer.allowed = min(budget.steps, explorer.steps + budget.steps_behind // 2)
    explorer.follow_the_rest()
    explorer.allowed = min(budget.steps, explorer.steps + budget.steps_behind // 2)
    explorer.follow_postponed()
    explorer.follow_the_rest()
    explorer.give_up()
    explorer.known.patient = False
    explorer.allowed = max(budget.steps_with_tests, explorer.steps + budget.test_steps)
    explorer.follow_entries([unit for unit in units if project.is_test(unit.path)])
    explorer.follow_the_rest()
    explorer.give_up()
    return explorer.programs, explorer.methods


def _names_of_sharding_code(project: Project, units: list[Unit]) -> frozenset[str]:
    """Return the names by which the program refers to code that shards, aliases included."""
    names: set[str] = set()
    for unit in units:
        names.update(project.sharding_names(Path(unit.path)))
        for definition in unit.definitions.values():
            every = (definition, *definition.methods.values())
            names.update(each.name for each in every if each.may_shard and each.name != "__init__")
    return frozenset(names)


def _entries(
    project: Project, units: list[Unit], reached: set[ir.Node], calls: bool
) -> Iterator[Entry]:
    """Yield functions and methods that no entry has reached, callers before callees.

    Args:
        calls: those that shard; else those that may say of a value that it is a unit.
    """
    counts = _mention_counts(each for unit in units for each in unit.definitions.values())

    def is_wanted(definition: Definition) -> bool:
        return definition.entry if calls else definition.names_unit

    for unit in units:
        entries = [each for each in unit.definitions.values() if is_wanted(each)]
        if not entries or project.unit(Path(unit.path)) is None:
            continue
        for definition in sorted(entries, key=lambda d: counts[d.name]):
            if _is_unreached(definition, reached):
                yield Entry(unit, definition)
            methods = list(definition.methods.values())
            inside = _mention_counts(methods)
            for method in sorted(methods, key=lambda method: inside[method.name]):
                if is_wanted(method) and _is_unreached(method, reached):
                    yield Entry(unit, definition, method)


def _is_unreached(definition: Definition, reached: set[ir.Node]) -> bool:
    """True if no path has run a function yet."""
    function = _function(definition)
    return function is not None and function not in reached


def _function(definition: Definition) -> ir.Function | None:
    """Return the function of a definition; None for a class, or if its file was not read."""
    node = None if definition.unit.lowered is None else definition.unit.node(definition)
    return node.function if isinstance(node, ir.FunctionDef) else None


def _mention_counts(definitions: Iterable[Definition]) -> Counter[str]:
    """Count the definitions that mention a name: callers are mentioned less than callees."""
    return Counter(name for each in definitions for name in each.names | each.attributes)


class _Explorer:
    """Follow entries one after the other, within a budget for all of them.

    Attributes:
        types: what an entry can reach.
        programs: the traces that start where a program can.
        methods: those of methods that nothing calls.
        unfinished: the entries that have paths left.
        postponed: those that were not begun, each with the reason.
        steps: the steps of all entries so far.
        allowed: the steps after which no further entry is followed.
        pairs: sharding calls squared per path, which is what rules that compare them cost.
        unsharded: steps since the last entry that shards.
        unsharded_in: steps per file in entries that do not shard.
        entered: the functions that entries start with.
    """

    def __init__(
        self,
        project: Project,
        priorities: Priorities,
        types: RapidTypes,
        is_outdated: Callable[[], bool],
    ) -> None:
        self.project = project
        self.is_outdated = is_outdated
        self.types = types
        self.priorities = priorities
        self.programs: list[Trace] = []
        self.methods: list[Trace] = []
        self.known = Known(project.budget)
        self.unfinished: list[Exploration] = []
        self.postponed: list[tuple[Entry, str]] = []
        self.steps = 0
        self.allowed = project.budget.steps
        self.pairs = 0
        self.unsharded = 0
        self.unsharded_in: Counter[Unit] = Counter()
        self.entered: set[ir.Node | None] = set()

    def follow_entries(self, units: list[Unit]) -> None:
        """Follow the scripts, then the functions and methods that these do not reach."""
        self.unsharded = 0
        for unit in sorted(units, key=partial(_rank, self.project)):
            if unit.top.entry and self.project.unit(Path(unit.path)) and self._leads(Entry(unit)):
                self.follow(Entry(unit))
        self.unsharded = 0
        for calls in (True, False):
            for entry in _entries(self.project, units, self.known.reached, calls):
                if not calls or self._leads(entry):
                    self.follow(entry)
            self.unsharded = 0

    def _leads(self, entry: Entry) -> bool:
        """True if running an entry can reach a call that shards."""
        parts = (entry.definition or entry.unit.top, entry.method)
        return self.types.leads_to_sharding(part for part in parts if part is not None)

    def follow_kept_from_sharding(self, units: list[Unit]) -> None:
        """Follow what calls sharding, but ran only for callers that never get to that call.

        Other callers may, which are not in the project: of a library, or in a notebook.
        """
        self.unsharded = 0
        for unit in units:
            for definition in unit.definitions.values():
                for method in (None, *definition.methods.values()):
                    found = method or definition
                    ran = found in self.types.sharding and _function(found) in self.known.reached
                    if ran and self._is_open(found):
                        self.follow(Entry(unit, definition, method))

    def _is_open(self, definition: Definition) -> bool:
        """True if no path has run a function. If it calls sharding, only paths that shard count."""
        function = _function(definition)
        if function is None or function in self.entered or function in self.known.with_sharding:
            return False
        return function not in self.known.reached or definition in self.types.sharding

    def follow_methods(self) -> None:
        """Follow the methods of live objects that no path has run, callers before callees."""
        programs, units = set(self.known.with_sharding), set(self.known.with_units)
        driven = set[tuple[ir.Node, str]]()
        for base, found in list(self.known.live.values()):
            if (found.node, found.setup) in driven:  # the same methods on what another arm shards
                self.known.with_sharding, self.known.with_units = set(programs), set(units)
            driven.add((found.node, found.setup))
            mentions = Counter(name for each in found.methods for name in mentioned(found, each))
            for chain in sorted(chains(found), key=lambda chain: mentions[chain[-1]]):
                if self._is_driven(found, chain):
                    self.follow(Entry(found.units[chain[-1]], driven=Driven(base, found, chain)))

    def _is_driven(self, found: Live, chain: tuple[str, ...]) -> bool:
        """True if a method uses what is sharded, and wraps nothing: that might be another mode."""
        function = found.methods[chain[-1]]
        ran = self.known.with_units if found.declared else self.known.with_sharding
        if function in ran or frozenset.union(*identifiers(function)) & _WRAPS:
            return False
        return uses_sharded(found, chain)

    def follow(self, entry: Entry) -> None:
        """Follow an entry, unless a budget is used up or it cannot add anything."""
        path, name = entry.unit.path, entry.name
        if reason := self._needless(entry):
            self.project.left_out[path, name] = reason
            return
        if limit := self._limit_reached(entry):
            self.postponed.append((entry, limit))
            return
        if definition := entry.method or entry.definition:
            self.entered.add(_function(definition))
        exploration = Exploration(self.project, entry, self.priorities, self.known)
        steps = self._go_on(exploration, exploration.follow_all)
        if exploration.limit or exploration.shortened:
            self.unfinished.append(exploration)
        if not exploration.found:
            self.unsharded += steps
            self.unsharded_in[entry.unit] += steps
        elif self.unsharded <= self.project.budget.unsharded_steps:
            self.unsharded = 0

    def follow_postponed(self) -> None:
        """Follow the entries that were not begun, since those before them do not shard."""
        postponed, self.postponed = self.postponed, []
        for entry, limit in postponed:
            self.unsharded = 0
            self.unsharded_in.clear()
            definition = entry.method or entry.definition
            if self.steps > self.allowed:
                self.postponed.append((entry, limit))
            elif definition is None or self._is_open(definition):
                self.follow(entry)

    def give_up(self) -> None:
        """Record an early stop for each entry that was not begun or has paths left."""
        for entry, limit in self.postponed:
            self.project.stop_early(entry.unit.path, entry.name, limit)
        for exploration in self.unfinished:
            entry = exploration.entry
            for reason in filter(None, (exploration.limit, TOO_LONG * bool(exploration.shortened))):
                self.project.stop_early(entry.unit.path, entry.name, reason)
        self.postponed.clear()
        self.unfinished.clear()

    def follow_the_rest(self) -> None:
        """Follow what is left of the entries in turn, once each had its first, the cheapest first.

        What the others have followed meanwhile is left for none.
        """
        self.unfinished.sort(key=lambda each: each.effort.steps)
        self._look_for_sharding()
        steps = -1
        while steps < self.steps <= self.allowed:
            steps = self.steps
            for exploration in self.unfinished:
                if self.steps <= self.allowed:
                    self._go_on(exploration, exploration.follow_the_rest)
            self.unfinished = [e for e in self.unfinished if e.limit or e.shortened]

    def _look_for_sharding(self) -> None:
        """Look for paths that shard, one entry after the other: each guides the next entry."""
        most = min(self.allowed, self.steps + self.project.budget.search_steps)
        for exploration in self.unfinished:
            steps = -1
            while not exploration.found and exploration.limit and steps < self.steps <= most:
                steps = self.steps
                self._go_on(exploration, exploration.follow_the_rest)

    def _go_on(self, exploration: Exploration, follow: Callable[[], None]) -> int:
        """Follow paths of an entry; return their steps.

        Raises:
            OutdatedError: nobody waits any more for the traces.
        """
        if self.is_outdated():
            raise OutdatedError
        before, found = exploration.effort.steps, len(exploration.found)
        try:
            follow()
        except Exception as error:  # a fault of the engine's costs no other entry
            self.project.crashes[exploration.entry.unit.path] = error
            del exploration.found[found:]
        traces = exploration.found[found:]
        (self.programs if exploration.entry.driven is None else self.methods).extend(traces)
        self.pairs += sum(len(trace.of(Shard)) ** 2 for trace in traces)
        steps = exploration.effort.steps - before
        self.steps += steps
        return steps

    def _limit_reached(self, entry: Entry) -> str:
        """Return why an entry is not followed, "" if it may be."""
        budget, unit = self.project.budget, entry.unit
        if self.steps > self.allowed or self.pairs > budget.shard_pairs:
            return "the analysis budget of the project is used up"
        if entry.driven is not None:
            return ""  # its path shards
        if self.unsharded_in[unit] > budget.unsharded_file_steps:
            return "the code analyzed before it in its file does not shard"
        if self.unsharded > budget.unsharded_steps and not self._names_sharding(entry):
            return "the programs analyzed before it do not shard"
        return ""

    def _names_sharding(self, entry: Entry) -> bool:
        """True if a function, or a method of the same class, names a sharding call itself."""
        if entry.definition is None:
            return False
        names = self.project.sharding_names(Path(entry.unit.path))
        named = entry.definition.names | entry.definition.attributes
        return not named.isdisjoint(names | SHARDING_NAMES)

    def _needless(self, entry: Entry) -> str:
        """Return why an entry need not be followed, "" if it has to be."""
        if _is_mocked(self.project, entry.unit):
            return "a test replaces the sharding function"
        if entry.definition is not None and self._is_known_inert(entry.definition):
            return "the functions it calls do nothing to a model"
        return ""

    def _is_known_inert(self, definition: Definition) -> bool:
        """True if everything that makes a function an entry ran before, without an event.

        For example a function that builds one of many configurations.
        """
        mentioned = definition.names | definition.attributes
        leads = mentioned & self.priorities.sharding
        if definition.kind != "def" or mentioned & (self.priorities.events | SHARDING_METHODS):
            return False
        return leads <= definition.names and all(
            self._ran_without_event(definition.unit, name) for name in leads
        )

    def _ran_without_event(self, unit: Unit, name: str) -> bool:
        target = self.project.loaded_definition(unit, name)
        node = None if target is None or target.unit.lowered is None else target.unit.node(target)
        if not isinstance(node, ir.FunctionDef):
            return False
        return node.function in self.known.reached and node.function not in self.known.eventful


def _rank(project: Project, unit: Unit) -> tuple[bool, bool]:
    """Return a key that sorts scripts that name sharding first, and of these those that train.

    What a script follows of shared code, later ones follow in few combinations. Most mistakes need
    an optimizer, which a script that evaluates or exports a model does not have.
    """
    text = unit.text
    return not project.mentions_sharding(text), not any(call in text for call in TRAINING_CALLS)


def _is_mocked(project: Project, unit: Unit) -> bool:
    """True if a test, or a fixture for it, replaces a sharding function."""
    if not project.is_test(unit.path):
        return False
    folders = [unit.directory, *unit.directory.parents]
    inside = [each for each in folders if each == project.root or project.root in each.parents]
    found = [project.find("conftest", 1, folder) for folder in inside]
    shared = [project.sketch(path) for path in found if path is not None]
    return any(each is not None and each.mocks_sharding for each in (unit, *shared))
