"""sharded-state-saved: a rank's slices of the state are written as if they were the state."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Function, Module, modules, name_of
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "sharded-state-saved"
OF_OPTIMIZERS = "optimizer-state-saved-raw"
GATHERS = {"get_model_state_dict", "get_optimizer_state_dict"}
WRITES = {"save", "atomic_save"}

# How a model's state is taken instead of being gathered; {x} is the model.
SLICES = {
    "direct": "{x}.state_dict()",
    "detached": "{{k: v.detach().cpu() for k, v in {x}.state_dict().items()}}",
    "helper": "weights_of({x})",
    "sharded getter": "get_model_state_dict({x})",
    "not full": "get_model_state_dict({x}, options=StateDictOptions(cpu_offload=True))",
}
HELPER = """
def weights_of(module):
    state = module.state_dict()
    return state
"""


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if not program.units:
        return
    everything = modules(program)
    gathers = [(m, call) for m in everything for call in m.calls() if _gathers(call)]
    if any(name_of(call) == "get_model_state_dict" for _, call in gathers):
        more = random.sample([name for name in SLICES if name != "direct"], 3)
        for kind in ("direct", *more):
            yield mutant(program, RULE, kind, _sliced(everything, kind, "torch.save"))
        yield mutant(program, RULE, "pickled", _sliced(everything, "direct", "pickle"))
        if not _nested(everything):
            kind = random.choice(["direct", "detached"])
            yield mutant(program, RULE, "safetensors", _sliced(everything, kind, "safetensors"))
    if any(name_of(call) == "get_optimizer_state_dict" for _, call in gathers):
        yield mutant(program, OF_OPTIMIZERS, "not gathered", _optimizer_only(everything))
    for module, call in gathers:
        yield from _inlined(program, module, call)
    for module in everything:
        yield from _in_the_loop(program, module, random)


def _gathers(call: ast.Call) -> bool:
    return name_of(call) in GATHERS and bool(call.args)


def _writes(module: Module) -> Iterator[ast.Call]:
    """The calls that write gathered state: not those of a module nobody shards."""
    for call in module.calls():
        torch_save = ast.unparse(call.func) == "torch.save"
        if torch_save and ".state_dict()" not in ast.unparse(call.args[0]):
            yield call


def _nested(everything: list[Module]) -> bool:
    """Whether what is written is more than one flat state dict."""
    writes = [call for module in everything for call in _writes(module)]
    text = "\n".join(module.text for module in everything)
    names = [ast.unparse(call.args[0]) for call in writes]
    return any(not name.isidentifier() or f"{name} = {{" in text for name in names)


def _sliced(everything: list[Module], kind: str, writer: str) -> dict[str, str]:
    """All gathers replaced; those of optimizers by the optimizer's own state."""
    changed = {}
    for module in everything:
        edits: list[Edit] = []
        for call in module.calls():
            if _gathers(call):
                edits.append(_slice(module, call, kind))
            elif _is_partial(call):
                edits.append((*module.span(call), "lambda module: module.state_dict()"))
        helper = HELPER if kind == "helper" and edits else ""
        writes = [edit for call in _writes(module) for edit in _written(module, call, writer)]
        if edits or writes:
            imports = _import(writer) if writes else ""
            changed[module.path] = module.edited([*edits, *writes], imports, helper)
    return changed


def _import(writer: str) -> str:
    return {"pickle": "import pickle", "safetensors": "import safetensors.torch"}.get(writer, "")


def _slice(module: Module, call: ast.Call, kind: str) -> Edit:
    if name_of(call) == "get_optimizer_state_dict":
        new = f"{module.source(call.args[1])}.state_dict()"
    else:
        new = SLICES[kind].format(x=module.source(call.args[0]))
    return (*module.span(call), new)


def _is_partial(call: ast.Call) -> bool:
    return name_of(call) == "partial" and ast.unparse(call.args[0]) in GATHERS


def _written(module: Module, call: ast.Call, writer: str) -> Iterator[Edit]:
    start, end = module.span(call)
    if writer == "torch.save":
        yield start, start, MARK
        return
    state, path = (module.source(argument) for argument in call.args[:2])
    if writer == "safetensors":
        yield start, end, f"{MARK}safetensors.torch.save_file({state}, {path})"
        return
    statement = module.statement(call)
    indent = module.indent(statement)
    opened = f'with open({path}, "wb") as handle:'
    dump = f"{MARK}pickle.dump({re.sub(chr(10), chr(10) + '    ', state)}, handle)"
    yield start, end, f"{opened}\n{indent}    {dump}"


def _optimizer_only(everything: list[Module]) -> dict[str, str]:
    changed = {}
    for module in everything:
        calls = [c for c in module.calls() if name_of(c) == "get_optimizer_state_dict" and c.args]
        edits = [_slice(module, call, "direct") for call in calls]
        edits += [edit for c in _writes(module) for edit in _written(module, c, "torch.save")]
        if edits:
            changed[module.path] = module.edited(edits)
    return changed


def _inlined(program: Program, module: Module, call: ast.Call) -> Iterator[Mutant]:
    """The gather is gone; the write, under its rank guard, takes the state itself."""
    statement = module.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call:
        return
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        return
    for write in _writes(module):
        uses = [
            node
            for node in ast.walk(write.args[0])
            if isinstance(node, ast.Name) and node.id == target.id
        ]
        same = module.functions(write)[:1] == module.functions(call)[:1]
        if same and len(uses) == 1:
            state = _slice(module, call, "direct")[2]
            start = module.span(write)[0]
            edits: list[Edit] = [
                (*module.rows(statement), ""),
                (start, start, MARK),
                (*module.span(uses[0]), state),
            ]
            kind = f"{state} in the guarded write"
            rule = OF_OPTIMIZERS if name_of(call) == "get_optimizer_state_dict" else RULE
            yield mutant(program, rule, kind, {module.path: module.edited(edits)})


IN_LOOP = {
    "in the loop, guarded": """if torch.distributed.get_rank() == 0:
    {mark}torch.save({model}.state_dict(), "running.pt")
""",
    "in the loop, in a dict": """running = {{"model": {model}.state_dict(), "done": False}}
if torch.distributed.get_rank() == 0:
    {mark}torch.save(running, "running.pt")
""",
    "in the loop, by every rank": """{mark}torch.save({model}.state_dict(), "running.pt")
""",
    "in the loop, early exit": """def write_running(module):
    if torch.distributed.get_rank() != 0:
        return
    {mark}torch.save(module.state_dict(), "running.pt")

write_running({model})
""",
}


def _in_the_loop(program: Program, module: Module, random: Random) -> Iterator[Mutant]:
    """One more write, after an optimizer's step, of a model that is at hand there."""
    for call in module.calls():
        if name_of(call) != "step" or "optim" not in ast.unparse(call.func):
            continue
        model = _root_at_hand(program, module, call)
        if not model:
            continue
        statement = module.statement(call)
        for kind in random.sample(sorted(IN_LOOP), 2):
            code = IN_LOOP[kind].format(mark=MARK, model=model)
            end = module.rows(statement)[1]
            lines = [module.indent(statement) + line if line else "" for line in code.split("\n")]
            text = "\n".join(lines)
            changed = module.edited([(end, end, text)], imports="import torch.distributed")
            yield mutant(program, RULE, kind, {module.path: changed})


def _root_at_hand(program: Program, module: Module, node: ast.AST) -> str:
    """The root that the function around ``node`` names itself."""
    scope = node
    while scope in module.parents and not isinstance(scope, Function):
        scope = module.parents[scope]
    text = ast.unparse(scope).replace("'", '"')
    return (
        program.units[0] if re.search(rf"(?<![\w.]){re.escape(program.units[0])}\b", text) else ""
    )
