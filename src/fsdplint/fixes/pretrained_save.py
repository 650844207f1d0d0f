"""The fix of ``save_pretrained``: the state is gathered by every rank, and given to it."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.facts.pretrained_saves import PretrainedSave
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import Declined, NoFixError, builder
from fsdplint.fixes.gather_state import GatheredState, gather_state
from fsdplint.fixes.gathered_write import receiver


def pass_gathered_state(program: Program, fact: PretrainedSave) -> Fix | Declined:
    site, code = fact.save.site, Code.of(program.tree(fact.save.site.path))
    assert isinstance(site.node, ir.Call)
    saved = receiver(site.node)
    if saved is None:
        return Declined("it is not clear which model is saved")
    state = _by_accelerate(code, fact, site.node) if fact.prepared else _by_torch(code, site, saved)
    if isinstance(state, Declined):
        return state
    if state.gather and not fact.guards:
        return _everywhere(code, site.node, state)
    function = code.function(site.node)
    own = [code.statement(g.test) for g in fact.guards if g.path == site.path]
    local = [each for each in own if isinstance(each, ir.If) and code.function(each) is function]
    return gather_state(code, site.node, [state], local, rank_zero=len(local) < len(fact.guards))


def _by_torch(code: Code, site: Site, saved: ir.Expr) -> GatheredState:
    inner = isinstance(saved, ir.Attribute) and saved.attr in ("module", "_fsdp_wrapped_module")
    model = saved.value if inner and isinstance(saved, ir.Attribute) else saved
    assert isinstance(site.node, ir.Call)
    return GatheredState(site.node, code.slice(model), keyword="state_dict")


def _by_accelerate(code: Code, fact: PretrainedSave, call: ir.Call) -> GatheredState | Declined:
    """``accelerator.get_state_dict(model)``, with the names of the call that unwraps it."""
    unwrap = fact.unwrap
    if unwrap is None or unwrap.site.calls != fact.save.site.calls:
        return Declined("the accelerator's name for the model is not known here")
    node = unwrap.site.node
    accelerator = receiver(node)
    if not isinstance(node, ir.Call) or accelerator is None or not node.args:
        return Declined("the accelerator's name for the model is not known here")
    model = code.slice(node.args[0].value)
    gather = f"{code.slice(accelerator)}.get_state_dict({model})"
    return GatheredState(call, model, keyword="state_dict", gather=gather)


@builder
def _everywhere(code: Code, call: ir.Call, state: GatheredState) -> Fix:
    """Every rank calls it: the accelerator gathers in the arguments, and one rank writes."""
    require_exact(code)
    given = {argument.keyword for argument in call.args}
    accelerator = state.gather.rpartition(".get_state_dict(")[0]
    added = [f"state_dict={state.gather}"]
    if "is_main_process" not in given:
        added.insert(0, f"is_main_process={accelerator}.is_main_process")
    if any(argument.star for argument in call.args):
        raise NoFixError(f"the arguments of `{code.short(call.func)}` are not all written out")
    title = "gather the whole state on every rank, and write it on one"
    edits = (add_argument(code, call, ", ".join(added)),)
    return Fix(title, Safety.UNSAFE, edits)
