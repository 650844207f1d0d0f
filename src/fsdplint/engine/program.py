"""A program as analyzed: its traces, its places, and which events can happen together.

Two events that depend on different conditions are only combined if the conditions are not different
modes of the program: `if args.ddp` and `if args.fsdp` may exclude each other, though nothing in the
code says so. What stands under `if mode == "fsdp2"` goes with what `if data == "fsdp2"` shards, and
with any model that FSDP2 shards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.frontend.ir_cache import IRCache
from fsdplint.engine.frontend.parallel import lower_in_parallel
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.decisions import exclude, required_name
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.explore import explore
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.project.launch_settings import LaunchSettings
from fsdplint.engine.project.project import Project, Reader
from fsdplint.engine.project.relevance import note_unknown_origins, related_units
from fsdplint.engine.project.unit import Unit
from fsdplint.files.notebook import is_written
from fsdplint.finding import Evidence, Span
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.suspicious_words import means_parallel_mode, means_rank, means_sharding
from fsdplint.knowledge.torch_range import EVERY_RELEASE, TorchRange
from fsdplint.outcome import never

# A file that says "__main__" anywhere else may access the script by that name.
_MAIN_GUARD = re.compile(r"__name__\s*==\s*[\"']__main__[\"']")


@dataclass(frozen=True)
class Program:
    """A program as analyzed.

    Attributes:
        method_traces: those of methods that nothing calls, on objects that live on.
        whole: the program that this one has only some traces of.
        torch: the releases of PyTorch that it supports.
        files: those of the project, whether they take part in sharding or not.
        line_name: what people call a line of a file: in a notebook its place in a cell.
        admits: the releases of a package that the project's requirements admit, None if they say
            nothing.
    """

    project: Project
    units: tuple[Unit, ...]
    traces: tuple[Trace, ...]
    method_traces: tuple[Trace, ...] = ()
    whole: Program | None = None
    torch: TorchRange = EVERY_RELEASE
    files: tuple[Path, ...] = ()
    trees: dict[str, Tree] = field(default_factory=dict)
    line_name: Callable[[str, int], str] = lambda _, line: f"line {line}"
    admits: Callable[[str], TorchRange | None] = lambda _: None

    def only(self, traces: tuple[Trace, ...]) -> Program:
        """Return the program with these traces alone."""
        return replace(self, traces=traces, method_traces=(), whole=self.whole or self)

    def method_traces_with(self, call: ir.Node) -> Iterator[Trace]:
        """Yield those of methods that nothing calls, on objects behind a sharding call.

        Methods have no order: what one of them does may come before what another one does.
        """
        for trace in (self.whole or self).method_traces:
            if any(shard.call is call for shard in trace.of(Shard)):
                yield trace

    def trees_with(self, *words: str) -> Iterator[Tree]:
        """Yield the files that take part and have one of ``words`` in their text."""
        for unit in self.units:
            found = any(word in unit.text for word in words)
            if found and self.project.unit(Path(unit.path)) is not None:
                yield self.tree(unit.path)

    # Places

    def tree(self, path: str) -> Tree:
        """Return the file at ``path``."""
        if self.whole is not None:
            return self.whole.tree(path)
        if path not in self.trees:
            unit = self.project.unit(Path(path))
            assert unit is not None, path
            private = partial(self._is_private, path)
            self.trees[path] = Tree(path, unit.text, unit.module, private)
        return self.trees[path]

    def _is_private(self, path: str) -> bool:
        """True if a file is run as a script, and no other file imports it or mentions its name.

        A file that is not a script may have importers among files that this run was not given.
        """
        own = [t for t in self.traces if t.path == path and t.entry == "<module>"]
        runs = any(trace.of(Shard) or trace.calls("backward") for trace in own)
        if not runs and self.tree(path).main_guard is None:
            return False
        others = (file for file in self.files if file.as_posix() != path)
        return not any(self._may_import(file, Path(path).stem) for file in others)

    def _may_import(self, file: Path, stem: str) -> bool:
        text = self.project.read(file) or ""
        if "__main__" in _MAIN_GUARD.sub("", text):
            return True
        if stem not in text:
            return False
        names = (name for name, _ in self.project.imports(file).modules)
        imported = any(stem in name.split(".") for name in names)
        return (
            imported or re.search(rf"[\"'][\w.]*\b{re.escape(stem)}\b[\w.]*[\"']", text) is not None
        )

    def span(self, site: Site) -> Span:
        return Span(site.path, site.node.start, site.node.end)

    def text(self, path: str, node: ir.Node) -> str:
        """Return the source of a node on one line."""
        return " ".join(self.tree(path).text[node.start : node.end].split())

    def evidence(self, site: Site, note: str) -> Evidence:
        return Evidence(self.span(site), note)

    def line(self, site: Site) -> int:
        return self.tree(site.path).line_number(site.node.start)

    def where(self, site: Site, seen_from: Site) -> str:
        """Return "on line 47", or the place with its file if that is another one."""
        line = self.line(site)
        where = f"on {self.line_name(site.path, line)}"
        if site.path == seen_from.path:
            return where
        file = Path(site.path).name
        return f"in {file}:{line}" if where == f"on line {line}" else f"in {file} {where}"

    def conditions(self, *sites: Site) -> tuple[Evidence, ...]:
        """Return the branches that had to be taken for these places to be reached."""
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
        if guard.is_case:
            verb = "matches" if guard.taken else "does not match"
            return f"when `{_short(self._subject(guard))}` {verb} `{text}`"
        return f"when `{text}` is {'true' if guard.taken else 'false'}"

    def _subject(self, guard: Guard) -> str:
        """Return the subject of the ``match`` around a case, "" for another branch."""
        above = self.tree(guard.path).ancestors(guard.test) if guard.is_case else ()
        subjects = (node.subject for node in above if isinstance(node, ir.Match))
        return next((self.text(guard.path, subject) for subject in subjects), "")

    def words(self, guard: Guard) -> str:
        """Return the condition of a branch as in the source."""
        return f"{self._subject(guard)} {self.text(guard.path, guard.test)}"

    def is_rank_test(self, guard: Guard) -> bool:
        """True if only some ranks take a branch, or its words suggest that.

        A test above a sharding call lets all ranks pass, such as ``"LOCAL_RANK" in environ``.
        """
        passed = (guard.test, guard.taken) in self._above_sharding
        return guard.divergent or (not passed and means_rank(self.words(guard)))

    @cached_property
    def _above_sharding(self) -> frozenset[tuple[ir.Node, bool]]:
        """The tests that lead to a sharding call, with their outcomes."""
        if self.whole is not None:
            return self.whole._above_sharding
        shards = (shard for trace in self.traces for shard in trace.of(Shard))
        return frozenset((guard.test, guard.taken) for s in shards for guard in s.site.guards)

    # Feasibility

    def together(self, use: Site, shard: Site) -> bool:
        """True if a use and a sharding surely can happen in one run of the program."""
        ours, theirs = _modes(use), _modes(shard)
        if any(exclude(own, foreign) for own in ours for foreign in theirs):
            return False  # two arms of one branch, or two values of one option
        if self._on_two_arms(use, shard):
            return False
        refused = [guard for key, guard in ours.items() if key not in theirs and not guard.taken]
        if any(means_sharding(self.words(g)) for g in refused):
            return False
        if not self.apart(use, shard):
            return True
        modes = [g for g in self.own_branches(use, shard) if means_parallel_mode(self.words(g))]
        names = {required_name(guard.key, guard.taken) for guard in theirs.values()}
        names = {name for name in names if name is not None and means_sharding(name)}
        if shard.node in self._generations:
            names.add(self._generations[shard.node].value.lower())
        return all(required_name(guard.key, guard.taken) in names for guard in modes)

    @cached_property
    def _generations(self) -> dict[ir.Node, Generation]:
        """The generation of each sharding call."""
        if self.whole is not None:
            return self.whole._generations
        traces = (*self.traces, *self.method_traces)
        return {shard.call: shard.generation for trace in traces for shard in trace.of(Shard)}

    def _on_two_arms(self, one: Site, other: Site) -> bool:
        """True if a call of one function takes only one of two places, by a test of one value.

        The value may differ between calls, e.g. by an element. In a loop of the function each arm
        has its turn.
        """
        if one.frames()[:-1] != other.frames()[:-1] or one.path != other.path:
            return False
        taken = {guard.key: guard.taken for guard in one.guards if _is_of_element(guard)}
        apart = any(
            taken.get(guard.key, guard.taken) is not guard.taken
            for guard in other.guards
            if _is_of_element(guard)
        )
        return apart and not self._is_repeated(one)

    def _is_repeated(self, site: Site) -> bool:
        """True if a loop of its own function runs a place several times."""
        for above in self.tree(site.path).ancestors(site.node):
            if isinstance(above, (ir.Function, ir.ClassDef)):
                return False
            if isinstance(above, (ir.For, ir.While, ir.Comprehension)):
                return True
        return False

    def own_branches(self, one: Site, other: Site) -> list[Guard]:
        """Return the branches that one place depends on and another one does not."""
        theirs = _modes(other).keys()
        return [guard for key, guard in _modes(one).items() if key not in theirs]

    def apart(self, one: Site, other: Site) -> bool:
        """True if each of two places depends on a branch that the other does not depend on."""
        ours, theirs = _modes(one).keys(), _modes(other).keys()
        return bool(ours - theirs) and bool(theirs - ours)

    def sometimes_without(self, use: Site, shard: Site) -> bool:
        """True if a branch that ``use`` does not depend on decides whether it is sharded."""
        return bool(_modes(shard).keys() - _modes(use).keys())


def analyze(
    root: Path,
    files: Iterable[Path],
    read: Reader,
    focus: Collection[Path] | None = None,
    torch: TorchRange = EVERY_RELEASE,
    ir_cache: IRCache | None = None,
    is_plain: Callable[[Path], bool] = lambda _: False,
    is_outdated: Callable[[], bool] = never,
    launches: tuple[LaunchSettings, ...] = (),
) -> Program:
    """Analyze the program in ``files``, following imports to other files below ``root``.

    Args:
        focus: the files that findings are wanted for, if not for all.
        read: the text of a file, or None if it cannot be read.
        torch: the releases of PyTorch that the program supports.
        ir_cache: the IR of files from earlier runs, which this run adds to.
        is_plain: whether a file surely has no name of a sharding call, without reading it.
        is_outdated: whether nobody waits any more for the program.
        launches: the settings of FSDP that its scripts are launched with, as far as known.

    Raises:
        OutdatedError: nobody waits any more.
    """
    files = tuple(files)
    project = Project(root, read, torch, ir_cache, is_plain, launches)
    for script in filter(is_written, files):
        project.finder.add(script)
    units = related_units(project, files, focus)
    with lower_in_parallel(ir_cache, (unit.text for unit in units)):
        traces, method_traces = explore(project, units, is_outdated)
    note_unknown_origins(project, units)
    return Program(
        project, tuple(units), tuple(traces), tuple(method_traces), torch=torch, files=files
    )


def _modes(site: Site) -> dict[tuple[object, bool], Guard]:
    """Return the branches of a place that select a mode: not ranks, steps or failures."""
    return {
        (guard.key, guard.taken): guard
        for guard in site.guards
        if not guard.divergent
        and not guard.progress
        and not (isinstance(guard.key, tuple) and guard.key[:1] == ("raises",))
    }


def _is_of_element(guard: Guard) -> bool:
    return guard.progress and not guard.divergent


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"
