"""The fix of a load that gives every rank the whole of a file."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.facts.loads import PlainLoad
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.gathered_write import model_name, receiver
from fsdplint.fixes.load_state import load_state


def whole_load(program: Program, fact: PlainLoad) -> Fix | Declined:
    site = fact.call.site
    target = receiver(site.node)
    if target is None or not isinstance(site.node, ir.Call):
        return Declined("the load is not called as a method")
    code = Code.of(program.tree(site.path))
    model = code.slice(target)
    optimizer = None
    if fact.optimizer is not None:
        known = model_name(program, fact.trace, site, fact.module, fact.optimizer)
        if known is None:
            return Declined("it is not clear what the model is called where the state is loaded")
        model, optimizer = known, model
    function = code.function(site.node)
    own = [guard for guard in fact.guards if guard.path == site.path]
    tests = [code.statement(guard.test) for guard in own]
    local = [test for test in tests if isinstance(test, ir.If) and code.function(test) is function]
    outside = len(local) < len(fact.guards)
    return load_state(code, site.node, model, optimizer, local, rank_zero=outside)
