"""Files that a program opens to write them, which all ranks would write at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import PlainWrite
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import add_argument, argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.files import OPENS, OPENS_LOG, WRITES_FOLDER
from fsdplint.migrate.single.rank_zero import is_guarded, rank_test, start
from fsdplint.migrate.step import Change, Context, Found, attempt

_WORDS = ("open(", "FileHandler", "basicConfig", "SummaryWriter")
_WHAT = "write this file on rank 0 only; other ranks write to the null device"
_LOGS = "log to this folder on rank 0 only; other ranks log to temporary folders"
_BY_HAND = "all ranks write this file; open it on rank 0 only by hand"


def files(context: Context) -> Iterator[Found]:
    """Yield a change for each place that opens a file or a log to write it."""
    if start(context) is None:
        return
    states = {w.site.node for trace in context.program.traces for w in trace.of(PlainWrite)}
    for code in context.codes(*_WORDS):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and not is_guarded(code, node):
                yield from attempt(code, node, partial(_opened, context, code, node, states))


def _opened(context: Context, code: Code, call: ir.Call, states: Set[ir.Node]) -> Change | None:
    name = context.name(code, call.func) or _base(context, code, call) or code.slice(call.func)
    if name in WRITES_FOLDER:
        return _logged(context, code, call, WRITES_FOLDER[name])
    place = (0, "file") if name in OPENS and _writes(code, call, states) else OPENS_LOG.get(name)
    given = None if place is None else argument_of(call, *place)
    if given is None or code.slice(given.value).endswith("devnull"):
        return None
    if given.star:
        raise NoFixError(_BY_HAND)
    imports = Imports(code, call)
    other = f"{imports.module('os', 'os')}.devnull"
    edit = _on_one(context, code, given.value, other, imports)
    return Change(code.span(call), _WHAT, (edit,), (imports,))


def _base(context: Context, code: Code, call: ir.Call) -> str:
    """Return the class whose constructor ``super().__init__`` runs, if it writes to a folder."""
    behind = call.func.value if isinstance(call.func, ir.Attribute) else None
    if not isinstance(behind, ir.Call) or code.slice(behind.func) != "super":
        return ""
    owner = next((each for each in code.ancestors(call) if isinstance(each, ir.ClassDef)), None)
    bases = [context.name(code, each) for each in owner.bases] if owner is not None else []
    return next((each for each in bases if each in WRITES_FOLDER), "")


def _writes(code: Code, call: ir.Call, states: Set[ir.Node]) -> bool:
    """True for a call that opens a file to write it, unless another step guards the writing."""
    given = argument_of(call, 1, "mode")
    mode = given.value.value if given and isinstance(given.value, ir.Constant) else ""
    if not isinstance(mode, str) or not set("wax") & set(mode):
        return False
    if set("x+") & set(mode):
        raise NoFixError(_BY_HAND)
    statement = code.statement(call)
    return states.isdisjoint(ir.walk(statement))


def _logged(context: Context, code: Code, call: ir.Call, keyword: str) -> Change | None:
    imports = Imports(code, call)
    other = f"{imports.module('tempfile', 'tempfile')}.mkdtemp()"
    given = argument_of(call, 0, keyword)
    if given is not None and code.slice(given.value).endswith(other):
        return None
    if any(each.star for each in call.args):
        raise NoFixError("all ranks log to this folder; pass another one on other ranks by hand")
    if given is None:
        test = rank_test(context, code, call, imports)
        edit = add_argument(code, call, f"{keyword}=None if {test} else {other}")
    else:
        edit = _on_one(context, code, given.value, other, imports)
    return Change(code.span(call), _LOGS, (edit,), (imports,))


def _on_one(context: Context, code: Code, path: ir.Expr, other: str, imports: Imports) -> Edit:
    """Return the edit that has ranks but the first use ``other`` instead of ``path``."""
    text = code.slice(path)
    text = f"({text})" if isinstance(path, (ir.Conditional, ir.Lambda)) else text
    test = rank_test(context, code, path, imports)
    return code.edit(path.start, path.end, f"{text} if {test} else {other}")
