"""Policies and imports of FSDP1 that the migration leaves without a use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Binding, bindings, dropped, qualified
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.checkpoints import LOAD_SHARDED_OPTIMIZER
from fsdplint.knowledge.fsdp import FSDP1_ARGUMENTS, FSDP1_NAMES
from fsdplint.knowledge.lightning_settings import FSDP, NAMES, is_fsdp, kind_of
from fsdplint.knowledge.modules import WRAP
from fsdplint.knowledge.names import FSDP_PACKAGE, canonical
from fsdplint.knowledge.scaling import SHARDED_SCALER
from fsdplint.migrate.calls import FSDP1_WORDS
from fsdplint.migrate.step import Change, Context, Found


def unused(context: Context) -> Iterator[Found]:
    """Yield a change for each unused definition, or if a file has none, for its imports."""
    for code in context.codes(FSDP_PACKAGE, NAMES[FSDP]):
        changes = list(_definitions(context, code))
        yield from changes or _imports(context, code)


def _definitions(context: Context, code: Code) -> Iterator[Change]:
    """Yield the assignments of a policy or another setting to a variable that nothing reads."""
    for node in code.walk("=", *FSDP1_WORDS):
        if not isinstance(node, ir.Assign) or len(node.targets) != 1:
            continue
        if isinstance(code.scope(node), ir.ClassDef) or code.looks_up_variables:
            continue
        target = node.targets[0]
        if not isinstance(target, ir.Name) or not _is_setting(context, code, node.value):
            continue
        top = isinstance(code.parent(node), ir.Module)
        if _is_read(context, code, target.id, node, everywhere=top) or not _is_spare(code, node):
            continue
        try:
            edit = code.delete_lines(*code.extent(node))
        except NoFixError:
            continue
        what = f"remove `{target.id}`, which nothing uses any more"
        yield Change(edit.span, what, (edit,))


def _is_setting(context: Context, code: Code, value: ir.Expr) -> bool:
    """Return whether a value is made of FSDP1's settings alone, so that making it does nothing."""
    if _unpacked(value):
        return True
    nodes = list(ir.walk(value))
    names = [_name(context, code, n) for n in nodes if isinstance(n, (ir.Name, ir.Attribute))]
    calls = [_name(context, code, n.func) for n in nodes if isinstance(n, ir.Call)]
    of_fsdp1 = [name for name in names if name in FSDP1_NAMES or _of_wrap(name)]
    enums = [name for name in names if name.rpartition(".")[0] in FSDP1_NAMES]
    harmless = all(c in FSDP1_NAMES or _of_wrap(c) or c == "functools.partial" for c in calls)
    return bool(of_fsdp1 or enums) and harmless


def _name(context: Context, code: Code, node: ir.Node) -> str:
    """Return the canonical name by the file's imports, those in functions too."""
    return context.name(code, node) or canonical(qualified(code, node) or "")


def _unpacked(value: ir.Expr) -> bool:
    """Return whether a value is a dict of FSDP1's arguments, whatever they are."""
    if isinstance(value, ir.DictDisplay):
        keys = [key.value if isinstance(key, ir.Constant) else None for key, _ in value.items]
    elif isinstance(value, ir.Call) and dotted(value.func) == "dict":
        keys = [each.keyword for each in value.args]
    else:
        return False
    return bool(keys) and all(key in FSDP1_ARGUMENTS for key in keys)


def _of_wrap(name: str) -> bool:
    return name.startswith(f"{WRAP}.")


def _is_spare(code: Code, statement: ir.Stmt) -> bool:
    """Return whether its block keeps another statement."""
    return len(code.block(statement).statements) > 1 and code.alone(statement)


def _is_read(
    context: Context, code: Code, name: str, besides: ir.Node, *, everywhere: bool
) -> bool:
    """Return whether other code than the statement ``besides`` mentions a name.

    Args:
        everywhere: whether other files may import it.
    """
    inside = set(ir.walk(besides))
    for node in ir.walk(code.function(besides) or code.module):
        if node in inside:
            continue
        named = isinstance(node, ir.Name) and node.id == name
        if named or (isinstance(node, ir.Constant) and node.value == name):
            return True
    return everywhere and is_imported(context, code, name)


def _is_written(code: Code, name: str) -> bool:
    """Return whether a name is in the code beside imports, as in an annotation."""
    for found in re.finditer(rf"(?<![.\w]){re.escape(name)}\b", code.text):
        at = found.start()
        if code.in_string(at) or code.comments(code.line_start(at), at):
            continue
        if not any(each.start <= at < each.end for each in code.imports):
            return True
    return False


def is_imported(context: Context, code: Code, name: str) -> bool:
    """Return whether another file may get a name from this one: it imports it, or all of it."""
    project, own = context.program.project, Path(code.path)
    for path in map(Path, context.files - {code.path}):
        imports, folder = project.imports(path), path.parent
        for module, level, member in imports.bindings.values():
            whole = ".".join(filter(None, (module, member)))
            if project.find(whole, level, folder) == own:
                return True
            if member in (name, None) and project.find(module, level, folder) == own:
                return True
        if own in (project.find(*each, folder) for each in imports.stars):
            return True
    return False


def _imports(context: Context, code: Code) -> Iterator[Change]:
    """Yield the removal of one name of each import statement; the others come in later passes."""
    taken: set[ir.Node] = set()
    for binding in bindings(code):
        if binding.statement in taken or not _is_fsdp1(binding):
            continue
        name = binding.name.split(".")[0]
        everywhere = isinstance(code.parent(binding.statement), ir.Module)
        read = _is_read(context, code, name, binding.statement, everywhere=everywhere)
        if read or _is_written(code, name):
            continue
        edit = next(dropped(code, binding), None)
        if edit is not None and _is_spare(code, binding.statement):
            taken.add(binding.statement)
            yield Change(edit.span, f"remove the import of `{binding.name}`", (edit,))


def _is_fsdp1(binding: Binding) -> bool:
    target = canonical(binding.target)
    others = ("functools", "functools.partial", SHARDED_SCALER, LOAD_SHARDED_OPTIMIZER)
    ours = target in FSDP1_NAMES or _of_wrap(target) or target in others
    return ours or is_fsdp(kind_of(target))
