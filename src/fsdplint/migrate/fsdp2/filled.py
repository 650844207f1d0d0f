"""Settings of `FSDP(model, **settings)` in a dict that gets keys after it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import clash, dotted, written_between
from fsdplint.migrate.calls import are_alternatives
from fsdplint.migrate.step import Change

# Arguments for which None is as good as none.
_MAY_BE_NONE = frozenset(
    {
        "auto_wrap_policy",
        "backward_prefetch",
        "cpu_offload",
        "device_mesh",
        "forward_prefetch",
        "limit_all_gathers",
        "mixed_precision",
        "param_init_fn",
        "sharding_strategy",
        "sync_module_states",
        "use_orig_params",
    }
)


def items(made: ir.Expr) -> Mapping[str, ir.Expr] | None:
    """Return the items of a dict that is written out, None for any other expression."""
    if isinstance(made, ir.DictDisplay):
        keys = [key.value if isinstance(key, ir.Constant) else None for key, _ in made.items]
        if all(isinstance(key, str) for key in keys):
            return {str(key): item for key, (_, item) in zip(keys, made.items, strict=True)}
    is_dict = isinstance(made, ir.Call) and dotted(made.func) == "dict"
    if isinstance(made, ir.Call) and is_dict and all(each.keyword for each in made.args):
        return {str(each.keyword): each.value for each in made.args}
    return None


@dataclass(frozen=True, slots=True)
class _Store:
    """A statement ``settings["key"] = value``."""

    statement: ir.Assign
    key: str
    value: ir.Expr


@dataclass(frozen=True, slots=True)
class _Filled:
    """A dict that is made, gets keys, and is unpacked in calls, and nothing else.

    Attributes:
        made: the assignment of the dict.
        base: the keys that it has from the start.
    """

    name: str
    made: ir.Assign
    base: Mapping[str, ir.Expr]
    stores: Sequence[_Store]
    calls: Sequence[ir.Call]


def passed_on(code: Code, call: ir.Call) -> Change | None:
    """Return a change that passes the keys which a dict of ``call`` gets in the calls themselves.

    None if no dict that it unpacks gets any.

    Raises:
        NoFixError: it is not known which calls get a key.
    """
    for given in call.args:
        if given.star == "**" and isinstance(given.value, ir.Name):
            filled = _filled(code, given.value)
            if filled is not None:
                return _change(code, filled)
    return None


def _filled(code: Code, name: ir.Name) -> _Filled | None:
    scope = code.function(name) or code.module
    uses = [n for n in ir.walk(scope) if isinstance(n, ir.Name) and n.id == name.id]
    stores = [store for use in uses if (store := _store(code, use)) is not None]
    if not stores:
        return None
    assigns = [p for use in uses if isinstance(p := code.parent(use), ir.Assign)]
    calls = [call for use in uses if (call := _unpacking(code, use)) is not None]
    base = items(assigns[0].value) if len(assigns) == 1 else None
    if base is None or len(stores) + len(calls) + 1 != len(uses) or name.id in code.shared:
        raise NoFixError(
            f"`{name.id}` is used for more than the arguments of `FSDP`; write them out, then "
            "migrate again"
        )
    made = assigns[0]
    loops = {each for each in code.ancestors(made) if isinstance(each, (ir.For, ir.While))}
    for node in (*(store.statement for store in stores), *calls):
        for each in code.ancestors(node):
            if isinstance(each, (ir.For, ir.While)) and each not in loops:
                raise NoFixError(f"a loop fills or uses `{name.id}`; write the arguments out")
    return _Filled(name.id, made, base, sorted(stores, key=lambda s: s.statement.start), calls)


def _store(code: Code, use: ir.Name) -> _Store | None:
    item = code.parent(use)
    statement = code.parent(item)
    if not isinstance(item, ir.Subscript) or not isinstance(statement, ir.Assign):
        return None
    key = item.index.value if isinstance(item.index, ir.Constant) else None
    if statement.targets != (item,) or item.value is not use or not isinstance(key, str):
        return None
    return _Store(statement, key, statement.value)


def _unpacking(code: Code, use: ir.Name) -> ir.Call | None:
    given = code.parent(use)
    call = code.parent(given)
    is_unpacked = isinstance(given, ir.Argument) and given.star == "**"
    return call if is_unpacked and isinstance(call, ir.Call) else None


def _change(code: Code, filled: _Filled) -> Change:
    edits: list[Edit] = []
    for call in filled.calls:
        texts = _keywords(code, filled, call)
        if texts:
            edits.append(add_argument(code, call, ", ".join(f"{k}={t}" for k, t in texts.items())))
    edits += _removed(code, [store.statement for store in filled.stores])
    keys = ", ".join(f"`{key}`" for key in dict.fromkeys(store.key for store in filled.stores))
    what = f"pass {keys} of `{filled.name}` in the calls themselves"
    span = code.span(filled.made)
    return Change(span, what, tuple(edits))


def _keywords(code: Code, filled: _Filled, call: ir.Call) -> dict[str, str]:
    """Return the source of each argument that the stores before a call give it."""
    base = {key: code.slice(value) for key, value in filled.base.items()}
    found: dict[str, str] = {}
    done: set[ir.If] = set()
    for store in filled.stores:
        branch = _reaches(code, store.statement, call)
        if branch is False or branch in done:
            continue
        if isinstance(branch, ir.If):
            done.add(branch)
            found |= _chosen(code, filled, branch, base | found)
            _check_unchanged(code, filled, branch, call)
        else:
            found[store.key] = code.slice(store.value)
            _check_unchanged(code, filled, store.statement, call)
    return found


def _reaches(code: Code, statement: ir.Stmt, call: ir.Call) -> ir.If | bool:
    """Return whether a statement runs before a call, or the branch on which that depends."""
    around = {call, *code.ancestors(call)}
    block = code.block(statement)
    if statement.start > call.start:
        return False
    if any(each in around for each in block.statements):
        return True
    owner = block.owner
    if isinstance(owner, ir.If) and owner not in around and not code.is_elif(owner):
        nested = any(isinstance(each, ir.If) for each in (*owner.body, *owner.orelse))
        if not nested and any(each in around for each in code.block(owner).statements):
            return owner
    if are_alternatives(code, statement, call):
        return False
    raise NoFixError(
        f"`{code.short(statement)}` may set an argument of `{code.short(call)}`; pass it in the "
        "call, then migrate again"
    )


def _chosen(code: Code, filled: _Filled, branch: ir.If, old: dict[str, str]) -> dict[str, str]:
    """Return what a branch makes of arguments that had the source ``old``."""
    inside = {store.statement: store for store in filled.stores}
    arms = [
        {inside[each].key: code.slice(inside[each].value) for each in arm if each in inside}
        for arm in (branch.body, branch.orelse)
    ]
    test, found = code.slice(branch.test), {}
    for key in dict.fromkeys((*arms[0], *arms[1])):
        yes, no = (arm.get(key, old.get(key, "None")) for arm in arms)
        if "None" in (yes, no) and key not in _MAY_BE_NONE:
            raise NoFixError(f"only `{test}` gives `{key}`; pass it in each case by hand")
        if (yes, no) in (("True", "False"), ("True", "None")):
            found[key] = test
        else:
            found[key] = f"{_grouped(yes)} if {test} else {_grouped(no)}"
    return found


def _grouped(text: str) -> str:
    return f"({text})" if " if " in text or text.startswith("lambda") else text


def _check_unchanged(code: Code, filled: _Filled, statement: ir.Stmt, call: ir.Call) -> None:
    """Raise `NoFixError` if a name in a statement may have another value at a call."""
    paths = (path for node in ir.walk(statement) if (path := dotted(node)) is not None)
    needed = [path for path in paths if path != filled.name]
    name = clash(needed, written_between(code, call, statement.end, call.start))
    if name is not None:
        raise NoFixError(
            f"`{name}` changes after `{code.short(statement)}`; pass the argument in the call, "
            "then migrate again"
        )


def _removed(code: Code, statements: Sequence[ir.Stmt]) -> Iterator[Edit]:
    """Delete statements, and branches that have no other ones; their comments stay."""
    gone: dict[ir.Stmt, None] = {}
    for statement in statements:
        owner = code.block(statement).owner
        whole = isinstance(owner, ir.If) and not code.is_elif(owner)
        if isinstance(owner, ir.If) and whole:
            whole = all(each in statements for each in (*owner.body, *owner.orelse))
        gone[owner if isinstance(owner, ir.If) and whole else statement] = None
    for each in gone:
        if not code.alone(each):
            raise NoFixError(f"`{code.short(each)}` shares its line; put it on a line of its own")
        start, end = code.line_start(each.start), code.after(each)
        comments = [code.indentation(each) + c.rstrip() for c in code.comments_in(start, end)]
        if all(other in gone for other in code.block(each).statements):
            yield code.edit(each.start, each.end, "pass")
        elif comments:
            yield code.edit(start, end, "".join(f"{line}{code.newline}" for line in comments))
        else:
            yield code.delete_lines(start, end)
