"""Weights drawn as the modules' own classes draw them, right after ``to_empty``."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.execute.elements import composed
from fsdplint.engine.values import ClassValue, FunctionValue, Object, Symbol, resolved
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.modules import CONTAINERS, WITHOUT_RESET

_RESET = "reset_parameters"
_WHOLE = ("init_weights", "initialize_weights", "init_parameters")


@builder
def initialise(code: Code, emptied: ir.Call, model: Object) -> Fix:
    """Calls ``reset_parameters`` of every module, or the model's own method, below ``emptied``."""
    require_exact(code)
    statement = code.statement(emptied)
    receiver = emptied.func.value if isinstance(emptied.func, ir.Attribute) else None
    name = None if receiver is None else dotted(receiver)
    plain = isinstance(statement, (ir.Expression, ir.Assign)) and statement.value is emptied
    if code.in_lambda(emptied):
        raise NoFixError("a lambda has no room for a second call")
    if name is None or not plain:
        raise NoFixError(f"`{code.short(emptied)}` is no statement that another can follow")
    if not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code")
    own = _own_method(model)
    if own is None:
        _check_covered(model)
    lines = _calls(code, name, own) if _recurses(emptied) else _reset(code, name)
    text = "".join(code.indentation(statement) + line + code.newline for line in lines)
    edit = code.insert_lines(code.after(statement), text)
    title = f"call `{name}.{own}`" if own else "call every module's `reset_parameters`"
    return Fix(title, Safety.UNSAFE, (edit,))


def _recurses(emptied: ir.Call) -> bool:
    given = [argument.value for argument in emptied.args if argument.keyword == "recurse"]
    return not any(isinstance(value, ir.Constant) and value.value is False for value in given)


def _calls(code: Code, model: str, own: str | None) -> list[str]:
    if own is not None:
        return [f"{model}.{own}()"]
    names = {node.id for node in ir.walk(code.module) if isinstance(node, ir.Name)}
    module = "module" if "module" not in names else "module_"
    inner = [code.unit + line for line in _reset(code, module)]
    return [f"for {module} in {model}.modules():", *inner]


def _reset(code: Code, module: str) -> list[str]:
    return [f'if hasattr({module}, "{_RESET}"):', f"{code.unit}{module}.{_RESET}()"]


def _own_method(model: Object) -> str | None:
    """A method of the model's class that sets its weights and needs no argument."""
    if not isinstance(model.cls, ClassValue):
        return None
    for name in (_RESET, *_WHOLE):
        found = model.cls.lookup(name)
        if isinstance(found, FunctionValue) and _needs_nothing(found):
            return name
    return None


def _needs_nothing(method: FunctionValue) -> bool:
    _, *others = method.function.parameters or (None,)
    return all(each.default is not None or each.kind in ("*", "**") for each in others if each)


def _check_covered(model: Object) -> None:
    for module in dict.fromkeys(composed(model)):
        for reason in _uncovered(module):
            raise NoFixError(reason)


def _uncovered(module: Object) -> Iterator[str]:
    """Why no ``reset_parameters`` gives a module's own tensors their values."""
    cls = module.cls
    if isinstance(cls, Symbol):
        short = cls.name.rpartition(".")[2]
        if cls.name in WITHOUT_RESET:
            yield f"`{short}` has parameters and no `{_RESET}`"
        elif not cls.name.startswith("torch.nn.") and cls.name not in CONTAINERS:
            yield f"it is not known how `{short}` draws its weights"
    elif isinstance(cls, ClassValue):
        yield from _uncovered_class(module, cls)
    else:
        yield "it is not known how the model's class draws its weights"


def _uncovered_class(module: Object, cls: ClassValue) -> Iterator[str]:
    name = cls.node.name
    if cls.opaque():
        yield f"it is not known how `{name}` draws its weights"
    if cls.lookup(_RESET) is not None:
        return
    for attribute, value in module.attrs.items():
        held = resolved(value)
        made = held.cls if isinstance(held, Object) else None
        if isinstance(made, Symbol) and made.name == "torch.nn.Parameter":
            yield f"`{name}.{attribute}` is a parameter that no `{_RESET}` sets"
    calls = (node for node in ir.walk(cls.node) if isinstance(node, ir.Attribute))
    if any(node.attr in ("register_buffer", "register_parameter") for node in calls):
        yield f"`{name}` registers tensors that no `{_RESET}` sets"
