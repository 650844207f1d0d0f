"""The policy of some sharding calls given to another."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import clash, names_in, written_between

_KEYWORD = "mp_policy"


@builder
def same_policy(code: Code, source: ir.Call, targets: Sequence[ir.Call]) -> Fix:
    """Gives each of ``targets`` the policy that ``source`` is given, in the same function."""
    require_exact(code)
    given = [a.value for a in source.args if a.keyword == _KEYWORD]
    if len(given) != 1:
        raise NoFixError(f"`{code.short(source)}` does not write its policy out")
    edits = [_added(code, source, given[0], target) for target in dict.fromkeys(targets)]
    return Fix("give both the same `mp_policy`", Safety.UNSAFE, tuple(edits))


def _added(code: Code, source: ir.Call, policy: ir.Expr, target: ir.Call) -> Edit:
    if code.function(source) is not code.function(target):
        raise NoFixError("the two calls stand in different functions")
    if not target.args or any(a.keyword == _KEYWORD or a.star for a in target.args):
        raise NoFixError("each call is given a policy of its own")
    start, end = sorted((source.start, target.start))
    reads = names_in(policy).reads
    if clash(reads, written_between(code, source, start, end)) or _is_late(code, reads, target):
        raise NoFixError(f"`{code.short(policy)}` is not the same where the other call stands")
    last = target.args[-1]
    separator = ", "
    if code.breaks(target.func.end, last.start):
        indent = code.line(last.start)
        separator = "," + code.newline + indent[: len(indent) - len(indent.lstrip())]
    return code.edit(last.end, last.end, f"{separator}{_KEYWORD}={code.slice(policy)}")


def _is_late(code: Code, reads: set[str], target: ir.Call) -> bool:
    """Whether the function assigns one of the names only behind ``target``, or loops over it."""
    after = written_between(code, target, target.end, len(code.text))
    loops = [n for n in code.ancestors(target) if isinstance(n, (ir.For, ir.Comprehension))]
    bound = {path for loop in loops for path in names_in(loop).writes}
    return clash(reads, after | bound) is not None
