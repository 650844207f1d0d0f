"""The same weights on every rank before they are sharded."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.move import common_block
from fsdplint.knowledge.words import means_rank


@builder
def seed_after_sharding(code: Code, seed: ir.Call, last_sharding: ir.Node) -> Fix:
    """Builds the model by one seed, and sets each rank's own once it is sharded."""
    require_exact(code)
    statement = code.statement(seed)
    if not isinstance(statement, ir.Expression) or statement.value is not seed:
        raise NoFixError(f"`{code.short(seed)}` is part of another statement")
    _, lifted = common_block(code, seed, last_sharding)
    if not code.alone(statement) or not code.ends_line(lifted):
        raise NoFixError(f"`{code.short(lifted)}` shares its line with other code")
    argument = _ranked(code, seed)
    equal = code.edit(argument.start, argument.end, _without_rank(code, argument) or "0")
    line = code.indentation(lifted) + code.slice(statement) + code.newline
    again = code.insert_lines(code.after(lifted), line)
    title = "seed all ranks alike, and each by its rank once the model is sharded"
    return Fix(title, Safety.UNSAFE, (equal, again))


def _ranked(code: Code, seed: ir.Call) -> ir.Expr:
    """The one argument that the rank is part of."""
    found = [each.value for each in seed.args if means_rank(code.slice(each.value))]
    if len(found) != 1:
        raise NoFixError(f"how the rank gets into `{code.short(seed)}` is not plain to see")
    return found[0]


def _without_rank(code: Code, node: ir.Expr) -> str:
    """A sum without the terms that the rank is part of; empty if none is left."""
    if not means_rank(code.slice(node)):
        return code.slice(node)
    if isinstance(node, ir.BinOp) and node.op == "Add":
        terms = [_without_rank(code, node.left), _without_rank(code, node.right)]
        return " + ".join(term for term in terms if term)
    plain = (ir.Name, ir.Attribute, ir.Subscript, ir.Call)
    product = isinstance(node, ir.BinOp) and node.op == "Multiply"
    if product or isinstance(node, plain):
        return ""
    raise NoFixError(f"`{code.short(node)}` is no sum of a seed and the rank")


@builder
def sync_states(code: Code, shard: ir.Call) -> Fix:
    """Has FSDP1 broadcast what rank 0 loaded."""
    require_exact(code)
    given = {argument.keyword for argument in shard.args}
    if "sync_module_states" in given or any(a.star for a in shard.args) or not shard.args:
        raise NoFixError(f"what `{code.short(shard)}` is given is not plain to see")
    if "device_id" not in given:
        raise NoFixError("FSDP broadcasts only from a GPU, and is given no `device_id`")
    last = shard.args[-1]
    apart = len(shard.args) > 1 and code.starts_line(last)
    separator = f",{code.newline}{code.indentation(last)}" if apart else ", "
    edit = code.edit(last.end, last.end, f"{separator}sync_module_states=True")
    return Fix("broadcast rank 0's weights", Safety.UNSAFE, (edit,))


@builder
def load_everywhere(code: Code, load: ir.Node, test: ir.Node) -> Fix:
    """Takes a load, and what it reads, out of the test that only some ranks pass."""
    require_exact(code)
    statement = code.statement(load)
    branch = code.parent(statement)
    if not isinstance(branch, ir.If) or test not in ir.walk(branch.test):
        raise NoFixError("the test and the load stand apart")
    body = branch.body
    plain = all(isinstance(each, ir.Assign) or each is statement for each in body)
    if branch.orelse or not plain or body[-1] is not statement or code.is_elif(branch):
        raise NoFixError(f"`{code.short(branch.test)}` guards more than the load")
    if not code.alone(body[0]):
        raise NoFixError(f"`{code.short(branch)}` is written on one line")
    inner, outer = code.indentation(body[0]), code.indentation(branch)
    start, end = code.line_start(branch.start), code.line_start(body[0].start)
    edits = [code.edit(start, end, "")]
    for line in code.code_lines(end, code.after(branch)):
        if code.text.startswith(inner, line):
            edits.append(code.edit(line, line + len(inner), outer))
    return Fix("load the weights on every rank", Safety.UNSAFE, tuple(edits))
