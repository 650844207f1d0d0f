"""Valid arguments for `init_process_group`."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports

EVERY_DEVICE = "cpu:gloo,cuda:nccl"


@builder
def as_timedelta(code: Code, timeout: ir.Node) -> Fix:
    """Replace ``30`` with ``timedelta(seconds=30)``."""
    imports = Imports(code, timeout)
    name = imports.name("datetime", "timedelta")
    text = f"{name}(seconds={code.slice(timeout)})"
    edits = (code.edit(timeout.start, timeout.end, text), *imports.edits())
    return Fix(f"wrap the seconds in `{name}`", Safety.UNSAFE, edits)


@builder
def backend(code: Code, written: ir.Node, meant: str) -> Fix:
    """Replace a misspelled backend with the intended one."""
    if not isinstance(written, ir.Constant):
        raise NoFixError(f"the backend is not a literal here; set it to `{meant}` by hand")
    text = code.slice(written)
    edit = code.edit(written.start, written.end, f"{text[0]}{meant}{text[-1]}")
    return Fix(f"use the backend `{meant}`", Safety.SAFE, (edit,))


@builder
def with_cpu(code: Code, written: ir.Node, always: bool) -> Fix:
    """Add a backend for the CPU to NCCL, also in one arm of a conditional expression.

    Args:
        always: every run fails without it, so that none works without gloo.
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
        raise NoFixError(f"the backend is not a literal here; set it to `{EVERY_DEVICE}` by hand")
    safety = Safety.SAFE if always else Safety.UNSAFE
    return Fix(f"add gloo for the CPU: `{EVERY_DEVICE}`", safety, tuple(edits))


@builder
def device(code: Code, written: ir.Node) -> Fix:
    """Add the index of a device, or make a string a ``torch.device``."""
    imports = Imports(code, written)
    torch = imports.module("torch", "torch")
    text = code.slice(written)
    kind = next((n for n in ir.walk(written) if isinstance(n, ir.Constant)), None)
    named = isinstance(kind, ir.Constant) and isinstance(kind.value, str) and ":" not in kind.value
    if isinstance(written, ir.FormattedString) or (kind is written and not named):
        made = f"{torch}.device({text})"
        edits: tuple[Edit, ...] = (code.edit(written.start, written.end, made), *imports.edits())
        return Fix("convert the string to a `torch.device`", Safety.SAFE, edits)
    if not named or kind is None:
        raise NoFixError(f"`{code.short(written)}` is created elsewhere; give it an index there")
    os = imports.module("os", "os")
    made = f'{torch}.device({code.slice(kind)}, int({os}.environ["LOCAL_RANK"]))'
    edits = (code.edit(written.start, written.end, made), *imports.edits())
    return Fix("add the device index of this process", Safety.UNSAFE, edits)


@builder
def only_once(code: Code, call: ir.Node) -> Fix:
    """Remove the call that creates the process group again."""
    statement = code.statement(call)
    if not isinstance(statement, ir.Expression) or statement.value is not call:
        raise NoFixError(
            f"`{code.short(statement)}` does more than create the process group; remove the second "
            "creation by hand"
        )
    if len(code.block(statement).statements) == 1:
        raise NoFixError(
            f"`{code.short(statement)}` is the only statement of its block; remove it by hand"
        )
    start, end = code.extent(statement)
    return Fix("remove the second call", Safety.UNSAFE, (code.delete_lines(start, end),))


@builder
def by_environment(code: Code, method: ir.Node) -> Fix:
    """Use the address in the environment, which torchrun sets, for the rendezvous."""
    edit = code.edit(method.start, method.end, '"env://"')
    return Fix("use `env://` instead of a file", Safety.UNSAFE, (edit,))
