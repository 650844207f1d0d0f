"""`MixedPrecision` and `CPUOffload` objects, wherever the program makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import argument_of, without
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.lightning_settings import FSDP, NAMES
from fsdplint.knowledge.policies import (
    CPU_OFFLOAD,
    CPU_OFFLOAD_POLICY,
    MIXED_PRECISION,
    MIXED_PRECISION_FIELDS,
    MIXED_PRECISION_POLICY,
    OFFLOAD_PARAMS,
    OFFLOAD_POLICY,
)
from fsdplint.migrate.calls import has_fsdp1, strategy_calls
from fsdplint.migrate.step import Change, Context, Found, attempt

_DTYPES = ("param_dtype", "buffer_dtype")
_KEPT = ("param_dtype", "reduce_dtype")
BUFFERS = "FSDP2 does not cast buffers"


def policies(context: Context) -> Iterator[Found]:
    """Yield a change for each place that makes a policy object of FSDP1.

    The wrappers go first: what their policies cast decides what units cast.
    """
    if has_fsdp1(context):
        return
    if any(True for code in context.codes(NAMES[FSDP]) for _ in strategy_calls(context, code)):
        return
    each_says, differs = _each_says(context), "" if casts_buffers(context) else BUFFERS
    for code in context.codes("MixedPrecision", "CPUOffload"):
        for node in ir.walk(code.module):
            if not isinstance(node, ir.Call):
                continue
            name = context.name(code, node.func)
            if name == MIXED_PRECISION:
                change = partial(_precision, code, node, each_says=each_says, differs=differs)
                yield from attempt(code, node, change)
            elif name == CPU_OFFLOAD:
                yield from attempt(code, node, partial(_offload, code, node))


def _each_says(context: Context) -> bool:
    """Return whether policies differ in what they cast, so that each has to say it."""
    try:
        return len(castings(context)) > 1
    except NoFixError:
        return False  # it is kept, where it is made


def _made(context: Context) -> Iterator[tuple[Code, ir.Call]]:
    for code in context.codes("MixedPrecision"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and context.name(code, node.func) == MIXED_PRECISION:
                yield code, node


def castings(context: Context) -> set[tuple[bool, bool]]:
    """Return whether the root, and the other units, cast inputs, by all policies there are.

    Raises:
        NoFixError: a policy does not show it, or some have the root cast and others do not.
    """
    found = {casts_inputs(code, node) for code, node in _made(context)}
    if len({root for root, _ in found}) > 1:
        raise NoFixError(
            "some policies of the program have the root cast its inputs and others do not; build "
            "a `MixedPrecisionPolicy` for the root and one for its blocks by hand"
        )
    return found


def casts_buffers(context: Context) -> bool:
    """True if each policy casts buffers to the dtype of the parameters, which FSDP2's has, too."""
    kinds = [
        [code.slice(given) if (given := argument(made, field)) else "" for field in _DTYPES]
        for code, made in _made(context)
    ]
    return bool(kinds) and all(
        parameters and parameters == buffers for parameters, buffers in kinds
    )


def _precision(code: Code, made: ir.Call, *, each_says: bool, differs: str) -> Change:
    """Keep the dtypes.

    Args:
        each_says: the policy says whether a unit casts its inputs, and not the place that gives it
            the policy.
        differs: what is different if it casts buffers.
    """
    imports = Imports(code, made)
    if any(each.star for each in made.args):
        raise NoFixError("its arguments are not all written out; build the policy by hand")
    _, blocks = casts_inputs(code, made)
    # FSDP2's default is True.
    names = (*_KEPT, "cast_forward_inputs") if each_says and not blocks else _KEPT
    kept = [each for each in made.args if _field(made, each) in names]
    name = imports.name(*MIXED_PRECISION_POLICY.rsplit(".", 1))
    edits = [
        code.edit(made.func.start, made.func.end, name),
        *without_comments_lost(code, made.args, kept),
    ]
    if argument(made, "param_dtype") is not None and argument(made, "reduce_dtype") is None:
        edits = _with_reduction(code, made, edits)
    if len(names) > len(_KEPT) and argument(made, "cast_forward_inputs") is None:
        at = kept[-1].end if kept else made.end - 1
        apart = f",{code.newline}{code.indentation(kept[-1])}" if _on_own_line(code, kept) else ", "
        text = f"{apart if kept else ''}cast_forward_inputs=False"
        edits.append(code.edit(at, at, text))
    span = code.span(made)
    differs = differs if argument(made, "buffer_dtype") is not None else ""
    what = "replace `MixedPrecision` by `MixedPrecisionPolicy`"
    return Change(span, what, tuple(edits), (imports,), differs)


def _on_own_line(code: Code, kept: list[ir.Argument]) -> bool:
    return bool(kept) and code.starts_line(kept[-1])


def without_comments_lost(
    code: Code, every: Sequence[ir.Argument], kept: Sequence[ir.Argument]
) -> list[Edit]:
    """Delete the arguments that are not kept, and no comment.

    Raises:
        NoFixError: a comment is in the way.
    """
    edits = without(code, every, kept)
    if not any(code.comments(edit.span.start, edit.span.end) for edit in edits):
        return edits
    if not all(code.starts_line(each) for each in every):
        raise NoFixError("a comment is between its arguments; change the call by hand")
    dropped = [each for each in every if each not in kept]
    lines = [(code.line_start(each.start), code.line_end(each.end)) for each in dropped]
    return [
        code.edit(*line, "".join(f"{code.indentation(each)}{c}{code.newline}" for c in comments))
        for each, line in zip(dropped, lines, strict=True)
        for comments in [code.comments_in(*line)]
    ]


def casts_inputs(code: Code, made: ir.Call) -> tuple[bool, bool]:
    """Return whether a ``MixedPrecision(…)`` has the root, and the other units, cast inputs.

    Raises:
        NoFixError: it has a setting that FSDP2 lacks, or one whose value is not written out.
    """
    inputs = _flag(code, made, "cast_forward_inputs", False)
    root = _flag(code, made, "cast_root_forward_inputs", True)
    if _flag(code, made, "keep_low_precision_grads", False):
        raise NoFixError("FSDP2 has no `keep_low_precision_grads`; decide by hand")
    if argument(made, "_module_classes_to_ignore") is not None:
        raise NoFixError("FSDP2 has no `_module_classes_to_ignore`; decide by hand")
    return root or inputs, inputs


def _flag(code: Code, made: ir.Call, field: str, default: bool) -> bool:
    value = argument(made, field)
    if value is None:
        return default
    if not isinstance(value, ir.Constant):
        raise NoFixError(f"the value of `{field}={code.short(value)}` is not known; decide by hand")
    return bool(value.value)


def _field(made: ir.Call, given: ir.Argument) -> str:
    return given.keyword or MIXED_PRECISION_FIELDS[made.args.index(given)]


def argument(made: ir.Call, field: str) -> ir.Expr | None:
    """Return the value that a ``MixedPrecision(…)`` is given for a field, None for none."""
    given = argument_of(made, MIXED_PRECISION_FIELDS.index(field), field)
    none = given is None or (isinstance(given.value, ir.Constant) and given.value.value is None)
    return None if none or given is None else given.value


def _with_reduction(code: Code, made: ir.Call, edits: list[Edit]) -> list[Edit]:
    """Say that gradients are reduced in the dtype of the parameters, FSDP1's default."""
    value = argument(made, "param_dtype")
    assert value is not None
    given = argument_of(made, MIXED_PRECISION_FIELDS.index("reduce_dtype"), "reduce_dtype")
    if given is not None:
        return [*edits, code.edit(given.value.start, given.value.end, code.slice(value))]
    text = f", reduce_dtype={code.slice(value)}"
    return [*edits, code.edit(value.end, value.end, text)]


def _offload(code: Code, made: ir.Call) -> Change:
    """Make a policy that offloads, or one that does not, or choose between them at run time."""
    given = argument_of(made, 0, OFFLOAD_PARAMS)
    if len(made.args) > 1 or (made.args and given is None):
        raise NoFixError("its arguments are not all written out; build the policy by hand")
    imports = Imports(code, made)
    value = None if given is None else given.value
    if value is None or isinstance(value, ir.Constant):
        name = CPU_OFFLOAD_POLICY if value is not None and value.value else OFFLOAD_POLICY
        text = f"{imports.name(*name.rsplit('.', 1))}()"
    else:
        on, off = (
            imports.name(*name.rsplit(".", 1)) for name in (CPU_OFFLOAD_POLICY, OFFLOAD_POLICY)
        )
        text = f"({on}() if {code.slice(value)} else {off}())"
    span = code.span(made)
    edit = code.edit(made.start, made.end, text)
    return Change(span, f"replace `CPUOffload` by `{text}`", (edit,), (imports,))
