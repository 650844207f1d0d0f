"""Places that make an `FSDPStrategy`, or choose it by its word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import COMPOUND
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.fixes.wrapping import WIDTH, wrapped
from fsdplint.knowledge.frameworks import STRATEGY_NAMES
from fsdplint.knowledge.lightning_settings import (
    DATA_SIZE,
    FSDP,
    NAMES,
    OF_BOTH,
    PARALLEL_STRATEGY,
    SAVES_SHARDS,
    TENSOR_SIZE,
    is_fsdp,
    kind_of,
    package_of,
)
from fsdplint.migrate.calls import definition, strategy_calls
from fsdplint.migrate.fsdp2.lightning.new_strategy import NewStrategy, check_releases
from fsdplint.migrate.fsdp2.lightning.owners import Owner, owners, precision, world_size
from fsdplint.migrate.fsdp2.settings import arguments
from fsdplint.migrate.step import Change, Context, Found, attempt

_WORDS = {name: {"cpu_offload"} if "offload" in name else set() for name in STRATEGY_NAMES}


@dataclass(frozen=True, slots=True)
class Use:
    """An expression that makes or names a strategy for FSDP1.

    Attributes:
        cls: the name of the strategy's class, or of the owner that takes the word.
        owner: the trainer or `Fabric` that takes it, None if that does not show.
    """

    code: Code
    node: ir.Call | ir.Constant
    cls: str
    of_trainer: bool
    owner: Owner | None


def strategies(context: Context) -> Iterator[Found]:
    """Yield a change for each place that chooses FSDP1, or the reason why it stays."""
    for use in _uses(context):
        yield from attempt(use.code, use.node, partial(_changed, context, use))
    yield from _mentions(context)


def _uses(context: Context) -> Iterator[Use]:
    seen: set[ir.Node] = set()
    for of_trainer in (True, False):
        for owner in owners(context, of_trainer=of_trainer):
            given = owner.get("strategy")
            for value in _values(owner.code, given) if given is not None else ():
                word = value.value if isinstance(value, ir.Constant) else None
                if word in STRATEGY_NAMES and isinstance(value, ir.Constant):
                    yield Use(owner.code, value, owner.cls, of_trainer, owner)
                cls = context.name(owner.code, value.func) if isinstance(value, ir.Call) else ""
                if isinstance(value, ir.Call) and is_fsdp(kind_of(cls)):
                    seen.add(value)
                    yield Use(owner.code, value, cls, of_trainer, owner)
    for code in context.codes(NAMES[FSDP]):
        for call in strategy_calls(context, code):
            cls = context.name(code, call.func)
            if call not in seen:
                yield Use(code, call, cls, kind_of(cls) == FSDP, None)


def _values(code: Code, value: ir.Expr) -> Iterator[ir.Expr]:
    """Yield what a value may be, as far as its text and the only assignment of it say."""
    if isinstance(value, ir.Conditional):
        yield from _values(code, value.body)
        yield from _values(code, value.orelse)
    elif isinstance(value, ir.Name):
        made = definition(code, value)
        if made is not value:
            yield from _values(code, made)
    else:
        yield value


def _mentions(context: Context) -> Iterator[Found]:
    """Yield a change for each test for the strategy's class, and each other use of the class."""
    for code in context.codes(NAMES[FSDP]):
        for node in code.walk(NAMES[FSDP]):
            if isinstance(node, (ir.Name, ir.Attribute)):
                cls, parent = context.name(code, node), code.parent(node)
                called = isinstance(parent, ir.Call) and parent.func is node
                if is_fsdp(kind_of(cls)) and not called:
                    yield from attempt(code, node, partial(_renamed, context, code, node, cls))


def _renamed(context: Context, code: Code, node: ir.Expr, cls: str) -> Change:
    """Replace the class in a type test or an annotation.

    Raises:
        NoFixError: it may be called or derived from there.
    """
    above = code.parent(node)
    while isinstance(above, (ir.Collection, ir.Argument, ir.BinOp)):
        above = code.parent(above)
    tests = isinstance(above, ir.Call) and context.name(code, above.func) == "isinstance"
    if not tests and not isinstance(above, (ir.Parameter, ir.Function, ir.Declare)):
        raise NoFixError(
            f"this may make or change the strategy; write it by hand with `{PARALLEL_STRATEGY}`"
        )
    imports = Imports(code, node)
    name = imports.name(f"{package_of(cls)}.strategies", PARALLEL_STRATEGY)
    what = f"replace `{NAMES[FSDP]}` by `{PARALLEL_STRATEGY}`"
    edit = code.edit(node.start, node.end, name)
    return Change(code.span(node), what, (edit,), (imports,))


def _changed(context: Context, use: Use) -> Change:
    check_releases(context)
    owner = use.owner or _owner(context, use)
    owner.check()
    given = _arguments(use)
    imports = Imports(use.code, use.node)
    word, of_trainer = precision(context, owner), use.of_trainer
    new = NewStrategy(context, use.code, given, word, owner.accumulates, of_trainer)
    made = new.in_modules() if of_trainer else new.in_function(use.code, use.node)
    name = imports.name(f"{package_of(use.cls)}.strategies", PARALLEL_STRATEGY)
    size = world_size(context, owner, use.node, imports)
    written = [*made.first, f"{DATA_SIZE}={size}", f"{TENSOR_SIZE}=1"]
    if new.states == "full":
        written.append(f"{SAVES_SHARDS}=False")
    written += [f"{each}={use.code.slice(given[each])}" for each in OF_BOTH if each in given]
    edits = (*made.edits, *_replaced(use.code, use.node, name, written))
    span = use.code.span(use.node)
    return Change(span, made.what, edits, (imports, *made.imports), made.differs)


def _owner(context: Context, use: Use) -> Owner:
    """Return the owner that surely takes a strategy, or one of several that are alike.

    Raises:
        NoFixError: there is none.
    """
    found = list(owners(context, of_trainer=use.of_trainer))
    if not found:
        raise NoFixError(
            "no call passes it as `strategy`; pass it to a `Trainer` or `Fabric` in this program"
        )
    names = ("devices", "num_nodes", "precision")
    kinds = {
        tuple(each.code.slice(v) if (v := each.get(name)) else "" for name in names)
        for each in found
    }
    if len(kinds) > 1:
        raise NoFixError(
            "several calls may take it, with other devices or precisions; pass it to one of them"
        )
    return found[0]


def _arguments(use: Use) -> Mapping[str, ir.Expr]:
    """Return the arguments of a strategy by name.

    Raises:
        NoFixError: they are not all written out.
    """
    if isinstance(use.node, ir.Constant):
        return {name: ir.Constant(0, 0, True) for name in _WORDS[str(use.node.value)]}
    if any(each.keyword is None and not each.star for each in use.node.args):
        raise NoFixError("an argument has no keyword; write all of them as keywords")
    return arguments(use.code, use.node)


def _replaced(code: Code, node: ir.Expr, name: str, written: list[str]) -> Iterator[Edit]:
    """Yield the edits that make the new strategy, with the comments of the old one above it."""
    indent = code.indentation(code.statement(node))
    comments = code.comments_in(node.start, node.end)
    if comments:
        text = "".join(f"{indent}{each}{code.newline}" for each in comments)
        yield code.insert_lines(code.extent(code.statement(node))[0], text)
    text = f"{name}({', '.join(written)})"
    line, statement = code.line(node.start), code.statement(node)
    own = line[: len(line) - len(line.lstrip())]
    before = node.start - code.line_start(node.start)
    rest = len(line) - before - len(code.slice(node).splitlines()[0])
    room = WIDTH - before - rest
    inside = isinstance(code.parent(node), ir.Argument) and not code.starts_line(code.parent(node))
    simple = not isinstance(statement, COMPOUND) and code.alone(statement)
    if len(text) > room and inside and simple:
        # The call around it is on one line, which would be broken in its middle.
        variable = fresh(code, node, "strategy")
        lines = wrapped(f"{variable} = {text}", code.unit, WIDTH - len(indent))
        above = "".join(f"{indent}{each}{code.newline}" for each in lines)
        yield code.insert_lines(code.line_start(statement.start), above)
        text = variable
    else:
        text = f"{code.newline}{own}".join(wrapped(text, code.unit, WIDTH - before))
    yield code.edit(node.start, node.end, text)
