"""`FSDP(model, …)` to `fully_shard` of the same modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import COMPOUND
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.fixes.wrapping import WIDTH, wrapped
from fsdplint.knowledge.names import FULLY_SHARD
from fsdplint.migrate.calls import FSDP1_WORDS, fsdp1_calls
from fsdplint.migrate.fsdp2.choices import split
from fsdplint.migrate.fsdp2.filled import passed_on
from fsdplint.migrate.fsdp2.policies import BUFFERS
from fsdplint.migrate.fsdp2.settings import Settings, arguments, settings_of
from fsdplint.migrate.fsdp2.units import Units, helper, loop, units
from fsdplint.migrate.helpers import SHARD_BY_POLICY
from fsdplint.migrate.step import Change, Context, Found, attempt

# Longer arguments go into a dict that all calls share.
_SHORT = 40


def wrappers(context: Context) -> Iterator[Found]:
    """Yield a change for each call of FSDP1's class, the innermost first."""
    for code in context.codes(*FSDP1_WORDS):
        for call in _calls(context, code):
            yield from attempt(code, call, partial(_changed, context, code, call))


def _changed(context: Context, code: Code, call: ir.Call) -> Change:
    return passed_on(code, call) or _sharded(context, code, call)


def _calls(context: Context, code: Code) -> list[ir.Call]:
    """Return the calls that have no other one in them, which has its turn first."""
    calls = list(fsdp1_calls(context, code))
    return [c for c in calls if not any(c is not o and c in code.ancestors(o) for o in calls)]


@dataclass(frozen=True, slots=True)
class _Place:
    """How a call stands in its statement.

    Attributes:
        model: the name of the model.
        first: the line that gives the model its name, "" if it has it already.
        rest: the statement with the model instead of the call, "" if that does nothing.
    """

    model: str
    first: str
    rest: str


def _sharded(context: Context, code: Code, call: ir.Call) -> Change:
    given = module_argument(call)
    if given is None:
        raise NoFixError("the call hides which argument is the module; shard it by hand")
    imports = Imports(code, call)
    shard = imports.name(*FULLY_SHARD.rsplit(".", 1))
    found = units(context, code, call, arguments(code, call).get("auto_wrap_policy"))
    statement = code.statement(call)
    stands_alone = not isinstance(statement, COMPOUND) and code.alone(statement)
    if stands_alone and _runs_once(code, call, statement):
        place = _place(code, call, statement, given.value)
        settings = settings_of(context, code, call, place.model, imports)
        lines = [*filter(None, [place.first]), *settings.before]
        lines += _calls_of(code, call, found, settings, shard)
        lines += [*settings.after, *settings.buffers]
        broken = [part for line in lines for part in _broken(code, statement, line)]
        lines = [*_comments(code, call), *broken, *filter(None, [place.rest])]
        edits = [_replaced(code, statement, lines)]
    else:
        settings = settings_of(context, code, call, code.slice(given.value), imports)
        chosen = next((c for c in code.ancestors(call) if isinstance(c, ir.Conditional)), None)
        if chosen is not None and _needs_lines(found, settings):
            return split(code, chosen)
        settings.differs = settings.differs or (BUFFERS if settings.buffers else "")
        edits = [_in_place(code, call, found, settings, shard)]
    if found.policy and f"def {SHARD_BY_POLICY}(" not in code.text:
        edits.append(_above(code, statement, helper(code, imports, norms=bool(settings.norms))))
    what = f"shard {f'{found.what} of ' if found.what else ''}`{code.short(given.value)}`"
    what += f"{', then the rest,' if found.what else ''} with `fully_shard`"
    span = code.span(call)
    return Change(span, what, tuple(edits), (imports,), settings.differs)


def _in_place(code: Code, call: ir.Call, found: Units, settings: Settings, shard: str) -> Edit:
    """Replace a call that may run any number of times by one that returns its model, too.

    Raises:
        NoFixError: it takes more than that call.
    """
    if _needs_lines(found, settings):
        raise NoFixError("the call is in an expression that may skip or repeat it; move it out")
    if code.comments(call.start, call.end):
        raise NoFixError("a comment is in the call; move the call to a statement of its own")
    keywords = [*_keywords(settings.root), *_keywords(settings.shared)]
    text = f"{shard}({', '.join([settings.model, *keywords])})"
    return code.edit(call.start, call.end, text)


def _needs_lines(found: Units, settings: Settings) -> bool:
    """True if it takes more than one call to shard a model."""
    return bool(found.test or found.policy or settings.before or settings.after)


def _place(code: Code, call: ir.Call, statement: ir.Stmt, module: ir.Expr) -> _Place:
    """Return how the call stands in its statement, which runs it once."""
    text, target = code.slice(module), None
    if isinstance(statement, ir.Assign) and statement.value is call:
        target = dotted(statement.targets[0]) if len(statement.targets) == 1 else None
    if target is not None:
        return _Place(target, "" if text == target else f"{target} = {text}", "")
    if isinstance(statement, ir.Expression) and statement.value is call and dotted(module):
        return _Place(text, "", "")
    model = text if dotted(module) else fresh(code, call, "model")
    before = code.text[statement.start : call.start]
    rest = f"{before}{model}{code.text[call.end : statement.end]}"
    return _Place(model, "" if model == text else f"{model} = {text}", rest)


def _runs_once(code: Code, call: ir.Call, statement: ir.Stmt) -> bool:
    sometimes = (ir.Lambda, ir.Comprehension, ir.Conditional, ir.BoolOp)
    for above in code.ancestors(call):
        if above is statement:
            return True
        if isinstance(above, sometimes):
            return False
    return True


def _comments(code: Code, call: ir.Call) -> list[str]:
    """Return the comments inside the call, which the new lines have no place for."""
    return [text.rstrip() for text in code.comments_in(call.start, call.end)]


def _calls_of(
    code: Code, call: ir.Call, found: Units, settings: Settings, shard: str
) -> Iterator[str]:
    """Yield the lines that shard the units and then the root."""
    shared = [f"{name}={text}" for name, text in settings.shared.items()]
    is_long = sum(map(len, shared)) > _SHORT or any("(" in each for each in shared)
    if shared and is_long and (found.test or found.policy):
        name = fresh(code, call, "fsdp_settings")
        items = [f'"{key}": {text}' for key, text in settings.shared.items()]
        yield f"{name} = {{{', '.join(items)}}}"
        shared = [f"**{name}"]
    norms, blocks, root = (
        "".join(f", {each}" for each in (*_keywords(own), *shared))
        for own in (settings.of_norms, settings.blocks, settings.root)
    )
    for line in _norms(code, call, found, settings, norms):
        yield line.replace("fully_shard(", f"{shard}(")
    for line in loop(code, call, found, settings.model, blocks):
        yield line.replace("fully_shard(", f"{shard}(")
    yield f"{shard}({settings.model}{root})"


def _norms(code: Code, call: ir.Call, found: Units, settings: Settings, own: str) -> Iterator[str]:
    """Yield the lines that shard the batch norms.

    Raises:
        NoFixError: the policy may select some of them, too.
    """
    if not settings.norms:
        return
    if found.test and not found.test.startswith("isinstance("):
        raise NoFixError(
            "FSDP1 keeps batch norms in float32; shard them with a policy of their own by hand"
        )
    module = fresh(code, call, "module")
    yield f"for {module} in {settings.model}.modules():"
    yield f"{code.unit}if isinstance({module}, {settings.norms}):"
    yield f"{code.unit}{code.unit}fully_shard({module}{own})"


def _broken(code: Code, statement: ir.Stmt, line: str) -> list[str]:
    """Break a line that is too long at the place of a statement; text of the user stays."""
    if code.newline in line:
        return [line]
    return wrapped(line, code.unit, WIDTH - len(code.indentation(statement)))


def _keywords(arguments: dict[str, str]) -> list[str]:
    return [f"{name}={text}" for name, text in arguments.items()]


def _replaced(code: Code, statement: ir.Stmt, lines: Sequence[str]) -> Edit:
    indent = code.indentation(statement)
    text = f"{code.newline}{indent}".join(lines)
    return code.edit(statement.start, statement.end, text)


def _above(code: Code, statement: ir.Stmt, lines: str) -> Edit:
    """Insert ``lines`` above the function or class around a statement, or above itself."""
    top = next(each for each in code.module.body if each.end >= statement.end)
    start, _ = code.extent(top)
    return code.insert_lines(start, lines)
