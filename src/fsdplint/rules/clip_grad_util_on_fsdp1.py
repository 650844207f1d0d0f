"""Norms that ``torch.nn.utils`` takes of the local gradient shards of FSDP1 models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.clipping import LocalNorm, local_norms
from fsdplint.engine.facts.sharding import as_unit
from fsdplint.engine.interpreter.events import Shard, Sharding
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.must.values import Result, possible
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.arguments import without
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports, orphans
from fsdplint.fixes.names import clash, dotted, written_between
from fsdplint.knowledge.names import FSDP1
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD304",
    summary="`torch.nn.utils` computes the gradient norm of an FSDP1 model from local shards",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
    clause="gradient-norm",
)

_BY_HAND = "call the root's `clip_grad_norm_` by hand"


def reports(program: Program) -> Iterator[Report]:
    for fact in local_norms(program):
        site, call = fact.call.site, fact.call.site.node
        assert isinstance(call, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, call.func)}` sees only this rank's gradient shards "
            f"({_known(program, fact.shard, site)}), so {_consequence(fact)}",
            "norm of the local shards only",
            (
                program.evidence(fact.shard.site, "an FSDP1 module from here on"),
                *program.conditions(site, fact.shard.site),
            ),
            partial(clip_over_all_ranks, program, fact),
        )


def _known(program: Program, shard: Sharding, site: Site) -> str:
    """Return what shows that the model is an FSDP1 module."""
    if isinstance(shard, Shard):
        wrapper = program.text(shard.site.path, shard.call.func)
        return f"`{wrapper}` wraps the model {program.where(shard.site, site)}"
    return f"the model is {as_unit(program, shard, site)}"


def _consequence(fact: LocalNorm) -> str:
    if fact.call.name.endswith("get_total_norm") or fact.only_measures:
        return "every rank gets a different norm"
    return "every rank clips by a different factor"


def clip_over_all_ranks(program: Program, fact: LocalNorm) -> Fix | Declined:
    """Call FSDP1's own method instead of the function."""
    site = fact.call.site
    assert isinstance(site.node, ir.Call)
    if fact.call.name.endswith("get_total_norm"):
        return Declined(
            "FSDP1 has no method that measures the norm without clipping; combine the norms of all "
            "ranks by hand"
        )
    if not fact.of_root:
        return Declined(
            f"the root of an FSDP1 model clips all its gradients, not a part; {_BY_HAND}"
        )
    if any(program.is_rank_test(guard) for guard in site.guards):
        return Declined(
            "only some ranks reach this line, and FSDP1's `clip_grad_norm_` waits for all; clip on "
            "every rank by hand"
        )
    code = Code.of(program.tree(site.path))
    return clip_by_root(code, site.node, partial(_is_wrapped, program, site))


def _is_wrapped(program: Program, site: Site, root: str) -> bool:
    """True if ``root`` is an FSDP1 model whenever the gradients are clipped.

    Raises:
        NoFixError: it never is.
    """
    at = program.tree(site.path).statement(site.node)
    values = possible(program, site.path, root, at)
    known = [isinstance(each, Result) and each.name == FSDP1 for each in values or ()]
    if known and not any(known):
        raise NoFixError(f"`{root}` is not itself the FSDP1 model; {_BY_HAND}")
    return bool(known) and all(known)


# The parameters of torch.nn.utils.clip_grad_norm_, torch 2.0 to 2.15; the root's method has the
# second and the third.
_PARAMETERS = ("parameters", "max_norm", "norm_type", "error_if_nonfinite", "foreach")
_KEPT = ("max_norm", "norm_type")


@builder
def clip_by_root(code: Code, call: ir.Call, is_wrapped: Callable[[str], bool]) -> Fix:
    """Change ``clip_grad_norm_(model.parameters(), 1.0)`` to ``model.clip_grad_norm_(1.0)``.

    Args:
        call: takes the parameters of an FSDP1 root, and nothing else.
        is_wrapped: whether the root, by the name that the function has for it, is an FSDP1 model
            whenever the call is made; if not, the fixed code tests for it.
    """
    given = _given(code, call)
    if "max_norm" not in given:
        raise NoFixError(f"`{code.short(call)}` does not spell out `max_norm`; {_BY_HAND}")
    root = _root(code, given["parameters"].value)
    if code.comments(call.start, call.end):
        raise NoFixError(f"a comment is inside the call; {_BY_HAND}")
    kept = [given[name] for name in _KEPT if name in given]
    title = f"clip with `{root}.clip_grad_norm_`, which reduces the norm over all ranks"
    if not is_wrapped(root):
        return Fix(title, Safety.SAFE, tuple(_asking(code, call, root, kept)))
    edits = [code.edit(call.func.start, call.func.end, f"{root}.clip_grad_norm_")]
    edits += without(code, call.args, kept)
    callee = dotted(call.func)
    dropped = orphans(code, callee.split(".")[0], edits) if callee else []
    dropped = dropped or (orphans(code, callee.rpartition(".")[0], edits) if callee else [])
    return Fix(title, Safety.SAFE, (*edits, *dropped))


def _asking(code: Code, call: ir.Call, root: str, kept: Sequence[ir.Argument]) -> Iterator[Edit]:
    """Branch on the class: the root's method for an FSDP1 model, else the statement as it is."""
    statement = code.statement(call)
    simple = isinstance(statement, (ir.Expression, ir.Assign, ir.AugAssign, ir.Return))
    if not simple or not code.alone(statement) or code.breaks(statement.start, statement.end):
        raise NoFixError(
            f"the model is not always wrapped, and the call is in a larger statement; {_BY_HAND}"
        )
    imports = Imports(code, call)
    wrapper = imports.name(*FSDP1.rsplit(".", 1))
    indent, newline = code.indentation(statement), code.newline
    arguments = ", ".join(map(code.slice, kept))
    before, after = code.text[statement.start : call.start], code.text[call.end : statement.end]
    lines = (
        f"if isinstance({root}, {wrapper}):",
        f"{indent}{code.unit}{before}{root}.clip_grad_norm_({arguments}){after}",
        f"{indent}else:",
        f"{indent}{code.unit}",
    )
    yield code.edit(statement.start, statement.start, newline.join(lines))
    yield from imports.edits()


def _given(code: Code, call: ir.Call) -> dict[str, ir.Argument]:
    given: dict[str, ir.Argument] = {}
    for index, argument in enumerate(call.args):
        if argument.star or index >= len(_PARAMETERS):
            raise NoFixError(
                f"the arguments of `{code.short(call.func)}` are not all written out; {_BY_HAND}"
            )
        given[argument.keyword or _PARAMETERS[index]] = argument
    strict = given.get("error_if_nonfinite")
    off = strict is None or (isinstance(strict.value, ir.Constant) and strict.value.value is False)
    if not off:
        raise NoFixError(f"FSDP1's method has no `error_if_nonfinite`; {_BY_HAND}")
    if "parameters" not in given or given.keys() - set(_PARAMETERS):
        raise NoFixError(f"`{code.short(call)}` does not match torch's signature; {_BY_HAND}")
    return given


def _root(code: Code, parameters: ir.Expr) -> str:
    """Return the name that the function has for the model of ``parameters``.

    Raises:
        NoFixError: they come from elsewhere, or some are left out.
    """
    model = _model(code, parameters)
    if model is None:
        raise NoFixError(f"`{code.short(parameters)}` does not name the model; {_BY_HAND}")
    return _wrapper(code, model, parameters)


def _model(code: Code, parameters: ir.Expr) -> ir.Expr | None:
    """Return ``model`` of ``model.parameters()``."""
    method = parameters.func if isinstance(parameters, ir.Call) else None
    if isinstance(method, ir.Attribute) and method.attr == "parameters":
        if isinstance(parameters, ir.Call) and parameters.args:
            raise NoFixError(f"`{code.short(parameters)}` may leave parameters out; {_BY_HAND}")
        return method.value
    return None


def _wrapper(code: Code, model: ir.Expr, given: ir.Expr) -> str:
    """Return the text of the root, which wraps ``model.module``."""
    if isinstance(model, ir.Attribute) and model.attr == "module":
        model = model.value
    path = dotted(model)
    if path is None:
        raise NoFixError(f"`{code.short(model)}` may be a module inside the wrapper; {_BY_HAND}")
    scope = code.function(given) or code.module
    for node in ir.walk(scope):
        inside = isinstance(node, ir.Assign) and isinstance(node.value, ir.Attribute)
        if inside and node.value.attr == "module" and path in map(dotted, node.targets):  # type: ignore[attr-defined]  # an assignment
            raise NoFixError(f"`{path}` is the module inside the wrapper; {_BY_HAND}")
    changed = clash([path], written_between(code, given, model.end, given.start))
    if changed is not None:
        raise NoFixError(f"`{changed}` changes before the gradients are clipped; {_BY_HAND}")
    return path
