"""The local rank of the environment for an option that no launcher passes.

What is passed, and what is so without torchrun, stays as it was.
"""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports

_TITLE = "take the local rank from `LOCAL_RANK`"
_VARIABLE = '"LOCAL_RANK"'
# Keywords under which argparse makes of a default what it makes of a passed text.
_PLAIN = frozenset({None, "default", "dest", "help", "metavar", "required", "type"})


@builder
def default_from_environment(code: Code, option: ir.Node) -> Fix:
    """Takes ``LOCAL_RANK`` for the default of an option of argparse's."""
    require_exact(code)
    assert isinstance(option, ir.Call)
    if any(each.star for each in option.args):
        raise NoFixError(f"`{code.short(option)}` is not all written here")
    given = {each.keyword: each.value for each in option.args}
    imports = Imports(code, option)
    environ = f"{imports.module('os', 'os')}.environ"
    default, required = given.get("default"), given.get("required")
    text, safe = _default(code, default, "type" in given, imports, environ)
    edits = [_put(code, option, default, text)]
    off = isinstance(required, ir.Constant) and not required.value
    if required is not None and not off:
        asked = "" if isinstance(required, ir.Constant) else f"({code.slice(required)}) and "
        asked += f"{_VARIABLE} not in {environ}"
        edits.append(code.edit(required.start, required.end, asked))
    typed = "type" not in given or code.slice(given["type"]) == imports.builtin("int")
    safe = safe and typed and given.keys() <= _PLAIN
    return Fix(_TITLE, Safety.SAFE if safe else Safety.UNSAFE, (*edits, *imports.edits()))


def _default(
    code: Code, old: ir.Expr | None, converted: bool, imports: Imports, environ: str
) -> tuple[str, bool]:
    """The default, and whether it is of the kind that it was, or that is passed.

    Args:
        converted: argparse applies a type to a text, be it passed or the default.
    """
    value = old.value if isinstance(old, ir.Constant) else None
    if old is None or (isinstance(old, ir.Constant) and value is None):
        return f"{environ}.get({_VARIABLE})", converted
    if isinstance(value, str):
        return f"{environ}.get({_VARIABLE}, {code.slice(old)})", True
    return _number(code, old, imports, environ)


def _number(code: Code, old: ir.Expr, imports: Imports, environ: str) -> tuple[str, bool]:
    """The number in the environment, or else ``old``; and whether that is a number, too."""
    convert = imports.builtin("int")
    if isinstance(old, ir.Constant) and type(old.value) is int:
        return f"{convert}({environ}.get({_VARIABLE}, {code.slice(old)}))", True
    there = f"{convert}({environ}[{_VARIABLE}]) if {_VARIABLE} in {environ}"
    return f"{there} else {code.slice(old)}", False


def _put(code: Code, option: ir.Call, old: ir.Expr | None, text: str) -> Edit:
    if old is None:
        return add_argument(code, option, f"default={text}")
    return code.edit(old.start, old.end, text)


@builder
def own_default_from_environment(code: Code, option: ir.Node, default: ir.Expr | None) -> Fix:
    """Takes ``LOCAL_RANK`` for the default of a field, a parameter, a flag or click's option."""
    require_exact(code)
    if default is None:
        raise NoFixError(f"`{code.short(option)}` has no default")
    imports = Imports(code, option)
    text, safe = _number(code, default, imports, f"{imports.module('os', 'os')}.environ")
    edits = (code.edit(default.start, default.end, text), *imports.edits())
    return Fix(_TITLE, Safety.SAFE if safe else Safety.UNSAFE, edits)
