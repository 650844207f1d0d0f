"""Convert FSDP1's policy objects to those of FSDP2."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import without
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports, orphans, qualified
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.names import FSDP1, canonical
from fsdplint.knowledge.policies import (
    CPU_OFFLOAD,
    CPU_OFFLOAD_POLICY,
    MIXED_PRECISION,
    MIXED_PRECISION_FIELDS,
    MIXED_PRECISION_POLICY,
    OFFLOAD_POLICY,
)

_CONVERT = "build a `MixedPrecisionPolicy` by hand"
_KEPT = ("param_dtype", "reduce_dtype")
_LOST = {
    "cast_forward_inputs": True,
    "cast_root_forward_inputs": True,
    "_module_classes_to_ignore": None,
}


def meaning(code: Code, node: ir.Expr) -> str:
    """Return the canonical name that the file's imports give ``node``, "" for none."""
    name = qualified(code, node)
    return "" if name is None else canonical(name)


def precision_policy(code: Code, value: ir.Expr, imports: Imports) -> list[Edit]:
    """Convert the `MixedPrecision(…)` that ``value`` is, or is assigned, for FSDP2.

    Raises:
        NoFixError: its construction is not in the file, or has settings that FSDP2 lacks.
    """
    made = construction(code, value)
    if not isinstance(made, ir.Call):
        raise NoFixError(f"this file does not show how `{code.short(value)}` is made; {_CONVERT}")
    name = meaning(code, made.func)
    if name == MIXED_PRECISION_POLICY:
        return []
    if name != MIXED_PRECISION:
        raise NoFixError(f"`{code.short(made)}` is not FSDP1's `MixedPrecision`; {_CONVERT}")
    kept = [a for index, a in enumerate(made.args) if _is_kept(code, made, index, a)]
    name = imports.name(*MIXED_PRECISION_POLICY.rsplit(".", 1))
    renamed = code.edit(made.func.start, made.func.end, name)
    return [renamed, *without(code, made.args, kept)]


def _is_kept(code: Code, made: ir.Call, index: int, argument: ir.Argument) -> bool:
    if argument.star or index >= len(MIXED_PRECISION_FIELDS):
        raise NoFixError(f"`{code.short(made)}` does not show all its arguments; {_CONVERT}")
    name = argument.keyword or MIXED_PRECISION_FIELDS[index]
    if name in _LOST:
        same = isinstance(argument.value, ir.Constant) and argument.value.value is _LOST[name]
        if not same:
            raise NoFixError(
                f"FSDP2 has no equivalent of `{name}={code.short(argument.value)}`; {_CONVERT}"
            )
    return name in _KEPT


def offloads(code: Code, value: ir.Expr) -> bool:
    """True if a value of FSDP1's ``cpu_offload``, or of similar arguments, turns on offloading.

    Raises:
        NoFixError: the file does not show it.
    """
    made = construction(code, value)
    if isinstance(made, ir.Constant) and made.value in (True, False, None, "cpu"):
        return bool(made.value)
    if isinstance(made, ir.Call) and meaning(code, made.func) == CPU_OFFLOAD:
        flags = [argument for argument in made.args if not argument.star]
        if not made.args:
            return False
        flag = flags[0].value if len(flags) == len(made.args) == 1 else None
        if isinstance(flag, ir.Constant):
            return bool(flag.value)
    raise NoFixError(
        f"this file does not show whether `{code.short(value)}` turns on offloading; if it does, "
        "pass `offload_policy=CPUOffloadPolicy()` by hand"
    )


def is_offload_policy(code: Code, value: ir.Expr) -> bool:
    made = construction(code, value)
    names = (CPU_OFFLOAD_POLICY, OFFLOAD_POLICY)
    return isinstance(made, ir.Call) and meaning(code, made.func) in names


def construction(code: Code, value: ir.Expr) -> ir.Expr | None:
    """Return ``value``, or what the file assigns to it once and passes to no FSDP1 wrapper."""
    path = dotted(value)
    if path is None or meaning(code, value):
        return value
    nodes = list(ir.walk(code.module))
    assigned = [n.value for n in nodes if isinstance(n, ir.Assign) and _assigns(n, path)]
    users = (n for n in nodes if isinstance(n, ir.Call) and meaning(code, n.func) == FSDP1)
    shared = any(dotted(argument.value) == path for user in users for argument in user.args)
    return assigned[0] if len(assigned) == 1 and not shared else None


def _assigns(statement: ir.Assign, path: str) -> bool:
    return any(dotted(target) == path for target in statement.targets)


def unused(code: Code, removed: Sequence[ir.Expr], edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits that drop the imports that only ``removed`` code used."""
    names = [n.id for each in removed for n in ir.walk(each) if isinstance(n, ir.Name)]
    found: list[Edit] = []
    for name in sorted(set(names)):
        found += orphans(code, name, [*edits, *found])
    return found
