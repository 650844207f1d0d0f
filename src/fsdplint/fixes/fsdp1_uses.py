"""FSDP1's ways with a model made those of FSDP2."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.fixes.policies import construction, meaning, unused
from fsdplint.knowledge.names import FSDP1

_HELPERS = "torch.distributed.checkpoint.state_dict"
_TYPES = "torch.distributed.fsdp.StateDictType."


@builder
def drop_wrapper(code: Code, read: ir.Node, safety: Safety) -> Fix:
    """``model.module`` to ``model``."""
    require_exact(code)
    if not isinstance(read, ir.Attribute):
        raise NoFixError("the attribute is not written out")
    edit = code.edit(read.value.end, read.end, "")
    return Fix(f"drop `.{read.attr}`: the model is no wrapper", safety, (edit,))


@builder
def clip_by_torch(code: Code, call: ir.Node, used: bool, safety: Safety) -> Fix:
    """``model.clip_grad_norm_(1.0)`` to ``clip_grad_norm_(model.parameters(), 1.0)``.

    Args:
        used: something is done with the norm, which is to be a plain tensor as FSDP1's is.
    """
    require_exact(code)
    method = call.func if isinstance(call, ir.Call) else None
    if not isinstance(call, ir.Call) or not isinstance(method, ir.Attribute):
        raise NoFixError("the method is not called by its name")
    imports = Imports(code, call)
    torch = imports.bound("torch")
    function = "clip_grad_norm_"
    if torch is None:
        function = imports.name("torch.nn.utils", function)
    else:
        function = f"{torch}.nn.utils.{function}"
    model = code.slice(method.value)
    separator = ", " if call.args else ""
    start = call.args[0].start if call.args else call.end - 1
    edits = [code.edit(call.start, start, f"{function}({model}.parameters(){separator}")]
    if used:
        edits.append(code.edit(call.end, call.end, ".full_tensor()"))
    title = "clip by torch's function, which knows DTensors"
    return Fix(title, safety, (*edits, *imports.edits()))


@builder
def gather_by_options(code: Code, choice: ir.Node) -> Fix:
    """The body of ``with FSDP.state_dict_type(…)``, each of its states asked for by options."""
    require_exact(code)
    statement = code.statement(choice)
    if not isinstance(statement, ir.With) or not isinstance(choice, ir.Call):
        raise NoFixError("`state_dict_type` is not entered by a `with` of its own")
    if len(statement.items) != 1 or statement.items[0].value is not choice:
        raise NoFixError("`state_dict_type` is not entered by a `with` of its own")
    imports = Imports(code, choice)
    options = _options(code, choice, imports)
    model = dotted(choice.args[0].value) or ""
    edits = list(_states(code, statement, model, options, imports))
    edits += [*_unindented(code, statement), *imports.edits()]
    edits += unused(code, [choice], edits)
    return Fix("ask for the state by options, which FSDP2 knows", Safety.UNSAFE, tuple(edits))


def _options(code: Code, choice: ir.Call, imports: Imports) -> str:
    """What the state dict type says, as an argument; "" where that is the default."""
    given = {argument.keyword or str(i): argument.value for i, argument in enumerate(choice.args)}
    kind = given.get("state_dict_type", given.get("1"))
    name = "" if kind is None else meaning(code, kind)
    if name == _TYPES + "SHARDED_STATE_DICT":
        return ""
    if name != _TYPES + "FULL_STATE_DICT":
        raise NoFixError("which type of state is wanted cannot be seen")
    config = given.get("state_dict_config", given.get("2"))
    made = None if config is None else construction(code, config)
    if config is not None and not isinstance(made, ir.Call):
        raise NoFixError(f"what `{code.short(config)}` says cannot be seen")
    flags = {a.keyword: a.value for a in made.args} if isinstance(made, ir.Call) else {}
    alone = flags.get("rank0_only")
    only = isinstance(alone, ir.Constant) and alone.value is True
    wanted = "full_state_dict=True" + (", cpu_offload=True" if only else "")
    return f", options={imports.name(_HELPERS, 'StateDictOptions')}({wanted})"


def _states(
    code: Code, statement: ir.With, model: str, options: str, imports: Imports
) -> Iterator[Edit]:
    """Each state of the model and its optimizers, and nothing else that is done with the model."""
    known: set[ir.Node] = set()
    for node in (n for each in statement.body for n in ir.walk(each)):
        if not isinstance(node, ir.Call):
            continue
        if dotted(node.func) == f"{model}.state_dict" and not node.args:
            get, of = imports.name(_HELPERS, "get_model_state_dict"), model
        elif meaning(code, node.func) == f"{FSDP1}.optim_state_dict" and len(node.args) == 2:
            get = imports.name(_HELPERS, "get_optimizer_state_dict")
            of = ", ".join(code.slice(argument.value) for argument in node.args)
        else:
            continue
        known.update(ir.walk(node))
        yield code.edit(node.start, node.end, f"{get}({of}{options})")
    others = (n for each in statement.body for n in ir.walk(each) if n not in known)
    if not known or any(dotted(node) == model for node in others):
        raise NoFixError(f"more is done with `{model}` there than asking for its state")


def _unindented(code: Code, statement: ir.With) -> Iterator[Edit]:
    first = statement.body[0]
    header, body = code.line_start(statement.start), code.line_start(first.start)
    inner, outer = code.indentation(first), code.indentation(statement)
    if not code.starts_line(first) or code.comments(statement.start, body):
        raise NoFixError("the body of the `with` cannot be moved out of it")
    yield code.edit(header, body + len(inner) - len(outer), "")
    for at in code.code_lines(code.line_end(body), code.after(statement)):
        if not code.text.startswith(inner, at):
            raise NoFixError("the body of the `with` cannot be moved out of it")
        yield code.edit(at, at + len(inner) - len(outer), "")
