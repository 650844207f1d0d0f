"""Arguments of `init_process_group` that it takes."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports

EVERY_DEVICE = "cpu:gloo,cuda:nccl"


@builder
def as_timedelta(code: Code, timeout: ir.Node) -> Fix:
    """``30`` to ``timedelta(seconds=30)``."""
    imports = Imports(code, timeout)
    name = imports.name("datetime", "timedelta")
    text = f"{name}(seconds={code.slice(timeout)})"
    edits = (code.edit(timeout.start, timeout.end, text), *imports.edits())
    return Fix(f"give the seconds as `{name}`", Safety.UNSAFE, edits)


@builder
def backend(code: Code, written: ir.Node, meant: str) -> Fix:
    if not isinstance(written, ir.Constant):
        raise NoFixError("the backend is written elsewhere")
    text = code.slice(written)
    edit = code.edit(written.start, written.end, f"{text[0]}{meant}{text[-1]}")
    return Fix(f"ask for `{meant}`", Safety.SAFE, (edit,))


@builder
def with_cpu(code: Code, written: ir.Node, always: bool) -> Fix:
    """Asks for a backend for the CPU beside NCCL, wherever that is chosen in an expression.

    Args:
        always: every run fails without it; one that does not may have no use for gloo.
    """
    options = (written.body, written.orelse) if isinstance(written, ir.Conditional) else (written,)
    edits = []
    for each in options:
        if isinstance(each, ir.Attribute) and each.attr == "NCCL":
            edits.append(code.edit(each.start, each.end, f'"{EVERY_DEVICE}"'))
        elif isinstance(each, ir.Constant) and "nccl" in str(each.value).lower():
            quote = code.slice(each)[-1]
            edits.append(code.edit(each.start, each.end, f"{quote}{EVERY_DEVICE}{quote}"))
    if not edits:
        raise NoFixError("the backend is written elsewhere")
    safety = Safety.SAFE if always else Safety.UNSAFE
    return Fix(f"ask for `{EVERY_DEVICE}`", safety, tuple(edits))


@builder
def device(code: Code, written: ir.Node) -> Fix:
    """A device with its number; a text becomes one by ``torch.device``."""
    imports = Imports(code, written)
    torch = imports.module("torch", "torch")
    text = code.slice(written)
    kind = next((n for n in ir.walk(written) if isinstance(n, ir.Constant)), None)
    named = isinstance(kind, ir.Constant) and isinstance(kind.value, str) and ":" not in kind.value
    if isinstance(written, ir.FormattedString) or (kind is written and not named):
        made = f"{torch}.device({text})"
        edits: tuple[Edit, ...] = (code.edit(written.start, written.end, made), *imports.edits())
        return Fix("make it a `torch.device`", Safety.SAFE, edits)
    if not named or kind is None:
        raise NoFixError(f"`{code.short(written)}` is made elsewhere")
    os = imports.module("os", "os")
    made = f'{torch}.device({code.slice(kind)}, int({os}.environ["LOCAL_RANK"]))'
    edits = (code.edit(written.start, written.end, made), *imports.edits())
    return Fix("name the device of this process", Safety.UNSAFE, edits)


@builder
def only_once(code: Code, call: ir.Node) -> Fix:
    statement = code.statement(call)
    block = code.block(statement).statements
    if not isinstance(statement, ir.Expression) or statement.value is not call or len(block) == 1:
        raise NoFixError(f"`{code.short(statement)}` does more than to make a process group")
    start, end = code.extent(statement)
    return Fix("make it once", Safety.UNSAFE, (code.delete_lines(start, end),))


@builder
def by_environment(code: Code, method: ir.Node) -> Fix:
    """Has the processes meet at the address in the environment, as torchrun gives it."""
    edit = code.edit(method.start, method.end, '"env://"')
    return Fix("meet by `env://`", Safety.UNSAFE, (edit,))
