"""collective-under-rank-guard: what every rank has to call is left to some of them."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Function, Module, modules, name_of
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "collective-under-rank-guard"
COLLECTIVES = {"barrier", "all_reduce", "clip_grad_norm_", "get_model_state_dict"}
COLLECTIVES |= {"get_optimizer_state_dict", "dcp.save", "dcp.load"}
IMPORTS = "import torch.distributed"
RANK = "torch.distributed.get_rank()"
HELPER = """
def on_first_rank():
    if not torch.distributed.is_initialized():
        return True
    return torch.distributed.get_rank() == 0
"""

# Ways to leave a statement to one rank; {s} is the statement.
STATEMENTS = {
    "if": f"if {RANK} == 0:\n    {{s}}",
    "if not": f"if not {RANK}:\n    {{s}}",
    "else": f"if {RANK} != 0:\n    pass\nelse:\n    {{s}}",
    "environment": """import os
if int(os.environ.get("RANK", "0")) == 0:
    {s}""",
    "local rank": """import os
if int(os.environ["LOCAL_RANK"]) < 1:
    {s}""",
    "helper": "if on_first_rank():\n    {s}",
    "flag": f"first = {RANK} == 0\nif first:\n    {{s}}",
    "attribute": f"""from types import SimpleNamespace
place = SimpleNamespace()
place.first = {RANK} == 0
if place.first:
    {{s}}""",
    "and": f"import sys\nif {RANK} == 0 and len(sys.argv) < 99:\n    {{s}}",
    "early return": f"""def by_one():
    if {RANK} != 0:
        return
    {{s}}

by_one()""",
    "continue": f"""for _ in range(1):
    if {RANK} != 0:
        continue
    {{s}}""",
    "match": f"""match {RANK}:
    case 0:
        {{s}}
    case _:
        pass""",
    "with the write": f"""if {RANK} == 0:
    {{s}}
    print("done")""",
    "callee": f"""def by_all():
    {{s}}

if {RANK} == 0:
    by_all()""",
    "decorated": f"""def first_only(function):
    def run(*args):
        if {RANK} == 0:
            return function(*args)
    return run

@first_only
def by_one():
    {{s}}

by_one()""",
}
EXPRESSIONS = {
    "conditional": f"{{s}} if {RANK} == 0 else None",
    "short circuit": f"{RANK} == 0 and {{s}}",
}
# Ways that look like it and are right.
LEGAL = {
    "both arms": f"if {RANK} == 0:\n    {{s}}\nelse:\n    {{s}}",
    "one process": f"""if torch.distributed.get_world_size() == 1 and {RANK} == 0:
    pass
{{s}}""",
    "not the rank": """import os
if os.environ.get("SAVE", "1") == "1":
    {s}""",
    "first rank first": f"""if {RANK} != 0:
    torch.distributed.barrier()
print("download")
if {RANK} == 0:
    torch.distributed.barrier()
{{s}}""",
    "the write only": f"{{s}}\nif {RANK} == 0:\n    print('done')",
    "an early return after it": f"""def by_all():
    {{s}}
    if {RANK} != 0:
        return
    print("done")

by_all()""",
}
# A read-only use of a model, of which the forward is a collective.
LOOK = {
    "evaluated by one": f"""if {RANK} == 0:
    with torch.no_grad():
        print({{call}})""",
    "evaluated by the caller": f"""def look():
    with torch.no_grad():
        return {{call}}

if {RANK} == 0:
    print(look())""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        for call in module.calls():
            if _is_collective(module, call):
                yield from _guarded(program, module, call, random)
            elif program.units and ast.unparse(call.func) == program.units[0]:
                yield from _looked_at(program, module, call, random)


def _is_collective(module: Module, call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    known = name in COLLECTIVES or name_of(call) in COLLECTIVES
    text = module.source(call)
    full = "options" in text if "state_dict" in text.partition("(")[0] else True
    return known and full


def _guarded(program: Program, module: Module, call: ast.Call, random: Random) -> Iterator[Mutant]:
    statement = module.statement(call)
    simple = isinstance(statement, (ast.Expr, ast.Assign, ast.Return))
    if not simple or module.indent(statement) != _line_indent(module, statement):
        return
    text = _marked(module, statement, call)
    alone = isinstance(statement, ast.Expr)
    kinds = [k for k in STATEMENTS if alone or ("callee" not in k and "return" not in k)]
    kinds = [k for k in kinds if alone or ("decorated" not in k and k != "continue")]
    for kind in random.sample(kinds, 3):
        yield _replaced(program, RULE, kind, module, statement, STATEMENTS[kind], text)
    if alone or (isinstance(statement, ast.Assign) and statement.value is call):
        kind = random.choice(sorted(EXPRESSIONS)) if alone else "conditional"
        yield _expression(program, kind, module, statement, call)
    kind = random.choice(sorted(LEGAL))
    if alone or kind not in ("an early return after it",):
        plain = text.replace(MARK, "")
        yield _replaced(program, "", f"legal {kind}", module, statement, LEGAL[kind], plain)


def _line_indent(module: Module, statement: ast.stmt) -> str:
    start = module.rows(statement)[0]
    line = module.text[start:].split("\n", 1)[0]
    return line[: len(line) - len(line.lstrip())]


def _marked(module: Module, statement: ast.stmt, call: ast.Call) -> str:
    """The statement at no depth, with a mark before the call."""
    start, end = module.span(statement)
    at = module.span(call)[0]
    text = module.text[start:at] + MARK + module.text[at:end]
    return textwrap.dedent(module.indent(statement) + text)


def _replaced(
    program: Program,
    rule: str,
    kind: str,
    module: Module,
    statement: ast.stmt,
    template: str,
    text: str,
) -> Mutant:
    lines = []
    for line in template.split("\n"):
        depth = line[: len(line) - len(line.lstrip())]
        inner = line.strip() == "{s}"
        lines.append(textwrap.indent(text, depth) if inner else line)
    return _put(program, rule, kind, module, statement, "\n".join(lines))


def _put(
    program: Program, rule: str, kind: str, module: Module, statement: ast.stmt, code: str
) -> Mutant:
    start, end = module.rows(statement)
    new = textwrap.indent(code, module.indent(statement)) + "\n"
    helper = HELPER if "on_first_rank" in code else ""
    edits: list[Edit] = [(start, end, new)]
    changed = module.edited(edits, imports=IMPORTS, helper=helper)
    return mutant(program, rule, f"{kind}, line {statement.lineno}", {module.path: changed})


def _expression(
    program: Program, kind: str, module: Module, statement: ast.stmt, call: ast.Call
) -> Mutant:
    start, end = module.span(call)
    new = EXPRESSIONS[kind].format(s=f"{MARK}{module.source(call)}")
    changed = module.edited([(start, end, new)], imports=IMPORTS)
    return mutant(program, RULE, f"{kind}, line {statement.lineno}", {module.path: changed})


def _looked_at(
    program: Program, module: Module, call: ast.Call, random: Random
) -> Iterator[Mutant]:
    """One more forward pass below the statement of ``call``, by one rank."""
    statement = module.statement(call)
    scope = module.functions(call)
    compound = isinstance(statement, (Function, ast.Return, ast.For, ast.With, ast.If))
    if compound or any(name in program.plain for name in scope):
        return
    kind = random.choice(sorted(LOOK))
    start, end = module.rows(statement)
    lines = LOOK[kind].format(call=f"{MARK}{module.source(call)}")
    code = module.text[start:end] + textwrap.indent(lines, module.indent(statement)) + "\n"
    changed = module.edited([(start, end, code)], imports="import torch\nimport torch.distributed")
    yield mutant(program, RULE, f"{kind}, line {statement.lineno}", {module.path: changed})
