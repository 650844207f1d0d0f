"""How a program comes up and down: its process group and the devices of its ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Module, indented, modules, name_of
from benchmarks.detection.mutators.materialized import models
from benchmarks.detection.program import MARK, Mutant, Program, mutant

ARGUMENTS = "process-group-arguments"
JOIN = "join-with-fsdp"
LOCAL = "save-guarded-by-local-rank"
OWN_PLACE = ("tmp", "temp", "scratch", "local", "node", "host", "shm", "rank", "cache")
LATE = "collective-after-destroy"
UNSET = "device-not-set"
UP = "process-group-not-destroyed"
# What stands in the place of the call that destroys the process group, a function beside it, and
# whether the group stays up.
UNUSED = """
def shut_down():
    torch.distributed.destroy_process_group()
"""
ENDS = {
    "nothing": ("None", "", True),
    "a function never called": ("None", UNUSED, True),
    "an exit handler": ("atexit.register({})", "", False),
}
INIT = 'torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")'
# What asks for a group before it makes one.
ASKS = "torch.distributed.is_initialized() or "
# A use of the current device, which is the first one in every process unless it is set.
CURRENT = {
    "cuda()": f"warm = {MARK}torch.zeros(8).cuda()\n",
    'to("cuda")': f'warm = {MARK}torch.zeros(8).to("cuda", non_blocking=True)\n',
    "to(device)": f'there = torch.device("cuda")\nwarm = {MARK}torch.zeros(8).to(there)\n',
}
MAKES = "torch.distributed.init_process_group"
# What stands behind the call that destroys the process group, and whether it needs one.
BEHIND = {
    "barrier": (f"{MARK}torch.distributed.barrier()\n", True),
    "reduction": (f"{MARK}torch.distributed.all_reduce(torch.ones(1))\n", True),
    "asked first": (
        "if torch.distributed.is_initialized():\n    torch.distributed.barrier()\n",
        False,
    ),
}
# What stands in the place of the call that makes the process group.
REFUSED = {
    "timeout": f"{MAKES}(timeout={MARK}1800)",
    "backend": f'{MAKES}({MARK}"cpu:gloo;cuda:nccl")',
    "misspelt": f'{MAKES}(backend={MARK}"ncll")',
    "device": f'{MAKES}("cpu:gloo,cuda:nccl", device_id={MARK}"cuda:0")',
    "twice": f"{MAKES}(); {MARK}{MAKES}()",
}
ACCEPTED = {
    "timedelta": f"{MAKES}(timeout=datetime.timedelta(seconds=1800))",
    "numbered": f'{MAKES}("gloo", "tcp://10.0.0.1:1?rank=0&world_size=1")',
    "one after another": f"{MAKES}(); torch.distributed.destroy_process_group(); {MAKES}()",
}
IN_GROUP = "local-rank-as-rank"
LOCAL_GROUPS = {
    "both": (
        f'{MAKES}("cpu:gloo,cuda:nccl", rank={MARK}int(os.environ["LOCAL_RANK"]), '
        'world_size=int(os.environ["WORLD_SIZE"]))'
    ),
    "rank": f'{MAKES}("cpu:gloo,cuda:nccl", rank={MARK}int(os.getenv("LOCAL_RANK", "0")))',
}
GLOBAL_GROUPS = {
    "all ranks": (
        f'{MAKES}("cpu:gloo,cuda:nccl", rank=int(os.environ["RANK"]), '
        'world_size=int(os.environ["WORLD_SIZE"]))'
    ),
    "one node": (
        f'{MAKES}("cpu:gloo,cuda:nccl", rank=int(os.environ["LOCAL_RANK"]), '
        'world_size=int(os.environ["LOCAL_WORLD_SIZE"]))'
    ),
}
GLOBAL = "global-rank-as-device"
# The rank among all nodes as a device: the lines behind the process group.
BY_GLOBAL_RANK = {
    "get_rank": f"torch.cuda.set_device({MARK}torch.distributed.get_rank())\n",
    "RANK": f'rank_ = int(os.environ["RANK"])\ntorch.cuda.set_device({MARK}rank_)\n',
    "torch.device": (
        f'where = torch.device("cuda", {MARK}int(os.environ.get("RANK", 0)))\n'
        "torch.zeros(1, device=where)\n"
    ),
    "text": f'torch.zeros(1).to(f"cuda:{{{MARK}torch.distributed.get_rank()}}")\n',
    "cuda": f'rank_ = int(os.getenv("RANK"))\ntorch.zeros(1).cuda({MARK}rank_)\n',
}
BY_LOCAL_RANK = {
    "modulo": "torch.cuda.set_device(torch.distributed.get_rank() % torch.cuda.device_count())\n",
    "LOCAL_RANK": "torch.zeros(1).to(f\"cuda:{int(os.environ['LOCAL_RANK'])}\")\n",
    "a device without a use": 'where = torch.device("cuda", torch.distributed.get_rank())\n',
    "not a device": 'rank_ = int(os.environ["RANK"])\ntorch.zeros(1).to(torch.int64).add(rank_)\n',
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        yield from _joined(program, module)
        yield from _written_by_node(program, module)
        for call in module.calls():
            if name_of(call) == "init_process_group":
                yield from _devices(program, module, call, random)
                yield from _left_up(program, module, call)
                yield from _unset(program, module, call)
                yield from _refused(program, module, call, random)
            elif name_of(call) == "destroy_process_group":
                yield from _late(program, module, call)


def _devices(program: Program, module: Module, init: ast.Call, random: Random) -> Iterator[Mutant]:
    one_node = any("spawn" in text for text in program.files.values())
    for kind in random.sample(sorted(BY_GLOBAL_RANK), 3):
        lines = BY_GLOBAL_RANK[kind].replace(MARK, "" if one_node else MARK)
        text = _behind(module, init, lines)
        yield mutant(program, "" if one_node else GLOBAL, f"device of {kind}", {module.path: text})
    kind = random.choice(sorted(BY_LOCAL_RANK))
    text = _behind(module, init, BY_LOCAL_RANK[kind])
    yield mutant(program, "", f"device of {kind}", {module.path: text})


def _behind(module: Module, call: ast.Call, lines: str, imports: str = "import os, torch") -> str:
    """The module with ``lines`` behind the statement of ``call``."""
    statement = module.statement(call)
    end = module.rows(statement)[1]
    return module.edited([(end, end, indented(lines, module.indent(statement)))], imports=imports)


def _left_up(program: Program, module: Module, init: ast.Call) -> Iterator[Mutant]:
    """Nothing destroys the group any more, or what would is never called, or an exit handler."""
    start = module.span(init)[0]
    for kind, (instead, helper, expected) in ENDS.items():
        texts = {}
        for each in modules(program):
            calls = [call for call in each.calls() if name_of(call) == "destroy_process_group"]
            edits = [(*each.span(c), instead.format(ast.unparse(c.func))) for c in calls]
            if expected and each.path == module.path:
                edits.append((start, start, (ASKS if helper else "") + MARK))
            imports = "import atexit, torch" if "atexit" in instead and calls else ""
            imports = imports or "import torch" * (module.path == each.path)
            texts[each.path] = each.edited(edits, imports, helper if calls else "")
        yield mutant(program, UP if expected else "", f"destroyed by {kind}", texts)


def _late(program: Program, module: Module, destroy: ast.Call) -> Iterator[Mutant]:
    """All ranks meet once more where there is no group any more."""
    for kind, (lines, expected) in BEHIND.items():
        text = _behind(module, destroy, lines, imports="import torch")
        yield mutant(program, LATE if expected else "", f"{kind} at the end", {module.path: text})


def _unset(program: Program, module: Module, init: ast.Call) -> Iterator[Mutant]:
    """Every process puts a tensor on the current device, and none has chosen one before."""
    if module.source(init).endswith('("gloo")'):
        return  # CUDA is not there
    legal = any("device_mesh" in text or "device_id" in text for text in program.files.values())
    rule = "" if legal else UNSET
    end = module.rows(module.statement(init))[1]
    source = module.source(init)
    own = source if "cpu:gloo" in source else INIT  # one that offloads needs both backends
    for kind, line in CURRENT.items():
        lines = indented(line, module.indent(module.statement(init)))
        for chosen in False, True:
            texts = {}
            for each in modules(program):
                calls = [call for call in each.calls() if name_of(call) == "set_device"]
                edits = [] if chosen else [(*each.span(call), "None") for call in calls]
                if each.path == module.path:
                    made = ASKS + own if kind == "to(device)" else own
                    edits += [(*each.span(init), made), (end, end, lines)]
                texts[each.path] = each.edited(edits, "import torch" if edits else "")
            expected = "" if chosen else rule
            if not expected:
                texts = {path: text.replace(MARK, "") for path, text in texts.items()}
            yield mutant(program, expected, f"{kind}, {'' if chosen else 'not '}set", texts)


def _refused(program: Program, module: Module, init: ast.Call, random: Random) -> Iterator[Mutant]:
    """Arguments that it does not take, and some that it does."""
    kinds = [*random.sample(sorted(REFUSED), 3), random.choice(sorted(ACCEPTED))]
    for kind in kinds:
        asks = ASKS if kind in ("timeout", "misspelt") else ""
        text = module.edited(
            [(*module.span(init), asks + (REFUSED.get(kind) or ACCEPTED[kind]))],
            imports="import datetime, os, torch",
        )
        rule = ARGUMENTS if kind in REFUSED else ""
        yield mutant(program, rule, f"made with {kind}", {module.path: text})
    if any("spawn" in text for text in program.files.values()):
        return  # it runs on one node
    for kind, code in (LOCAL_GROUPS | GLOBAL_GROUPS).items():
        text = module.edited([(*module.span(init), code)], imports="import os, torch")
        rule = IN_GROUP if kind in LOCAL_GROUPS else ""
        yield mutant(program, rule, f"a group of {kind}", {module.path: text})


def _joined(program: Program, module: Module) -> Iterator[Mutant]:
    """The sharded model, or another one, in a context for uneven batches."""
    for root in models(program, module):
        statement = module.statement(root)
        if not isinstance(statement, ast.Expr) or statement.value is not root:
            continue
        model, end = module.source(root.args[0]), module.rows(statement)[1]
        for joined in f"[{MARK}{model}]", f"[ddp, {MARK}{model}]", "[ddp]":
            lines = (
                "ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
                f"with torch.distributed.algorithms.Join({joined}):\n    print('joined')\n"
            )
            edit = (end, end, indented(lines, module.indent(statement)))
            text = module.edited([edit], imports="import torch")
            rule = JOIN if MARK in joined else ""
            kind = f"joined {joined.replace(MARK, '')}"
            yield mutant(program, rule, kind, {module.path: text})


def _written_by_node(program: Program, module: Module) -> Iterator[Mutant]:
    """The test of the rank that a file is written under, made one of the local rank."""
    one_node = any("spawn" in text for text in program.files.values())
    for branch in (node for node in ast.walk(module.tree) if isinstance(node, ast.If)):
        ranks = [call for call in ast.walk(branch.test) if _is_rank(call)]
        inside = [node for statement in branch.body for node in ast.walk(statement)]
        calls = [node for node in inside if isinstance(node, ast.Call)]
        saves = [call for call in calls if ast.unparse(call.func) == "torch.save"]
        if len(ranks) != 1 or not saves or branch.orelse:
            continue
        shared = not any(word in ast.unparse(saves[0].args[1]).lower() for word in OWN_PLACE)
        rule = LOCAL if shared and not one_node else ""
        local = 'int(os.environ["LOCAL_RANK"])'
        start, mark = module.span(saves[0])[0], MARK * bool(rule)
        edits = [(*module.span(ranks[0]), local), (start, start, mark)]
        text = module.edited(edits, imports="import os")
        yield mutant(program, rule, f"written by node, line {branch.lineno}", {module.path: text})


def _is_rank(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node) == "get_rank" and not node.args
