"""One FSDP unit per block instead of one for the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.engine.facts.repeated_blocks import Blocks
from fsdplint.engine.frontend.tree import COMPOUND, STATEMENTS, Block
from fsdplint.files.lexing import NEWLINE
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import BLOCK_CLASSES, MODULE_LIST, MODULE_WRAP_POLICY, WRAP

_POLICY = "auto_wrap_policy"
_VARIABLES = ("lists", "names", "blocks")


@builder
def shard_blocks(
    code: Code,
    root: ir.Call,
    blocks: Sequence[Blocks],
    generation: Generation,
) -> Fix:
    """Shard each of ``blocks`` before ``root`` shards the rest of the model.

    Args:
        root: the only call that shards the model, ``fully_shard(model, …)`` or ``FSDP(model, …)``.
        generation: FSDP2 puts a loop before ``root``; FSDP1 gives it a wrap policy.
    """
    model, lines, edits = _named_module(code, root)
    imports = Imports(code, root)
    listed, iterables = _listed(code, root, model, blocks, imports)
    build = _wrap_policy if generation is Generation.FSDP1 else _loops
    added, built = build(code, root, iterables, imports)
    lines += [*listed, *added]
    before = [_before(code, root, lines)] if lines else []
    paths = " and ".join(f"`{_path(model, each)}`" for each in blocks)
    title = f"shard each block of {paths}, then the root"
    return Fix(title, Safety.UNSAFE, (*imports.edits(), *before, *edits, *built))


def _path(model: str, blocks: Blocks) -> str:
    return f"{model}.{blocks.path}" if blocks.path else model


def _listed(
    code: Code, root: ir.Call, model: str, blocks: Sequence[Blocks], imports: Imports
) -> tuple[list[str], list[str]]:
    """Return the lines to put first, and an expression that gives each of ``blocks``.

    A model of transformers names the classes of its blocks, and of embeddings, whose weights may be
    the head's as well. Only blocks are in lists.
    """
    lines: list[str] = []
    iterables: list[str] = []
    taken: list[str] = []
    for each in blocks:
        path = _path(model, each)
        if each.named:
            lists, names, found = (fresh(code, root, name, taken) for name in _VARIABLES)
            taken += lists, names, found
            kind = imports.name(*MODULE_LIST.rsplit(".", 1))
            lines += (
                f"{lists} = [part for part in {path}.modules() if isinstance(part, {kind})]",
                f"{names} = {path}.{BLOCK_CLASSES} or ()",
                f"{found} = [part for each in {lists} for part in each "
                f"if type(part).__name__ in {names}]",
            )
            path = found
        iterables.append(path)
    return lines, iterables


def module_argument(root: ir.Call) -> ir.Argument | None:
    """Return the module argument of a sharding call, None if the call does not show it."""
    named = next((a for a in root.args if a.keyword == "module"), None)
    first = root.args[0] if root.args else None
    return named or (first if first and not first.star and not first.keyword else None)


def _module(code: Code, root: ir.Call) -> ir.Argument:
    module = module_argument(root)
    if module is None:
        raise NoFixError(
            f"`{code.short(root)}` hides which argument is the module; shard the blocks by hand"
        )
    return module


def _named_module(code: Code, root: ir.Call) -> tuple[str, list[str], list[Edit]]:
    """Return text that names the module, the lines to put first, and edits of ``root``.

    A module that is built inside ``root`` is assigned to a variable first.
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
    """Insert ``lines`` before the statement of ``root``."""
    statement = _simple_statement(code, root)
    indent, newline = code.indentation(statement), code.newline
    start, _ = code.extent(statement)
    return code.insert_lines(start, "".join(indent + line + newline for line in lines))


def _loops(
    code: Code, root: ir.Call, iterables: Sequence[str], _imports: Imports
) -> tuple[list[str], list[Edit]]:
    _simple_statement(code, root)
    lines, edits, arguments = _hoisted(code, root)
    block = fresh(code, root, "block")
    call = f"{code.slice(root.func)}({', '.join([block, *arguments])})"
    for blocks in iterables:
        lines += f"for {block} in {blocks}:", f"{code.unit}{call}"
    return lines, edits


def _simple_statement(code: Code, root: ir.Call) -> ir.Stmt:
    statement = code.statement(root)
    if isinstance(statement, COMPOUND):
        raise NoFixError(
            f"`{code.short(root)}` is in the header of a compound statement; move the call to a "
            "separate statement"
        )
    sometimes = (ir.Lambda, ir.Comprehension, ir.Conditional, ir.BoolOp)
    for ancestor in code.ancestors(root):
        if isinstance(ancestor, sometimes):
            raise NoFixError(
                f"`{code.short(root)}` is in an expression that may skip or repeat it; move the "
                "call to a separate statement"
            )
        if ancestor is statement:
            break
    return statement


def _hoisted(code: Code, root: ir.Call) -> tuple[list[str], list[Edit], list[str]]:
    """Return the assignments to put first, the edits of ``root``, and the arguments for a block.

    An argument that builds an object, e.g. ``mesh=init_device_mesh(…)``, is evaluated once and
    shared by all calls.
    """
    lines, edits, arguments = [], [], []
    for argument in _arguments(code, root):
        text = code.slice(argument)
        if any(isinstance(node, (ir.NamedExpr, ir.Yield)) for node in ir.walk(argument)):
            raise NoFixError(
                f"`{text}` cannot be repeated for each block; assign it to a variable first"
            )
        if argument.keyword is not None and _makes(code, argument.value):
            name, value = fresh(code, root, argument.keyword), text.partition("=")[2].strip()
            lines.append(f"{name} = ({value})" if NEWLINE.search(value) else f"{name} = {value}")
            edits.append(code.edit(argument.end - len(value), argument.end, name))
            text = f"{argument.keyword}={name}"
        arguments.append(text)
    return lines, edits, arguments


def _makes(code: Code, value: ir.Node) -> bool:
    """True if ``value`` calls a function; a class, known by its capital, makes a setting."""
    if isinstance(value, ir.Lambda):
        return False
    if isinstance(value, ir.Call) and _last_part(code, value.func)[:1].islower():
        return True
    return any(_makes(code, child) for child in ir.children(value))


def _last_part(code: Code, function: ir.Expr) -> str:
    return code.slice(function).rpartition(".")[2]


def _arguments(code: Code, root: ir.Call) -> Iterator[ir.Argument]:
    """Yield the arguments of ``root`` except the module."""
    module = _module(code, root)
    return (argument for argument in root.args if argument is not module)


def _wrap_policy(
    code: Code, root: ir.Call, iterables: Sequence[str], imports: Imports
) -> tuple[list[str], list[Edit]]:
    wrap = imports.name(WRAP, MODULE_WRAP_POLICY)
    types = ", ".join(map(_types, iterables))
    return [], [_policy_argument(code, root, f"{wrap}({{{types}}})")]


def _types(iterable: str) -> str:
    """Return the items of a set display that are the classes of blocks.

    Those of a list may differ or be none; the first of a container shows the class of all.
    """
    if iterable.isidentifier():
        return f"*map(type, {iterable})"
    return f"type(next(iter({iterable})))" if iterable.endswith(")") else f"type({iterable}[0])"


@builder
def use_policy(code: Code, root: ir.Call, policy: ir.Assign) -> Fix:
    """Pass the wrap policy that ``policy`` assigns to a name to the FSDP1 call ``root``."""
    name = code.slice(policy.targets[0])
    if code.block(policy) not in _blocks_around(code, root):
        raise NoFixError(
            f"`{name}` may be unassigned at the FSDP call; pass it as `{_POLICY}` by hand"
        )
    edit = _policy_argument(code, root, name)
    return Fix(f"pass `{name}` as `{_POLICY}`", Safety.UNSAFE, (edit,))


def _blocks_around(code: Code, node: ir.Node) -> list[Block]:
    statements = (node, *code.ancestors(node))
    return [code.block(each) for each in statements if isinstance(each, STATEMENTS)]  # type: ignore[arg-type]  # STATEMENTS are the types of Stmt


def _policy_argument(code: Code, root: ir.Call, policy: str) -> Edit:
    arguments = list(_arguments(code, root))
    if any(argument.star == "**" for argument in arguments):
        raise NoFixError(
            f"`{code.short(root)}` may get `{_POLICY}` from its `**`; add it there by hand"
        )
    text = f"{_POLICY}={policy}"
    given = next((argument for argument in arguments if argument.keyword == _POLICY), None)
    if given is not None:
        return code.edit(given.start, given.end, text)
    return add_argument(code, root, text)


def without_sharding(code: Code, call: ir.Call, module: ir.Expr) -> Edit:
    """Remove the sharding call, and the loop around it if that does nothing else."""
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
        raise NoFixError(
            f"`{code.short(statement)}` is the only statement of its block; remove the block by "
            "hand"
        )
    return code.delete_lines(*code.extent(statement))
