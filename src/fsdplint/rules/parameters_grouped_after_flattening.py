"""Parameters that are told apart by what FSDP1 has flattened away: names and dimensions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.layers import wrapped_classes
from fsdplint.engine.facts.sharding import is_summoned, runs_alone
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import BuildOptimizer, Shard, Store, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Parameters,
    Symbol,
    class_names,
    followed,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.original_parameters import keep_original
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import ALWAYS_WRAPS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD322",
    summary="parameters are grouped by names or shapes after FSDP1 flattened them",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)

# What names of parameters end with, and names of modules do not.
_LEAVES = ("bias", "weight")
# Words for layers that are hardly ever units of their own, whose names flat parameters have.
_OF_LAYERS = re.compile(r"norm|ln|bn|gamma|beta|scale", re.IGNORECASE)
_DIMENSIONS = frozenset({"dim", "ndim", "ndimension"})
# What puts a parameter into a group.
_COLLECTS = frozenset({"add", "append", "extend", "requires_grad", "requires_grad_"})


@dataclass(frozen=True, slots=True)
class LostGrouping:
    """A ``test`` of which all parameters have the same outcome, and what uses the groups.

    Attributes:
        names: it is a test of names, else of dimensions.
        freezes: it decides on `requires_grad`, else on a group of an optimizer.
    """

    site: Site
    test: ir.Node
    names: bool
    shard: Shard
    use: Site
    freezes: bool


def lost_groupings(program: Program) -> Iterator[LostGrouping]:
    """Tests of parameters of FSDP1 units, for groups of an optimizer or for what is trained."""
    for trace in program.traces:
        if not trace.of(Shard) or runs_alone(trace):
            continue
        for taken, use, freezes in _uses(trace):
            shard = _flattens(program, trace, taken)
            if shard is None or not program.together(use, shard.site):
                continue
            tree = program.tree(taken.source.path)
            for test, names in _tests(tree, taken.source.node):
                if names and _names_layers(tree, test) and _wraps_layers(shard):
                    continue  # some flat parameters have the name of such a layer
                if shard.keeps_parameters is False if names else shard.cuts_flat:
                    yield LostGrouping(taken.source, test, names, shard, use, freezes)


def _uses(trace: Trace) -> Iterator[tuple[Parameters, Site, bool]]:
    for build in trace.of(BuildOptimizer):
        for capture in build.captures:
            yield capture, build.site, False
    for store in trace.of(Store):
        owner = followed(store.owner)
        if store.name == "requires_grad" and isinstance(owner, Parameters):
            yield owner, store.site, True


def _flattens(program: Program, trace: Trace, taken: Parameters) -> Shard | None:
    """The FSDP1 call that has flattened all of these parameters when they are taken."""
    if is_summoned(program, taken.source):
        return None
    around = (taken.module, *taken.module.ancestors())
    for shard in trace.of(Shard):
        whole = shard.generation is Generation.FSDP1 and not shard.may_leave_out
        if shard.module in around and shard.time < taken.time and whole:
            return shard
    return None


# What is tested


def _tests(tree: Tree, taken: ir.Node) -> Iterator[tuple[ir.Node, bool]]:
    """Tests of names and of dimensions in the loops of a function over what is taken."""
    scope = tree.function(taken) or tree.module
    aliases = _aliases(scope, taken)
    for loop in ir.walk_scope(*scope.body):
        if not isinstance(loop, (ir.For, ir.Clause)) or not _mentions(
            loop.iterable, aliases, taken
        ):
            continue
        variables = [each.id for each in ir.walk(loop.target) if isinstance(each, ir.Name)]
        for test in (part for whole in _conditions(loop) for part in ir.operands(whole)):
            mentioned = {each.id for each in ir.walk(test) if isinstance(each, ir.Name)}
            if len(variables) > 1 and variables[-2] in mentioned and _is_of_leaves(tree, test):
                yield test, True
            elif variables and _is_of_dimensions(test, variables[-1]):
                yield test, False


def _aliases(scope: ir.Function | ir.Module, taken: ir.Node) -> set[str]:
    """The variables that hold what is taken, or a selection of it."""
    aliases: set[str] = set()
    for node in ir.walk_scope(*scope.body):
        if isinstance(node, ir.Assign) and _mentions(node.value, aliases, taken):
            aliases |= {each.id for each in node.targets if isinstance(each, ir.Name)}
    return aliases


def _mentions(expression: ir.Expr, aliases: set[str], taken: ir.Node) -> bool:
    return any(
        node is taken or (isinstance(node, ir.Name) and node.id in aliases)
        for node in ir.walk(expression)
    )


def _conditions(loop: ir.For | ir.Clause) -> Iterator[ir.Expr]:
    """The tests by which a loop or a comprehension chooses."""
    if isinstance(loop, ir.Clause):
        yield from loop.conditions
        return
    for node in ir.walk_scope(*loop.body):
        if isinstance(node, ir.If):
            inside = [each for s in (*node.body, *node.orelse) for each in ir.walk(s)]
            if any(isinstance(e, ir.Attribute) and e.attr in _COLLECTS for e in inside):
                yield node.test
        elif isinstance(node, ir.Assign):
            targets = [each for each in node.targets if isinstance(each, ir.Attribute)]
            if any(each.attr == "requires_grad" for each in targets):
                yield node.value


def _is_of_leaves(tree: Tree, test: ir.Node) -> bool:
    """Whether a test looks for what only the names of parameters have."""
    words = [word for node in ir.walk(test) for word in _words(tree, node)]
    known = all(word.endswith(_LEAVES) or _OF_LAYERS.search(word) for word in words)
    return known and any(word.endswith(_LEAVES) for word in words)


def _names_layers(tree: Tree, test: ir.Node) -> bool:
    words = (word for node in ir.walk(test) for word in _words(tree, node))
    return any(not word.endswith(_LEAVES) for word in words)


def _wraps_layers(shard: Shard) -> bool:
    """True if a policy makes units of layers such as norms."""
    policy = must_be(shard.keywords.get("auto_wrap_policy"))
    if isinstance(policy, Symbol) and policy.name == ALWAYS_WRAPS:
        return True
    classes = [c for c in wrapped_classes(shard) or () if isinstance(c, (ClassValue, Symbol))]
    names = (name.rpartition(".")[2] for cls in classes for name in class_names(cls))
    return any(map(_OF_LAYERS.search, names))


def _words(tree: Tree, node: ir.Node) -> Iterator[str]:
    if isinstance(node, ir.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ir.Name):
        for given in _given(tree, node):
            elements = given.elements if isinstance(given, ir.Collection) else (given,)
            if isinstance(given, ir.Comprehension):  # of names that are chosen by such a test
                tests = (test for clause in given.clauses for test in clause.conditions)
                elements = tuple(p for t in tests for p in ir.walk(t) if isinstance(p, ir.Constant))
            for each in elements:
                if isinstance(each, ir.Constant) and isinstance(each.value, str):
                    yield each.value


def _given(tree: Tree, name: ir.Name) -> list[ir.Expr]:
    """What a variable of the function, or else of the file, stands for."""
    meant = tree.meaning(name)
    if meant is not name:
        return [meant]
    function = tree.function(name)
    for body in (ir.walk_scope(*function.body) if function is not None else (), tree.module.body):
        assigns = [each for each in body if isinstance(each, ir.Assign)]
        targets = [(each.value, t) for each in assigns for t in each.targets]
        found = [v for v, t in targets if isinstance(t, ir.Name) and t.id == name.id]
        if found:
            return found
    return []


def _is_of_dimensions(test: ir.Node, variable: str) -> bool:
    """``p.dim() >= 2``, ``p.ndim < 2`` or ``len(p.shape) == 1``."""
    for node in ir.walk(test):
        if not isinstance(node, ir.Attribute) or node.attr not in (*_DIMENSIONS, "shape"):
            continue
        own = isinstance(node.value, ir.Name) and node.value.id == variable
        if own and (node.attr != "shape" or _is_counted(test, node)):
            return True
    return False


def _is_counted(test: ir.Node, shape: ir.Node) -> bool:
    calls = [node for node in ir.walk(test) if isinstance(node, ir.Call)]
    return any(
        ir.last_name(call.func) == "len" and call.args[0].value is shape
        for call in calls
        if len(call.args) == 1
    )


def reports(program: Program) -> Iterator[Report]:
    for fact in lost_groupings(program):
        site, shard = fact.site, fact.shard.site
        sharding = program.text(shard.path, fact.shard.call.func)
        test = program.text(site.path, fact.test)
        yield Report(
            program.span(Site(site.path, fact.test, site.calls, site.guards)),
            f"`{test}` has the same result for every parameter, so {_outcome(fact)}: "
            f"`{sharding}` {program.where(shard, site)} flattened {_what(fact.names)}",
            "same result for every parameter",
            (
                program.evidence(shard, "flattens the parameters"),
                program.evidence(fact.use, "the test selects these parameters"),
                *program.conditions(fact.use, shard),
            ),
            partial(_fix, program, fact),
        )


def _outcome(fact: LostGrouping) -> str:
    return "it freezes all of them or none" if fact.freezes else "it selects all of them or none"


def _what(names: bool) -> str:
    if names:
        return "each unit's parameters into one `_flat_param`"
    return "the parameters to one dimension"


def _fix(program: Program, fact: LostGrouping) -> Fix | Declined:
    if not fact.names:
        first = "" if fact.shard.keeps_parameters else "set it and "
        return Declined(
            "parameters have one dimension with `use_orig_params=True`, too; "
            f"{first}group them by names collected before the model is wrapped"
        )
    return keep_original(Code.of(program.tree(fact.shard.site.path)), fact.shard.call, False)
