"""Containers that are sharded instead of the modules in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.containers import sharded_containers
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.must.values import Known, Result, always
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import dotted, fresh
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.names import NN
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD207",
    summary="`fully_shard` is called on a container that has no `forward`",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


_BY_HAND = "shard the modules in it by hand"


def reports(program: Program) -> Iterator[Report]:
    for shard, name in sharded_containers(program):
        made = shard.module.site
        yield Report(
            program.span(shard.site),
            f"`{program.text(shard.site.path, shard.call)}` shards a `{name}`, which has no "
            "`forward` to gather parameters for: the call crashes",
            f"a `{name}` cannot be a unit",
            (
                *([program.evidence(made, "created here")] if made is not None else []),
                *program.conditions(shard.site),
            ),
            partial(_fix, program, shard, name),
        )


def _fix(program: Program, shard: Shard, name: str) -> Fix | Declined:
    code = Code.of(program.tree(shard.site.path))
    given = module_argument(shard.call)
    is_such = partial(_is_container, f"{NN}.{name}")
    sure = given is not None and always(
        program, shard.site.path, given.value, code.statement(shard.call), is_such
    )
    return container_loop(code, shard.call, name == "ModuleDict", sure)


def _is_container(name: str, value: Known) -> bool:
    return isinstance(value, Result) and value.name == name


@builder
def container_loop(code: Code, call: ir.Call, keyed: bool, always: bool) -> Fix:
    """Replace ``call`` by a loop that shards each module of its container.

    Args:
        keyed: the container is a dict.
        always: the call never gets another kind of module, whose parts the loop would shard.
    """
    module, statement = module_argument(call), code.statement(call)
    container = None if module is None else dotted(module.value)
    if module is None or container is None:
        raise NoFixError(f"`{code.short(call)}` does not name the container; {_BY_HAND}")
    _check_plain(code, call, statement, container)
    block = fresh(code, call, "block")
    others = [code.slice(each) for each in call.args if each is not module]
    once = (ir.Call, ir.NamedExpr, ir.Yield)
    if any(isinstance(n, once) for a in call.args if a is not module for n in ir.walk(a)):
        raise NoFixError(
            f"the loop would evaluate the arguments of `{code.short(call)}` again for each module; "
            "assign them to variables first"
        )
    head = f"for {block} in {container}{'.values()' if keyed else ''}:"
    inner = f"{code.indentation(statement)}{code.unit}"
    text = f"{head}{code.newline}{inner}{code.slice(call.func)}({', '.join([block, *others])})"
    edit = code.edit(statement.start, statement.end, text)
    safety = Safety.SAFE if always else Safety.UNSAFE
    return Fix(f"shard each module in `{container}`", safety, (edit,))


def _check_plain(code: Code, call: ir.Call, statement: ir.Stmt, container: str) -> None:
    alone = isinstance(statement, ir.Expression) and statement.value is call
    if isinstance(statement, ir.Assign) and statement.value is call:
        alone = [dotted(target) for target in statement.targets] == [container]
    if not alone or not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` uses the result of the call; {_BY_HAND}")
    module = module_argument(call)
    if module is not None and isinstance(module.value, ir.Name) and code.is_rebound(module.value):
        raise NoFixError(f"`{container}` is not always a container; {_BY_HAND}")
