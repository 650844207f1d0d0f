"""One FSDP unit per block instead of one for the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import COMPOUND, STATEMENTS, Block
from fsdplint.files.lexing import NEWLINE
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import MODULE_WRAP_POLICY, WRAP

_POLICY = "auto_wrap_policy"


@builder
def shard_blocks(
    code: Code,
    root: ir.Call,
    containers: Sequence[str],
    generation: Generation,
) -> Fix:
    """Shards each block of ``containers`` before ``root`` shards the rest of the model.

    Args:
        root: the only call that shards the model, ``fully_shard(model, …)`` or ``FSDP(model, …)``.
        containers: attribute paths below the model that hold its repeated blocks.
        generation: FSDP2 puts a loop before ``root``; FSDP1 gives it a wrap policy.
    """
    model, lines, edits = _named_module(code, root)
    paths = [f"{model}.{container}" for container in containers]
    build = _wrap_policy if generation is Generation.FSDP1 else _loops
    added, built = build(code, root, paths)
    lines += added
    before = [_before(code, root, lines)] if lines else []
    blocks = " and ".join(f"`{path}`" for path in paths)
    title = f"shard each block of {blocks}, then the root"
    return Fix(title, Safety.UNSAFE, (*before, *edits, *built))


def module_argument(root: ir.Call) -> ir.Argument | None:
    """The argument of a sharding call that is the module, if the call shows which one it is."""
    named = next((a for a in root.args if a.keyword == "module"), None)
    first = root.args[0] if root.args else None
    return named or (first if first and not first.star and not first.keyword else None)


def _module(code: Code, root: ir.Call) -> ir.Argument:
    module = module_argument(root)
    if module is None:
        raise NoFixError(f"`{code.short(root)}` does not show which argument is the module")
    return module


def _named_module(code: Code, root: ir.Call) -> tuple[str, list[str], list[Edit]]:
    """The module's text, fit to be written again, and what makes it so if it is made in ``root``.

    These are the lines that give it a name first, and the edits that use that in ``root``.
    """
    value = _module(code, root).value
    text = code.slice(value)
    once = (ir.Call, ir.NamedExpr, ir.Yield)
    if not any(isinstance(node, once) for node in ir.walk(value)):
        return text, [], []
    name = fresh(code, root, "model")
    bare = not NEWLINE.search(text) and not isinstance(value, ir.NamedExpr)
    line = f"{name} = {text}" if bare else f"{name} = ({text})"
    return name, [line], [code.edit(value.start, value.end, name)]


def _before(code: Code, root: ir.Call, lines: Sequence[str]) -> Edit:
    """Puts ``lines`` before the statement of ``root``."""
    statement = _simple_statement(code, root)
    indent, newline = code.indentation(statement), code.newline
    start, _ = code.extent(statement)
    return code.insert_lines(start, "".join(indent + line + newline for line in lines))


def _loops(code: Code, root: ir.Call, paths: Sequence[str]) -> tuple[list[str], list[Edit]]:
    _simple_statement(code, root)
    lines, edits, arguments = _hoisted(code, root)
    block = fresh(code, root, "block")
    call = f"{code.slice(root.func)}({', '.join([block, *arguments])})"
    for path in paths:
        lines += f"for {block} in {path}:", f"{code.unit}{call}"
    return lines, edits


def _simple_statement(code: Code, root: ir.Call) -> ir.Stmt:
    statement = code.statement(root)
    if isinstance(statement, COMPOUND):
        raise NoFixError(f"`{code.short(root)}` is in the head of a compound statement")
    sometimes = (ir.Lambda, ir.Comprehension, ir.Conditional, ir.BoolOp)
    for ancestor in code.ancestors(root):
        if isinstance(ancestor, sometimes):
            raise NoFixError(f"`{code.short(root)}` is in an expression that may not run it once")
        if ancestor is statement:
            break
    return statement


def _hoisted(code: Code, root: ir.Call) -> tuple[list[str], list[Edit], list[str]]:
    """Assignments to put first, edits that use them in ``root``, and the arguments for a block.

    An argument that makes something, as ``mesh=init_device_mesh(…)`` does, is made once for all.
    """
    lines, edits, arguments = [], [], []
    for argument in _arguments(code, root):
        text = code.slice(argument)
        if any(isinstance(node, (ir.NamedExpr, ir.Yield)) for node in ir.walk(argument)):
            raise NoFixError(f"`{text}` cannot be evaluated more than once")
        if argument.keyword is not None and _makes(code, argument.value):
            name, value = fresh(code, root, argument.keyword), text.partition("=")[2].strip()
            lines.append(f"{name} = ({value})" if NEWLINE.search(value) else f"{name} = {value}")
            edits.append(code.edit(argument.end - len(value), argument.end, name))
            text = f"{argument.keyword}={name}"
        arguments.append(text)
    return lines, edits, arguments


def _makes(code: Code, value: ir.Node) -> bool:
    """Whether ``value`` calls a function; a class, by its capital, makes a plain setting."""
    if isinstance(value, ir.Lambda):
        return False
    if isinstance(value, ir.Call) and _last_part(code, value.func)[:1].islower():
        return True
    return any(_makes(code, child) for child in ir.children(value))


def _last_part(code: Code, function: ir.Expr) -> str:
    return code.slice(function).rpartition(".")[2]


def _arguments(code: Code, root: ir.Call) -> Iterator[ir.Argument]:
    """What ``root`` passes besides the module."""
    module = _module(code, root)
    return (argument for argument in root.args if argument is not module)


def _wrap_policy(code: Code, root: ir.Call, paths: Sequence[str]) -> tuple[list[str], list[Edit]]:
    imports = Imports(code, root)
    wrap = imports.name(WRAP, MODULE_WRAP_POLICY)
    types = ", ".join(f"type({_first(path)})" for path in paths)
    return [], [_policy_argument(code, root, f"{wrap}({{{types}}})"), *imports.edits()]


def _first(path: str) -> str:
    """The first block of a container; that of a dict is ``….values()``."""
    return f"next(iter({path}))" if path.endswith(")") else f"{path}[0]"


@builder
def use_policy(code: Code, root: ir.Call, policy: ir.Assign) -> Fix:
    """Gives the FSDP1 call ``root`` the wrap policy that ``policy`` assigns to a name."""
    name = code.slice(policy.targets[0])
    if code.block(policy) not in _blocks_around(code, root):
        raise NoFixError(f"`{name}` is not always assigned where the model is sharded")
    edit = _policy_argument(code, root, name)
    return Fix(f"wrap the submodules that `{name}` selects", Safety.UNSAFE, (edit,))


def _blocks_around(code: Code, node: ir.Node) -> list[Block]:
    statements = (node, *code.ancestors(node))
    return [code.block(each) for each in statements if isinstance(each, STATEMENTS)]  # type: ignore[arg-type]  # STATEMENTS are the types of Stmt


def _policy_argument(code: Code, root: ir.Call, policy: str) -> Edit:
    arguments = list(_arguments(code, root))
    if any(argument.star == "**" for argument in arguments):
        raise NoFixError(f"`{code.short(root)}` may get a wrap policy by its `**`")
    text = f"{_POLICY}={policy}"
    given = next((argument for argument in arguments if argument.keyword == _POLICY), None)
    if given is not None:
        return code.edit(given.start, given.end, text)
    return add_argument(code, root, text)


def without_sharding(code: Code, call: ir.Call, module: ir.Expr) -> Edit:
    """Take the sharding call away, with the loop around it if that does nothing else."""
    statement = code.statement(call)
    useless = isinstance(statement, ir.Expression) and statement.value is call
    if isinstance(statement, ir.Assign) and statement.value is call:
        useless = [dotted(target) for target in statement.targets] == [dotted(module)]
    if not useless:
        return code.edit(call.start, call.end, code.slice(module))
    block = code.block(statement)
    if len(block.statements) == 1 and isinstance(block.owner, ir.For) and not block.owner.orelse:
        statement, block = block.owner, code.block(block.owner)
    if len(block.statements) == 1 and not isinstance(block.owner, ir.Module):
        raise NoFixError(f"`{code.short(statement)}` is all that its block does")
    return code.delete_lines(*code.extent(statement))
