"""no-sync-under-fsdp2: FSDP1's `no_sync` on a model that has no such method."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import (
    Module,
    called_names,
    fresh,
    indented,
    modules,
    name_of,
    reaching,
)
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "no-sync-under-fsdp2"
FLAG = "set_requires_gradient_sync"


@dataclass(frozen=True, slots=True)
class Site:
    """A forward and backward pass.

    Attributes:
        flag: the statement that sets the flag, or None if nothing does.
        body: the statements from the forward pass to the backward pass.
        model: the expression of the root.
        sync: the condition under which gradients are communicated.
    """

    module: Module
    flag: ast.stmt | None
    body: list[ast.stmt]
    model: str
    sync: str


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if not program.units:
        return
    everything = modules(program)
    backward = reaching(everything, {"backward"})
    flagged = [site for m in everything for site in flagged_sites(m, backward)]
    for site in flagged or [site for m in everything for site in plain_sites(program, m)]:
        chosen = random.sample(VARIANTS, 6 if flagged else 4)
        for variant in chosen:
            kind = variant.__name__.strip("_")
            yield mutant(program, RULE, kind, {site.module.path: variant(site)})


def flagged_sites(module: Module, backward: set[str]) -> Iterator[Site]:
    for block in module.blocks():
        for index, statement in enumerate(block):
            setting = _setting(module, statement)
            if setting is None:
                continue
            body = _until_backward(block[index + 1 :], backward)
            if body:
                yield Site(module, statement, body, *setting)


def _setting(module: Module, statement: ast.stmt) -> tuple[str, str] | None:
    """(model, condition) of a statement that does nothing but set the flag."""
    if isinstance(statement, ast.If) and len(statement.body) == len(statement.orelse) == 1:
        on, off = (_setting(module, branch[0]) for branch in (statement.body, statement.orelse))
        if on and off and (on[1], off[1]) == ("True", "False"):
            return on[0], module.source(statement.test)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    if name_of(call) != FLAG or not isinstance(call.func, ast.Attribute):
        return None
    return module.source(call.func.value), module.source(call.args[0])


def _until_backward(statements: list[ast.stmt], backward: set[str]) -> list[ast.stmt]:
    for index, statement in enumerate(statements):
        if called_names(statement) & backward:
            return statements[: index + 1]
    return []


def plain_sites(program: Program, module: Module) -> Iterator[Site]:
    """Passes of a program that does not accumulate: they are made two, summed."""
    for block in module.blocks():
        ends = [i for i, s in enumerate(block) if isinstance(s, ast.Expr) and _is_backward(s)]
        for begin, end in itertools.pairwise([-1, *ends]):
            starts = [i for i in range(begin + 1, end + 1) if _root_call(program, block[i])]
            if starts:
                root = _root_call(program, block[starts[0]])
                body = block[starts[0] : end + 1]
                yield Site(module, None, body, root, f"{_counter(module)} == 1")


def _counter(module: Module) -> str:
    return fresh("micro_step", module.text)


def _is_backward(statement: ast.stmt) -> bool:
    return "backward" in called_names(statement)


def _root_call(program: Program, statement: ast.stmt) -> str:
    """The root that ``statement`` calls; compound statements are looked at by their block."""
    if not isinstance(statement, (ast.Assign, ast.Expr)):
        return ""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func).replace("'", '"') in program.units:
            return ast.unparse(node.func)
    return ""


def _rewritten(
    site: Site, text: str, *, imports: str = "import contextlib", helper: str = ""
) -> str:
    start, end = site.module.rows(site.flag or site.body[0], site.body[-1])
    if site.flag is None:
        text = f"for {_counter(site.module)} in range(2):\n{indented(text, '    ')}"
    new = indented(text, site.module.indent(site.body[0]))
    return site.module.edited([(start, end, new)], imports=imports, helper=helper)


def _body(site: Site) -> str:
    return site.module.dedented(site.body[0], site.body[-1])


def _under(site: Site, *header: str) -> str:
    return "\n".join(header) + "\n" + indented(_body(site), "    ")


def negated(site: Site) -> str:
    left, equal, right = site.sync.partition(" == ")
    if equal and " and " not in site.sync and " or " not in site.sync:
        return f"{left} != {right}"
    return f"not {site.sync}" if site.sync.isidentifier() else f"not ({site.sync})"


def _no_sync(site: Site) -> str:
    return f"{MARK}{site.model}.no_sync()"


def _conditional(site: Site) -> str:
    header = f"with {_no_sync(site)} if {negated(site)} else contextlib.nullcontext():"
    return _rewritten(site, _under(site, header))


def _conditional_reversed(site: Site) -> str:
    header = f"with contextlib.nullcontext() if {site.sync} else {_no_sync(site)}:"
    return _rewritten(site, _under(site, header))


def _variable(site: Site) -> str:
    name = fresh("context", site.module.text)
    choice = f"{name} = contextlib.nullcontext() if {site.sync} else {_no_sync(site)}"
    return _rewritten(site, _under(site, choice, f"with {name}:"))


def _variable_replaced(site: Site) -> str:
    name = fresh("context", site.module.text)
    lines = (
        f"{name} = contextlib.nullcontext()",
        f"if {negated(site)}:",
        f"    {name} = {_no_sync(site)}",
        f"with {name}:",
    )
    return _rewritten(site, _under(site, *lines))


def _function_chosen(site: Site) -> str:
    """The method itself is chosen, and called in the with statement."""
    name = fresh("maybe_sync", site.module.text)
    choice = f"{name} = {MARK}{site.model}.no_sync if {negated(site)} else contextlib.nullcontext"
    return _rewritten(site, _under(site, choice, f"with {MARK}{name}():"))


def _two_branches(site: Site) -> str:
    synced = f"if {site.sync}:\n" + indented(_body(site), "    ")
    unsynced = indented(_under(site, f"with {_no_sync(site)}:"), "    ")
    return _rewritten(site, f"{synced}else:\n{unsynced}", imports="")


def _always(site: Site) -> str:
    return _rewritten(site, _under(site, f"with {_no_sync(site)}:"), imports="")


def _exit_stack(site: Site) -> str:
    name = fresh("stack", site.module.text)
    enter = f"    if {negated(site)}:\n        {name}.enter_context({_no_sync(site)})"
    return _rewritten(site, _under(site, f"with contextlib.ExitStack() as {name}:", enter))


def _helper(site: Site) -> str:
    helper = f"""
    def gradient_sync(module, enabled):
        return contextlib.nullcontext() if enabled else {MARK}module.no_sync()
    """
    header = f"with gradient_sync({site.model}, {site.sync}):"
    return _rewritten(site, _under(site, header), helper=helper)


def _generator_helper(site: Site) -> str:
    helper = f"""
    @contextlib.contextmanager
    def without_sync(module, wanted):
        if wanted:
            with {MARK}module.no_sync():
                yield
        else:
            yield
    """
    header = f"with without_sync({site.model}, {negated(site)}):"
    return _rewritten(site, _under(site, header), helper=helper)


VARIANTS: list[Callable[[Site], str]] = [
    _conditional,
    _conditional_reversed,
    _variable,
    _variable_replaced,
    _function_chosen,
    _two_branches,
    _always,
    _exit_stack,
    _helper,
    _generator_helper,
]
