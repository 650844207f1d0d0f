"""Full state from one file, split into the shards of each rank as it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import may_be_alone
from fsdplint.engine.facts.state_files import PlainLoad
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.gather_state import local_tests, model_name, receiver
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.knowledge.checkpoints import HELPERS

_PARAMETERS = ("state_dict", "strict", "assign")


@builder
def load_state(
    code: Code,
    call: ir.Call,
    model: str,
    optimizer: str | None,
    guards: Sequence[ir.If],
    *,
    rank_zero: bool = False,
    adapted: str = "{}",
    alone: bool = False,
) -> Fix:
    """Replace ``load_state_dict`` by the helper that gives each rank its shards.

    Args:
        guards: the if statements of this function by which only some ranks reach ``call``. The
            load moves below them, since the helper is a collective.
        rank_zero: only some ranks call this function.
        adapted: a format that makes the state to load of the given one.
        alone: the program also runs without a process group, so that nothing can be broadcast.
    """
    kind = "model" if optimizer is None else "optimizer"
    helper = f"set_{kind}_state_dict"
    if rank_zero:
        raise NoFixError(
            f"only some ranks call this function, so `{helper}` would hang here; call it by hand "
            "where every rank runs"
        )
    given = _arguments(code, call)
    imports = Imports(code, call)
    load = imports.name(HELPERS, helper)
    options = imports.name(HELPERS, "StateDictOptions")
    if alone and guards:
        raise NoFixError(
            f"only some ranks reach this load, and `{helper}` cannot give it to the others if the "
            "program runs without a process group; let every rank load by hand"
        )
    settings = "full_state_dict=True" + ", broadcast_from_rank0=True" * (not alone)
    settings += f", strict={given['strict']}" if "strict" in given else ""
    of = model if optimizer is None else f"{model}, {optimizer}"
    form = f"{load}({of}, {{}}, options={options}({settings}))".format
    if guards:
        edits = _below(
            code, call, guards, lambda name: form(adapted.format(name)), given["state_dict"]
        )
    else:
        state = adapted.format(given["state_dict"])
        edits = [code.edit(call.start, call.end, form(state))]
    title = f"load with `{load}`, which gives each rank its shards"
    return Fix(title, Safety.UNSAFE, (*imports.edits(), *edits))


def _arguments(code: Code, call: ir.Call) -> dict[str, str]:
    """Return the texts of the arguments of ``load_state_dict``, by parameter."""
    found = {}
    for index, argument in enumerate(call.args):
        name = argument.keyword or (_PARAMETERS[index] if index < len(_PARAMETERS) else "")
        if argument.star or name not in _PARAMETERS:
            raise NoFixError(
                f"`{code.short(call)}` has arguments that the state dict helpers do not take; "
                "replace it by hand"
            )
        found[name] = code.slice(argument.value)
    return found


def _below(
    code: Code,
    call: ir.Call,
    guards: Sequence[ir.If],
    form: Callable[[str], str],
    given: str,
) -> list[Edit]:
    """Return edits that move the load below the test, in whose body rank 0 reads the file."""
    statement, guard = code.statement(call), min(guards, key=lambda test: test.start)
    last = len(guards) == 1 and guard.body[-1:] == (statement,) and not guard.orelse
    whole = isinstance(statement, ir.Expression) and statement.value is call
    if not (last and whole) or code.is_elif(guard) or not code.alone(statement):
        raise NoFixError(
            "only some ranks reach this load, and its replacement needs all of them; move it out "
            "of the rank test by hand"
        )
    indent, newline = code.indentation(guard), code.newline
    assigned = [
        target.id
        for node in guard.body
        if isinstance(node, ir.Assign)
        for target in node.targets
        if isinstance(target, ir.Name)
    ]
    name = given if given in assigned else fresh(code, call, "state_dict")
    before = code.line_start(guard.start)
    after = code.after(guard)
    edits = [code.insert_lines(before, f"{indent}{name} = {{}}{newline}")]
    if name == given:
        edits.append(code.delete_lines(code.line_start(statement.start), code.after(statement)))
    else:
        edits.append(code.edit(call.start, call.end, f"{name} = {given}"))
    return [*edits, code.insert_lines(after, f"{indent}{form(name)}{newline}")]


def whole_load(program: Program, fact: PlainLoad) -> Fix | Declined:
    """Replace a load by one that gives each rank its shards, if its model has a name there."""
    site = fact.call.site
    target = receiver(site.node)
    if target is None or not isinstance(site.node, ir.Call):
        return Declined("`load_state_dict` is not called as a method here; replace it by hand")
    code = Code.of(program.tree(site.path))
    model = code.slice(target)
    optimizer = None
    if fact.optimizer is not None:
        known = model_name(program, fact.trace, site, fact.module, fact.optimizer)
        if known is None:
            return Declined(
                "the optimizer's model has no known name here; load with "
                "`set_optimizer_state_dict` by hand"
            )
        model, optimizer = known, model
    local = local_tests(code, site, fact.guards)
    outside = len(local) < len(fact.guards)
    alone = may_be_alone(program, site)
    return load_state(code, site.node, model, optimizer, local, rank_zero=outside, alone=alone)
