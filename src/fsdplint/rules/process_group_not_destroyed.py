"""Scripts that end without destroying their process group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.facts.fix_places import common_frame
from fsdplint.engine.facts.loops import is_endless
from fsdplint.engine.facts.scripts import is_run, script_of, whole_program
from fsdplint.engine.frontend.tree import STATEMENTS, Block, Tree
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.files.lexing import NEWLINE
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.checkpoints import ASYNC_SAVE
from fsdplint.knowledge.collectives import CALLS
from fsdplint.knowledge.launch import DESTROY, DEVICE_MESH, INIT, INIT_DEVICE_MESH, IS_UP
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD107",
    summary="a script ends without destroying its process group",
    severity=Severity.NOTE,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


# Calls that need the group, or train: the group can go after the last of these.
_USES = ("step", "forward", "backward", *CALLS)
_DESTROY = DESTROY.rpartition(".")[2]
_IS_UP = IS_UP.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class LeftUp:
    """A process group that nothing in the whole program destroys.

    Attributes:
        start: the call that creates it, or a `fully_shard` that finds none.
        end: the last statement of the function that creates it and trains.
        unused: a function that would destroy it, but is never called.
        saving: a checkpoint may still be written when the program ends.
    """

    start: Call | Shard
    end: Site
    unused: Site | None
    saving: bool


def left_up(program: Program) -> Iterator[LeftUp]:
    """Yield process groups of scripts whose whole program is known and destroys none."""
    known: dict[str, list[Site] | None] = {}
    makes_one: dict[str, bool] = {}
    for trace in program.traces:
        start = _start(trace)
        if start is None:
            continue
        script = script_of(program, trace, start.site)
        if script is None or not is_run(program, trace, script):
            continue
        if script not in known:
            known[script] = _unused_destroyers(program, script)
        unused = known[script]
        if unused is None:
            continue
        if isinstance(start, Shard) and script not in makes_one:
            makes_one[script] = _makes_one(program, script)
        if isinstance(start, Shard) and not makes_one[script]:
            continue
        end = _end(program, trace, start)
        if end is not None:
            saving = bool(trace.calls(ASYNC_SAVE))
            yield LeftUp(start, end, unused[0] if unused else None, saving)


def _start(trace: Trace) -> Call | Shard | None:
    """Return the event that creates the group that the first sharding uses."""
    shard = next(iter(trace.of(Shard)), None)
    if shard is None:  # an accelerator may do it
        return None
    for name in (INIT, INIT_DEVICE_MESH):
        before = [call for call in trace.calls(name) if call.time < shard.time]
        if before:
            return before[-1] if name == INIT else before[0]
    given = len(shard.positional) > 1 or "mesh" in shard.keywords
    return None if given or shard.generation is not Generation.FSDP2 else shard


def _end(program: Program, trace: Trace, start: Call | Shard) -> Site | None:
    """Return the last statement of the function or module block that creates it and trains.

    None if no run gets there, since the program trains forever.
    """
    steps = trace.calls("step")
    if isinstance(start, Shard) and not steps:
        return None  # what `fully_shard` makes is up when it returns
    last = max((*trace.of(Shard), *trace.calls(*_USES)), key=lambda event: event.time)
    frame = common_frame(start.site, last.site)
    if frame is None or any(is_endless(program, step.site) for step in steps):
        return None
    path, node, other = frame
    tree = program.tree(path)
    scope = tree.scope(node)
    if isinstance(scope, ir.Function):
        return Site(path, scope.body[-1])
    if isinstance(scope, ir.ClassDef):
        return None
    return Site(path, _common_block(tree, node, other).statements[-1])


def _common_block(tree: Tree, one: ir.Node, other: ir.Node) -> Block:
    """Return the innermost block that holds both."""
    around = {other, *tree.ancestors(other)}
    holders = (node for node in (one, *tree.ancestors(one)) if isinstance(node, STATEMENTS))
    suites = (tree.block(node) for node in holders if not tree.in_lambda(node))  # type: ignore[arg-type]  # STATEMENTS are the types of Stmt
    return next(block for block in suites if not around.isdisjoint(block.statements))


# The whole program


def _unused_destroyers(program: Program, script: str) -> list[Site] | None:
    """Return the functions that would destroy the group and are never called.

    None if some code may destroy it, or if not all of the program is known.
    """
    trees = whole_program(program, script)
    return None if trees is None else _uncalled(trees, _DESTROY, set())


def _makes_one(program: Program, script: str) -> bool:
    """True if `fully_shard` surely finds no group: nothing in the program could create one.

    Code without a main guard may be run by a launcher that creates one.
    """
    if program.tree(script).main_guard is None:
        return False
    trees = whole_program(program, script) or ()
    names = {name.rpartition(".")[2] for name in (INIT, DEVICE_MESH, INIT_DEVICE_MESH)}
    return not any(True for name in names for _ in _mentions(trees, name))


def _uncalled(trees: Sequence[Tree], name: str, seen: set[str]) -> list[Site] | None:
    """Return the uncalled functions that alone lead to ``name``; None if others may."""
    found: list[Site] = []
    for tree, node in _mentions(trees, name):
        function = tree.function(node)
        if function is None or _may_be_called(trees, tree, function):
            return None
        if function.name not in seen:
            seen.add(function.name)
            callers = _uncalled(trees, function.name, seen)
            if callers is None:
                return None
            found += callers or [Site(tree.path, tree.parent(function))]
    return found


def _may_be_called(trees: Sequence[Tree], tree: Tree, function: ir.Function) -> bool:
    """True if something may call a function that nothing names."""
    owner = tree.scope(tree.parent(function))
    own = function.name.isidentifier() and not function.name.startswith("__")
    if not own or function.decorators or tree.looks_up_variables:
        return True
    looked_into = frozenset(name for each in trees for name in each.looked_into)
    if isinstance(owner, ir.ClassDef):
        return bool(owner.bases or owner.decorators or looked_into)
    return Path(tree.path).stem in looked_into


def _mentions(trees: Iterable[Tree], name: str) -> Iterator[tuple[Tree, ir.Node]]:
    """Yield uses of ``name`` in files, without its definitions and imports."""
    for tree in trees:
        if re.search(rf"\b{re.escape(name)}\b", tree.text):
            names = {name, *_aliases(tree, name)}
            nodes = (node for node in tree.walk(*names) for each in names if _means(node, each))
            yield from ((tree, node) for node in nodes)


def _aliases(tree: Tree, name: str) -> set[str]:
    """Return the aliases under which a file imports ``name``."""
    pairs = (pair for node in tree.imports for pair in node.names)
    return {alias for imported, alias in pairs if imported == name and alias is not None}


def _means(node: ir.Node, name: str) -> bool:
    """True if a node names ``name``, also as a string for ``getattr``."""
    if isinstance(node, ir.Name):
        return node.id == name
    if isinstance(node, ir.Attribute):
        return node.attr == name
    return isinstance(node, ir.Constant) and node.value == name


def reports(program: Program) -> Iterator[Report]:
    """Report each call once, with the ends of all scripts for which it creates a group."""
    found: dict[ir.Node, dict[tuple[str, ir.Node], LeftUp]] = {}
    for fact in sorted(left_up(program), key=lambda fact: len(fact.start.site.guards)):
        ends = found.setdefault(fact.start.site.node, {})
        ends.setdefault((fact.end.path, fact.end.node), fact)
    for ends in found.values():
        fact, *others = ends.values()
        site = fact.start.site
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` creates a process group that is never "
            f"destroyed, since {_why(program, fact)}: NCCL warns, and ranks may hang at exit",
            "never destroyed",
            (
                *_evidence(program, fact),
                *(
                    Evidence(_first_line(program, each.end), "process group still exists here")
                    for each in others
                ),
            ),
            partial(_fix_all, program, (fact, *others)),
        )


def _why(program: Program, fact: LeftUp) -> str:
    if fact.unused is None:
        return "nothing calls `destroy_process_group`"
    assert isinstance(fact.unused.node, ir.FunctionDef)
    name = fact.unused.node.function.name
    return f"nothing calls `{name}` {program.where(fact.unused, fact.start.site)}"


def _evidence(program: Program, fact: LeftUp) -> Iterator[Evidence]:
    yield Evidence(_first_line(program, fact.end), "process group still exists here")
    if fact.unused is not None:
        yield Evidence(_first_line(program, fact.unused), "destroys it, but is never called")
    yield from program.conditions(fact.start.site)


def _first_line(program: Program, site: Site) -> Span:
    start, end = site.node.start, site.node.end
    first = NEWLINE.split(program.tree(site.path).text[start:end])[0]
    return Span(site.path, start, start + len(first))


def _fix_all(program: Program, facts: Sequence[LeftUp]) -> Fix | Declined:
    """Destroy the group at each end: while one is left, the call is still reported."""
    first, edits = None, dict[Edit, None]()
    for fact in facts:
        fix = _fix(program, fact)
        if isinstance(fix, Declined):
            return fix
        first, edits = first or fix, edits | dict.fromkeys(fix.edits)
    assert first is not None
    return replace(first, edits=tuple(edits))


def _fix(program: Program, fact: LeftUp) -> Fix | Declined:
    if fact.saving:
        return Declined(
            "an asynchronous save may still be running at the end; wait for it and call "
            "`destroy_process_group` by hand"
        )
    same = fact.unused is not None and fact.unused.path == fact.end.path
    unused = fact.unused.node if same and fact.unused is not None else None
    assert unused is None or isinstance(unused, ir.FunctionDef)
    code = Code.of(program.tree(fact.end.path))
    return destroy_at_end(code, fact.end.node, unused, perhaps=_is_conditional(program, fact))  # type: ignore[arg-type]  # a statement


def _is_conditional(program: Program, fact: LeftUp) -> bool:
    """True if the end may be reached without a group: an `if` creates it, and the end is outside.

    A test that sharding decides, such as one of the number of ranks, is no guard of the site.
    After a test of `is_initialized`, a group exists in any case.
    """
    around = set(program.tree(fact.end.path).ancestors(fact.end.node))
    branches = (
        above
        for path, node in fact.start.site.frames()
        for above in program.tree(path).ancestors(node)
        if isinstance(above, ir.If) and above is not program.tree(path).main_guard
    )
    guarded = any(not guard.early for guard in fact.start.site.guards)
    return guarded or any(
        branch not in around and not any(_means(each, _IS_UP) for each in ir.walk(branch.test))
        for branch in branches
    )


_PLAIN = (ir.Name, ir.Attribute, ir.Constant, ir.Collection)


@builder
def destroy_at_end(
    code: Code, last: ir.Stmt, unused: ir.FunctionDef | None, *, perhaps: bool
) -> Fix:
    """Destroy the group after ``last``, or before it if it returns.

    Args:
        unused: a function of the same file that does so.
        perhaps: there may be no group at that point.
    """
    if not code.alone(last):
        raise NoFixError(
            f"`{code.short(last)}` shares its line with other code; call `destroy_process_group` "
            "by hand"
        )
    returns = isinstance(last, (ir.Return, ir.Raise))
    if isinstance(last, ir.Return) and not (last.value is None or isinstance(last.value, _PLAIN)):
        raise NoFixError(
            f"`{code.short(last)}` may still use the process group; call `destroy_process_group` "
            "after it by hand"
        )
    imports = Imports(code, last)
    callee = _callable(code, unused)
    callee = callee or imports.name(DISTRIBUTED, "destroy_process_group")
    indent = code.indentation(last)
    line = f"{indent}{callee}(){code.newline}"
    if perhaps:
        test = imports.name(DISTRIBUTED, "is_initialized")
        line = f"{indent}if {test}():{code.newline}{code.unit}{line}"
    at = code.extent(last)[0] if returns else code.after(last)
    edits = (code.insert_lines(at, line), *imports.edits())
    return Fix(f"call `{callee}` at the end", Safety.UNSAFE, edits)


def _callable(code: Code, unused: ir.FunctionDef | None) -> str | None:
    if unused is None or unused.function.parameters:
        return None
    return unused.function.name if unused in code.module.body else None
