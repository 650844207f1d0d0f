"""Collectives moved out from under the test that keeps ranks away from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import COMPOUND
from fsdplint.files.lexing import indented
from fsdplint.finding import Edit, Fix, Safety, Span
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.conditions import conditions
from fsdplint.fixes.names import clash, dotted, fresh, names_in
from fsdplint.fixes.wrapping import on_one_line

# Calls in code around a collective that every rank can make as well.
_QUIET = frozenset(
    {
        *("items", "values", "keys", "parameters", "named_parameters", "state_dict", "cpu", "to"),
        *("detach", "clone", "float", "half", "bfloat16", "contiguous", "item", "no_grad", "eval"),
        *("inference_mode", "train", "dict", "list", "tuple", "range", "enumerate", "zip", "len"),
        *("state_dict_type", "FullStateDictConfig", "FullOptimStateDictConfig", "append"),
        *("StateDictOptions", "isinstance", "hasattr", "replace", "startswith", "autocast"),
        *("load", "load_state_dict", "FileSystemReader", "load_sharded_optimizer_state_dict"),
        *("optim_state_dict_to_load", "join"),
    }
)

# What a variable for the result is called.
_RESULTS = {
    "forward": "output",
    "full_tensor": "full",
    "state_dict": "state_dict",
    "get_model_state_dict": "state_dict",
    "get_optimizer_state_dict": "optimizer_state",
    "get_state_dict": "state_dict",
    "optim_state_dict": "optimizer_state",
    "full_optim_state_dict": "optimizer_state",
    "clip_grad_norm_": "norm",
}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A call that some ranks do not make.

    Attributes:
        test: what keeps them away, in the function of ``call``.
        telling: the operands of ``test`` that do so.
        others: further such calls behind the same test, which keep their order.
        early: they have left before, rather than taken another arm.
        name: what a variable for the result is called.
        fixed: it cannot move before the code above it; move the call by hand, as a barrier has.
        around: the header of a ``with`` statement for the call, "" for none.
        runs: it runs the model, so that statements which set its mode go along.
    """

    call: ir.Expr
    test: ir.Node
    telling: tuple[ir.Node, ...]
    others: tuple[ir.Node, ...]
    early: bool
    name: str
    fixed: bool
    around: str = ""
    runs: bool = False

    def heads(self, condition: str) -> tuple[str, ...]:
        """The headers of the statements around the call, outermost first."""
        return tuple(filter(None, (f"if {condition}:" * bool(condition), self.around)))


@builder
def call_on_every_rank(code: Code, guarded: Guarded) -> Fix:
    """Moves the call out of the branch, and leaves there what is done with its result."""
    place = code.statement(guarded.test)
    if isinstance(place, ir.Case):
        raise NoFixError(
            f"`{code.short(place)}` is one of several branches; move "
            "the call before the test by hand"
        )
    if not isinstance(place, ir.If) or not _inside(guarded.test, place.test):
        raise NoFixError(f"`{code.short(guarded.test)}` is part of a larger expression")
    edits = _out_of_branch(code, guarded, place)
    title = f"let every rank call `{code.short(_callee(guarded.call))}`"
    return Fix(title, Safety.UNSAFE, tuple(edits))


def result_name(collective: str) -> str:
    """What a variable for the result of a collective is called."""
    return _RESULTS.get(collective.rpartition(".")[2], "result")


def _callee(call: ir.Expr) -> ir.Node:
    return call.func if isinstance(call, ir.Call) else call


def _inside(node: ir.Node | Span, outer: ir.Node | Span) -> bool:
    return outer.start <= node.start and node.end <= outer.end


# Branches


def _out_of_branch(code: Code, guarded: Guarded, place: ir.If) -> list[Edit]:
    """The edits that move the call out of an if statement, by what stands around it there."""
    if code.is_elif(place):
        raise NoFixError(
            f"`{code.short(guarded.test)}` is one of several branches; "
            "move the call before the test by hand"
        )
    arm = _arm(code, guarded, place)
    statement = next((s for s in arm if _inside(guarded.call, s)), None)
    if statement is None:
        raise NoFixError(f"`{code.short(guarded.test)}` is not in the block of the call")
    for decides in conditions(code, place, statement, (place,)):
        raise NoFixError(
            f"`{code.short(decides.test)}` decides after the rank test whether this is "
            "called; test it before, so that all ranks agree"
        )
    condition = _condition(code, guarded, place, arm)
    if isinstance(statement, ir.With) and _holds_more(statement, guarded):
        return _out_of_context(code, guarded, place, arm, statement, condition)
    moved = _moved(code, arm, statement, guarded)
    modes = _modes(code, arm, statement) if guarded.runs else []
    if modes and (moved is not None or len(guarded.others) > 1):
        moved = _with_modes(code, guarded, arm)
    if moved is None:
        earlier = arm[: arm.index(statement)]
        _check_unwritten(code, guarded, _whole(code, guarded.call, statement), earlier)
        return _extracted(code, guarded, statement, place, condition, modes)
    if len(moved) == len(arm) and arm is place.body and not place.orelse:
        return _without_test(code, place, guarded.heads(condition))
    return _lifted(code, guarded, place, arm, moved, condition)


def _holds_more(context: ir.With, guarded: Guarded) -> bool:
    """True if a ``with`` statement chooses the type of a state, and also does something else."""
    calls = [item.value for item in context.items if isinstance(item.value, ir.Call)]
    chooses = all(ir.last_name(call.func) == "state_dict_type" for call in calls)
    plain = len(calls) == len(context.items) and not guarded.around
    return plain and chooses and bool(_loud(context, guarded))


def _out_of_context(
    code: Code,
    guarded: Guarded,
    place: ir.If,
    arm: Sequence[ir.Stmt],
    context: ir.With,
    condition: str,
) -> list[Edit]:
    """Move the call out with the header of its ``with`` statement, and leave the rest without."""
    inner = next(s for s in context.body if _inside(guarded.call, s))
    if any(True for _ in conditions(code, place, inner, (place,))):
        raise NoFixError(f"a test in `{code.short(context)}` decides whether this is called")
    moved = _moved(code, context.body, inner, guarded) or []
    taken: list[ir.Node] = [*moved] or [_whole(code, guarded.call, inner)]
    before = [each for each in context.body if each.start < inner.start and each not in moved]
    prepared = _prepared(code, guarded, arm[: arm.index(context)], (*taken, *context.items))
    _check_unwritten(code, guarded, taken[0], before)
    others = [each for each in arm if each not in (context, *prepared)]
    _check_order(code, guarded, place, [*others, *before], [*prepared, *moved])
    _check_governs_nothing_else(code, context, taken)
    if moved:
        extents = [code.extent(each) for each in moved]
        body = "".join(_reindented(code, start, end, moved[0]) for start, end in extents)
        edits = [code.delete_lines(start, end) for start, end in extents]
    else:
        name = fresh(code, guarded.call, guarded.name)
        body = f"{name} = {code.slice(taken[0])}{code.newline}"
        edits = [code.edit(taken[0].start, taken[0].end, name)]
    header = f"with {', '.join(on_one_line(code, item.value) for item in context.items)}:"
    extents = [code.extent(each) for each in prepared]
    head = "".join(_reindented(code, start, end, context) for start, end in extents)
    text = head + _under(code, (header,), body, "")
    lines = _under(code, guarded.heads(condition), text, code.indentation(place))
    edits += [code.delete_lines(start, end) for start, end in extents]
    kept = [e for e in code.unwrapped(context) if not any(_inside(e.span, d.span) for d in edits)]
    return [code.insert_lines(code.line_start(place.start), lines), *edits, *kept]


def _prepared(
    code: Code, guarded: Guarded, earlier: Sequence[ir.Stmt], uses: Sequence[ir.Node]
) -> list[ir.Stmt]:
    """Return the statements that what moves depends on, in order."""
    reads = {name for each in uses for name in names_in(each).reads}
    found: list[ir.Stmt] = []
    for statement in reversed(earlier):
        if clash(reads, names_in(statement).writes):
            _check_quiet(code, statement, guarded)
            found.insert(0, statement)
            reads |= names_in(statement).reads
    return found


def _check_governs_nothing_else(code: Code, context: ir.With, taken: Sequence[ir.Node]) -> None:
    """Raise where what stays of a block that chooses the type of states uses the model."""
    calls = [item.value for item in context.items if isinstance(item.value, ir.Call)]
    models = {dotted(each.value) for call in calls for each in call.args[:1]} - {None}
    nodes = (node for each in context.body for node in ir.walk(each))
    used = {dotted(node) for node in nodes if not any(_inside(node, each) for each in taken)}
    if models & used:
        raise NoFixError(f"`{code.short(context)}` also governs other code; move it by hand")


def _arm(code: Code, guarded: Guarded, place: ir.If) -> tuple[ir.Stmt, ...]:
    """The statements that only some ranks reach, in order."""
    if guarded.early:
        block = code.block(place).statements
        return block[block.index(place) + 1 :]
    return place.body if any(_inside(guarded.call, s) for s in place.body) else place.orelse


def _condition(code: Code, guarded: Guarded, place: ir.If, arm: Sequence[ir.Stmt]) -> str:
    """What the test asks besides the rank, which goes with the call."""
    if not any(isinstance(node, ir.BoolOp) for node in ir.walk(place.test)):
        return ""
    parts = list(ir.operands(place.test, "and"))
    others = [part for part in parts if part not in guarded.telling]
    mixed = any(isinstance(part, ir.BoolOp) for part in parts if part not in others)
    if arm is not place.body or mixed or len(others) == len(parts):
        raise NoFixError(f"`{code.short(guarded.test)}` tests more than the rank")
    return " and ".join(code.slice(part) for part in others)


# What goes along


def _moved(
    code: Code, arm: Sequence[ir.Stmt], statement: ir.Stmt, guarded: Guarded
) -> list[ir.Stmt] | None:
    """The statement of the call with those that prepare it; None if the call leaves it alone."""
    whole = isinstance(statement, (ir.Assign, ir.AugAssign)) or (
        isinstance(statement, ir.Expression) and statement.value is guarded.call
    )
    if isinstance(statement, COMPOUND):
        _check_quiet(code, statement, guarded)
    elif not whole:
        return None
    moved, reads = [statement], set(names_in(statement).reads)
    for earlier in reversed(arm[: arm.index(statement)]):
        other = any(_inside(call, earlier) for call in guarded.others)
        if other and isinstance(earlier, ir.Assign):
            moved.insert(0, earlier)
            reads |= names_in(earlier).reads
        elif clash(reads, names_in(earlier).writes):
            _check_quiet(code, earlier, guarded)
            moved.insert(0, earlier)
            reads |= names_in(earlier).reads
    return moved


def _modes(code: Code, arm: Sequence[ir.Stmt], statement: ir.Stmt) -> list[ir.Stmt]:
    """Return the statements that set the mode of modules for ``statement``, and set it back."""
    at = arm.index(statement)
    before = {model: each for each in arm[:at] for model in _set_mode(code, each, "eval", "train")}
    inside = (each for each in ir.walk(statement) if isinstance(each, ir.Expression))
    models = {*before, *(model for each in inside for model in _set_mode(code, each, "eval"))}
    following = arm[at + 1 :]
    after = {
        model: each for each in reversed(following) for model in _set_mode(code, each, "train")
    }
    return [*before.values(), *(each for model, each in after.items() if model in models)]


def _set_mode(code: Code, statement: ir.Stmt, *modes: str) -> Iterator[str]:
    """Yield the text of the module whose mode a statement sets, such as ``model.eval()``."""
    call = statement.value if isinstance(statement, ir.Expression) else None
    method = call.func if isinstance(call, ir.Call) and not call.args else None
    if isinstance(method, ir.Attribute) and method.attr in modes:
        yield code.slice(method.value)


def _with_modes(code: Code, guarded: Guarded, arm: Sequence[ir.Stmt]) -> list[ir.Stmt]:
    """Return the statements of all calls with those that set the mode for them, in order."""
    found: list[ir.Stmt] = []
    calls = (guarded.call, *guarded.others)
    for statement in arm:
        if any(_inside(call, statement) for call in calls):
            moved = _moved(code, arm, statement, guarded)
            if moved is None:
                raise NoFixError(
                    f"`{code.short(statement)}` does more than the call, which needs a mode that "
                    "is set before; move the call before the test by hand"
                )
            found += [*moved, *_modes(code, arm, statement)]
    return [each for each in arm if each in found]


def _check_quiet(code: Code, statement: ir.Stmt, guarded: Guarded) -> None:
    """Raises where a statement does more than its variables show."""
    if _loud(statement, guarded):
        raise NoFixError(
            f"`{code.short(statement)}` does more than the collective needs; "
            "move the call before the test by hand"
        )


def _loud(statement: ir.Stmt, guarded: Guarded) -> list[ir.Node]:
    """Return what a statement does beside what its variables show."""
    kinds = (ir.Assign, ir.AugAssign, ir.Expression, ir.For, ir.With, ir.Pass)
    nodes = list(ir.walk(statement))
    own = (guarded.call, *guarded.others)
    calls = [node for node in nodes if isinstance(node, ir.Call) and node not in own]
    return [
        *(node for node in nodes if isinstance(node, _STATEMENTS) and not isinstance(node, kinds)),
        *(call for call in calls if ir.last_name(call.func) not in _QUIET),
    ]


_STATEMENTS = (*COMPOUND, ir.Return, ir.Raise, ir.Delete, ir.Break, ir.Continue, ir.Assign, ir.Pass)


def _check_unwritten(
    code: Code, guarded: Guarded, expression: ir.Node, earlier: Sequence[ir.Stmt]
) -> None:
    written = {name for statement in earlier for name in names_in(statement).writes}
    changed = clash(names_in(expression).reads, written)
    if changed is not None:
        raise NoFixError(
            f"`{changed}` changes between the rank test and the collective; move the call by hand"
        )
    if guarded.fixed and earlier:
        raise NoFixError(
            f"`{code.short(guarded.call)}` cannot move before the "
            "code above it; move the call by hand"
        )


# Edits


def _whole(code: Code, call: ir.Expr, statement: ir.Stmt) -> ir.Expr:
    """The call, or the comprehension that makes it for every element.

    Raises:
        NoFixError: the expression may not be evaluated, or not once.
    """
    found = call
    for node in code.ancestors(call):
        if node is statement:
            return found
        if isinstance(node, ir.Comprehension):
            found = node
        elif isinstance(node, (ir.Lambda, ir.BoolOp, ir.Conditional)):
            raise NoFixError(f"`{code.short(node)}` does not always make the call")
    raise NoFixError(f"`{code.short(call)}` is part of a larger statement")


def _extracted(
    code: Code,
    guarded: Guarded,
    statement: ir.Stmt,
    place: ir.Stmt,
    condition: str,
    modes: Sequence[ir.Stmt],
) -> list[Edit]:
    """``name = call`` above ``place`` with what sets its mode, and the name where the call was."""
    expression = _whole(code, guarded.call, statement)
    if not code.starts_line(place):
        raise NoFixError(
            f"`{code.short(place)}` shares its line with other code; put it on its own line"
        )
    name = fresh(code, guarded.call, guarded.name)
    text = f"{name} = {code.slice(expression)}{code.newline}"
    extents = {each: code.extent(each) for each in modes}
    lines = {each: _reindented(code, *extents[each], each) for each in modes}
    text = "".join(lines[each] for each in modes if each.start < statement.start) + text
    text += "".join(lines[each] for each in modes if each.start > statement.start)
    text = _under(code, guarded.heads(condition), text, code.indentation(place))
    return [
        code.insert_lines(code.line_start(place.start), text),
        code.edit(expression.start, expression.end, name),
        *(code.delete_lines(start, end) for start, end in extents.values()),
    ]


def _lifted(
    code: Code,
    guarded: Guarded,
    place: ir.If,
    arm: Sequence[ir.Stmt],
    moved: Sequence[ir.Stmt],
    condition: str,
) -> list[Edit]:
    """The moved statements above the test, or below the branch whose end they are."""
    staying = [statement for statement in arm if statement not in moved]
    first, last = arm.index(moved[0]), arm.index(moved[-1])
    below = last == len(arm) - 1 and first == len(arm) - len(moved) and not guarded.early
    result_used = any(isinstance(each, ir.Assign) for each in moved)
    if below and not result_used and not place.orelse and staying:
        at = code.after(place)
    else:
        _check_order(code, guarded, place, staying, moved)
        at = code.line_start(place.start)
    indent = code.indentation(place)
    extents = [code.extent(statement) for statement in moved]
    body = "".join(_reindented(code, start, end, moved[0]) for start, end in extents)
    if not code.starts_line(place):
        raise NoFixError(
            f"`{code.short(place)}` shares its line with other code; put it on its own line"
        )
    deletions = [code.delete_lines(start, end) for start, end in extents]
    if not staying:
        deletions = [code.edit(*extents[0], f"{code.indentation(moved[0])}pass{code.newline}")]
    lines = _under(code, guarded.heads(condition), body, indent)
    return [code.insert_lines(at, lines), *deletions]


def _check_order(
    code: Code,
    guarded: Guarded,
    place: ir.If,
    staying: Sequence[ir.Stmt],
    moved: Sequence[ir.Stmt],
) -> None:
    before = [statement for statement in staying if statement.start < moved[-1].start]
    if guarded.fixed and before:
        raise NoFixError(
            f"`{code.short(guarded.call)}` cannot move before the "
            "code above it; move the call by hand"
        )
    for used in (place.test, *before):
        later = (each for each in moved if each.start > used.start)
        written = {name for each in later for name in names_in(each).writes}
        read = clash(written, names_in(used).reads)
        if read is not None:
            raise NoFixError(f"`{read}` is used before the collective changes it")


def _reindented(code: Code, start: int, end: int, statement: ir.Stmt) -> str:
    """The lines without the indentation of their statement; what is in strings stays."""
    old = code.indentation(statement)
    ends = set(code.code_lines(start, end))
    lines = []
    while start < end:
        following = code.line_end(start)
        line = code.text[start:following]
        lines.append(line.removeprefix(old) if start in ends else line)
        start = following
    text = "".join(lines)
    return text if text.endswith(("\n", "\r")) else text + code.newline


def _under(code: Code, heads: Sequence[str], body: str, indent: str) -> str:
    """Return ``body``, which is unindented, below headers that begin at ``indent``."""
    text = ""
    for head in heads:
        text += f"{indent}{head}{code.newline}"
        indent += code.unit
    return text + indented(body, indent)


def _without_test(code: Code, place: ir.If, heads: Sequence[str]) -> list[Edit]:
    """The body alone, or under other headers."""
    colon = code.text.index(":", place.test.end)
    first, last = place.body[0], place.body[-1]
    if first.start < code.line_end(colon):
        if len(heads) > 1:
            raise NoFixError(f"`{code.short(place)}` is on one line; write its body below it")
        return [code.edit(place.start, first.start, "".join(f"{head} " for head in heads))]
    if heads:
        text = _under(code, heads[:-1], heads[-1], code.indentation(place)).lstrip()
        starts = code.code_lines(code.extent(first)[0], code.after(last)) if heads[1:] else ()
        deeper = [code.edit(at, at, code.unit) for at in starts]
        return [code.edit(place.start, colon + 1, text), *deeper]
    remark = code.text[colon + 1 : code.line_end(colon)].strip()
    kept = f"{code.indentation(place)}{remark}{code.newline}" if remark else ""
    return code.unwrapped(place, kept)
