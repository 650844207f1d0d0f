"""`DistributedDataParallel(model, …)` to `fully_shard(model)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.ddp import ARGUMENTS, CLASS, NEEDLESS, REFUSED
from fsdplint.knowledge.launch import NEW_GROUP, WORLD
from fsdplint.migrate.ddp.forwarded import written_out
from fsdplint.migrate.ddp.frozen import trained_later
from fsdplint.migrate.helpers import defined_on_ranks
from fsdplint.migrate.sharding import OWN, unwrap
from fsdplint.migrate.step import Change, Context, Found, Question, attempt

_WORDS = ("DistributedDataParallel", "DDP")
_SAME, _DIFFER = "same", "differ"
_COPY = "copy_buffers"
_DEFINITION = f'''def {_COPY}(model, *_):
    """Give every rank the buffers of rank 0 if they may differ, as DistributedDataParallel does."""
    if getattr(model, "buffers_may_differ", True):
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
    model.buffers_may_differ = torch.is_grad_enabled()


'''


def wrappers(context: Context) -> Iterator[Found]:
    """Yield a change for each call of DDP's class."""
    for code in context.codes(*_WORDS):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and context.name(code, node.func) == CLASS:
                yield from attempt(code, node, partial(_sharded, context, code, node))


def _sharded(context: Context, code: Code, call: ir.Call) -> Change:
    module, given = _arguments(context, code, call)
    if _is_true(given.get("find_unused_parameters")):
        _check_use(context, code, call)
    imports = Imports(code, call)
    equal = _is_false(given.get("init_sync"))
    device = _device(context, code, given.get("device_ids"))
    hook = "" if _is_false(given.get("broadcast_buffers")) else _COPY
    edits = unwrap(code, call, module, imports, equal=equal, device=device, hook=hook)
    every = [imports]
    if hook:
        helper, of_helper = defined_on_ranks(code, _COPY, _DEFINITION)
        edits += helper
        every.append(of_helper)
    what = f"shard `{code.short(module)}` with `fully_shard` instead of wrapping it"
    return Change(code.span(call), what, tuple(edits), tuple(every), trained_later(context))


def _device(context: Context, code: Code, devices: ir.Expr | None) -> str:
    """Return the device of a wrapper whose rank has no other: FSDP2 takes the current one."""
    given = devices.elements if isinstance(devices, ir.Collection) else ()
    if any(context.codes("cuda.device(", "set_device")):
        return ""
    if len(given) == 1:
        return code.slice(given[0])
    unset = devices is None or _is_unset(devices)
    return "" if unset and not any(context.codes("cuda")) else OWN


def _check_use(context: Context, code: Code, call: ir.Call) -> None:
    question = Question(
        code.span(call),
        "unused-parameters",
        "do all ranks use the same parameters in each step? (FSDP2 mixes up gradients where they "
        "differ)",
        (_SAME, _DIFFER),
    )
    if context.decided(question) == _DIFFER:
        raise NoFixError(
            "FSDP2 reduces the gradients of a block only on ranks that used it; make all ranks "
            "use the same parameters by hand"
        )


def _arguments(
    context: Context, code: Code, call: ir.Call
) -> tuple[ir.Expr, Mapping[str, ir.Expr]]:
    """Return the module and the other arguments by name, all of which can be dropped.

    Raises:
        NoFixError: one of them cannot be.
    """
    module, arguments = module_argument(call), written_out(context, code, call)
    if module is None or any(argument.star for argument in arguments):
        raise NoFixError(f"`{code.short(call)}` does not write out its arguments; do so by hand")
    plain = [each for each in arguments if each.keyword is None]
    given = {name: each.value for name, each in zip(("module", *ARGUMENTS), plain, strict=False)}
    given |= {each.keyword: each.value for each in arguments if each.keyword is not None}
    del given["module"]
    for name, value in given.items():
        of_all = name == "process_group" and _has_every_rank(context, code, value)
        if name not in NEEDLESS and not _is_unset(value) and not of_all:
            reason = f"FSDP2 has nothing like `{name}`; remove it by hand"
            raise NoFixError(REFUSED.get(name, reason))
    return module.value, given


def _has_every_rank(context: Context, code: Code, group: ir.Expr) -> bool:
    """True if a process group has all ranks, as FSDP2's own mesh has."""
    if isinstance(group, ir.Name):
        values, function = code.assigned(group), code.function(group)
        given = () if function is None else (each.name for each in function.parameters)
        return (
            bool(values)
            and group.id not in given
            and all(_has_every_rank(context, code, each) for each in values)
        )
    if isinstance(group, ir.Call) and context.name(code, group.func) == NEW_GROUP:
        ranks = argument_of(group, 0, "ranks")
        return not any(each.star for each in group.args) and (
            ranks is None or _is_unset(ranks.value)
        )
    return context.name(code, group) == WORLD


def _is_unset(value: ir.Expr) -> bool:
    return isinstance(value, ir.Constant) and not value.value


def _is_false(value: ir.Expr | None) -> bool:
    return isinstance(value, ir.Constant) and value.value is False


def _is_true(value: ir.Expr | None) -> bool:
    """True if an argument is given that may not be false."""
    return value is not None and not _is_unset(value)
