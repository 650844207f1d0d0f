"""Models that are moved to the GPU though FSDP keeps their shards on the CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.backends import where_cuda_is
from fsdplint.engine.facts.branches import follows, is_caught
from fsdplint.engine.facts.layers import with_parameters
from fsdplint.engine.facts.policies import given
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.facts.weights import first_forward, related
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Symbol,
    Value,
    class_names,
    followed,
    may_be,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.arguments import argument_of, set_argument, without
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.launch import CURRENT_DEVICE, MOVES, TORCH_DEVICE
from fsdplint.knowledge.modules import WITHOUT_PARAMETERS
from fsdplint.knowledge.policies import ARGUMENTS, CPU_OFFLOAD, CPU_OFFLOAD_POLICY, OFFLOAD_PARAMS
from fsdplint.knowledge.ranks import Role
from fsdplint.knowledge.suspicious_words import means_offload, means_parallel_mode
from fsdplint.knowledge.tensors import DTYPES
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD405",
    summary="a model with CPU offload is moved to the GPU",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it finds three of the four known real bugs of its kind.",
)

_OFFLOADS = (CPU_OFFLOAD, CPU_OFFLOAD_POLICY)


@dataclass(frozen=True, slots=True)
class MovedUnderOffload:
    """A module that is moved to CUDA though it is sharded with CPU offload.

    Attributes:
        policy: where the object is made that asks for the offload.
        use: the first forward, or the call that reads the state of an FSDP2 model.
    """

    move: Call
    shard: Shard
    policy: Site
    use: Call

    @property
    def reads_state(self) -> bool:
        return self.use.name == "state_dict"


def moves_under_offload(program: Program) -> Iterator[MovedUnderOffload]:
    """Moves to CUDA of modules that FSDP keeps on the CPU, with the call that fails."""
    for trace in program.traces:
        moves = [call for call in trace.calls(*MOVES) if moves_to_cuda(program, call)]
        for move in moves:
            if isinstance(move.receiver, Object):
                uses = [first_forward(trace, move.receiver, move.time), _state(trace, move)]
                known = sorted((use for use in uses if use is not None), key=lambda use: use.time)
                facts = (_failure(program, trace, move, move.receiver, use) for use in known)
                yield from [fact for fact in facts if fact is not None][:1]


def _state(trace: Trace, move: Call) -> Call | None:
    """The first call behind a move that reads the state of the module."""
    module = move.receiver
    for call in trace.calls("state_dict"):
        read = call.receiver
        known = isinstance(read, Object) and isinstance(module, Object)
        if call.time > move.time and known and related(module, read):  # type: ignore[arg-type]  # known
            return call
    return None


def _failure(
    program: Program, trace: Trace, move: Call, module: Object, use: Call
) -> MovedUnderOffload | None:
    """The fact that a use fails behind a move, if it surely does."""
    if is_caught(program, use.site, "RuntimeError") or not follows(trace, move.site, use.site):
        return None
    if _may_be_undone(program, trace, module, move.time, use.time):
        return None
    for shard in _units(trace, module, move.time):
        policy = _offload(shard)
        if policy is None:
            continue
        fact = MovedUnderOffload(move, shard, policy.site, use)  # type: ignore[arg-type]  # made by a call
        if fact.reads_state:
            fails = shard.generation is Generation.FSDP2 and _is_pinned(policy)
        else:
            fails = first_forward(trace, module, shard.time) is use
        meets = fails and _can_meet(program, trace, move.site, fact.policy)
        if meets and program.together(move.site, shard.site):
            return fact
    return None


def _units(trace: Trace, module: Object, before: int) -> list[Shard]:
    """The sharding calls that made units of parameters of ``module``, from the outside in.

    The nearest one around the module has the parameters that no call inside it has.
    """
    shards = [shard for shard in trace.of(Shard) if shard.time < before]
    inside = [shard for shard in shards if module in shard.module.ancestors()]
    for around in (module, *module.ancestors()):
        units = [shard for shard in shards if shard.module is around]
        if units:
            whole = around is module or any(with_parameters(module, {s.module for s in inside}))
            return [*units[-1:], *inside] if whole else inside
    return inside


def _offload(shard: Shard) -> Object | None:
    """The policy that keeps the parameters of a unit on the CPU, be it by an option.

    Its site has the conditions under which it is made.
    """
    if shard.may_leave_out:
        return None
    for argument in ARGUMENTS:
        if argument.own in _OFFLOADS and argument.generation == shard.generation.value:
            value = shard.keywords.get(argument.keyword) or given(shard, argument)
            made = [each for each in may_be(value) if isinstance(each, Object)]
            on = [each for each in made if argument.own in class_names(each.cls) and _is_on(each)]
            return on[0] if on and on[0].site is not None else None
    return None


def _is_pinned(policy: Object) -> bool:
    """Whether FSDP2 puts the shards into pinned memory, again behind each move."""
    given = policy.args[0] if policy.args else policy.keywords.get("pin_memory", Const(True))
    flag = must_be(given)
    return isinstance(flag, Const) and flag.value is True


def _is_on(policy: Object) -> bool:
    """Whether a policy offloads: FSDP1's says so by a field, which is off by default."""
    if CPU_OFFLOAD_POLICY in class_names(policy.cls):
        return True
    flag = must_be(policy.args[0] if policy.args else policy.keywords.get(OFFLOAD_PARAMS))
    return isinstance(flag, Const) and flag.value is True


def _can_meet(program: Program, trace: Trace, move: Site, policy: Site) -> bool:
    """Whether one run surely can make the policy and the move.

    Where each depends on an option of its own, these may be about the same, unless only that of
    the policy is about the offload.
    """
    denied = {(key, not outcome) for key, outcome in trace.decisions}
    if any((guard.key, guard.taken) in denied for guard in policy.guards):
        return False
    if exclude_each_other(move, policy):
        return False
    if program.apart(move, policy):
        own = program.own_branches(policy, move)
        offloads = any(means_offload(program.words(guard)) for guard in own)
        others = [g for g in program.own_branches(move, policy) if not _asks_for_cpu(program, g)]
        words = [program.words(guard) for guard in others]
        if not offloads or any(means_offload(w) or means_parallel_mode(w) for w in words):
            return False
    return not any(guard.divergent for guard in move.guards)


def _asks_for_cpu(program: Program, guard: Guard) -> bool:
    """Whether a branch is taken where a parameter is on the CPU, as the offload has it."""
    tree = program.tree(guard.path)
    return guard.taken and any(
        isinstance(part, ir.Compare)
        and part.op == "Equal"
        and isinstance(part.right, ir.Constant)
        and part.right.value == "cpu"
        and _is_device_of_parameter(tree.meaning(part.left))
        for part in ir.operands(guard.test, "or")
    )


def _is_device_of_parameter(node: ir.Expr) -> bool:
    """Whether an expression is ``next(model.parameters()).device`` or the type of it."""
    if isinstance(node, ir.Attribute) and node.attr == "type":
        node = node.value
    if not isinstance(node, ir.Attribute) or node.attr != "device":
        return False
    first = node.value
    named = isinstance(first, ir.Call) and ir.last_name(first.func) == "next" and first.args
    every = first.args[0].value if named and isinstance(first, ir.Call) else None
    return isinstance(every, ir.Call) and ir.last_name(every.func) == "parameters"


def _may_be_undone(program: Program, trace: Trace, module: Object, start: int, end: int) -> bool:
    """Whether something in a time puts the parameters on the CPU again, or may do so."""
    escapes = (each for each in trace.escapes if start < each.time < end)
    if any(_may_move(module, each) for escape in escapes for each in escape.objects):
        return True
    for call in trace.calls(*MOVES, "load_state_dict"):
        inside = start < call.time < end and isinstance(call.receiver, Object)
        if not inside or not related(module, call.receiver):  # type: ignore[arg-type]  # an Object
            continue
        if call.name == "load_state_dict":
            undone = "assign" in call.arguments.keywords or call.arguments.open
        else:
            undone = not moves_to_cuda(program, call) and not _casts_only(call)
        if undone:
            return True
    return False


def _may_move(module: Object, given: Object) -> bool:
    """Whether what unknown code is given may hold parameters of a module."""
    steps = (each.step for each in (given, *given.ancestors()))
    return related(module, given) and WITHOUT_PARAMETERS.isdisjoint(steps)


# Devices


def moves_to_cuda(program: Program, call: Call) -> bool:
    """Whether a call surely puts a module on CUDA, wherever there is CUDA."""
    if call.name == "cuda":
        return True
    value = call.arguments.get(0, "device")
    if value is None or call.name == "cpu":
        return False
    written = argument_of(call.site.node, 0, "device")  # type: ignore[arg-type]  # a call
    node = None if written is None else written.value
    return _is_cuda(program, value, call.site.path, node)


def _is_cuda(program: Program, value: Value, path: str, written: ir.Expr | None) -> bool:
    """Whether a device, which is ``written`` in the file at ``path``, surely is on CUDA."""
    options = may_be(value)
    if all(_is_one(program, each) for each in options):
        return True
    chosen = None if written is None else program.tree(path).chosen(written)
    node = None if chosen is None else where_cuda_is(program, path, *chosen)
    return node is not None and len(options) == 2 and any(_is_text(each) for each in ir.walk(node))


def _is_one(program: Program, value: Value) -> bool:
    """Whether a device that is no choice is on CUDA; an index alone is one of CUDA's."""
    if isinstance(value, Const):
        return type(value.value) is int or _names_cuda(value.value)
    if not isinstance(value, Object):
        return False
    if TORCH_DEVICE in class_names(value.cls):
        kind = value.args[0] if value.args else value.keywords.get("device")
        path, call = value.made_by or ("", None)
        written = argument_of(call, 0, "device") if isinstance(call, ir.Call) else None
        return kind is not None and _is_cuda(
            program, kind, path, None if written is None else written.value
        )
    is_text = value.site is not None and _is_text(value.site.node)
    maker = None if value.made_by is None else ir.last_name(value.made_by[1].func)
    return is_text or value.role is Role.NUMBER or maker in CURRENT_DEVICE


def _is_text(node: ir.Node) -> bool:
    """Whether a literal names a device of CUDA, such as ``f"cuda:{rank}"``."""
    if isinstance(node, ir.FormattedString):
        return bool(node.literals) and _names_cuda(node.literals[0])
    return isinstance(node, ir.Constant) and _names_cuda(node.value)


def _names_cuda(text: object) -> bool:
    return isinstance(text, str) and text.partition(":")[0] == "cuda"


def _casts_only(call: Call) -> bool:
    return call.name == "to" and _is_dtype(call.arguments.get(0, "device"))


def _is_dtype(value: Value | None) -> bool:
    value = followed(value)
    return value is None or (isinstance(value, Symbol) and value.name in DTYPES)


def reports(program: Program) -> Iterator[Report]:
    by_move = defaultdict[ir.Node, list[MovedUnderOffload]](list)
    for fact in moves_under_offload(program):
        by_move[fact.move.site.node].append(fact)
    for facts in by_move.values():
        fact, move, shard = facts[0], facts[0].move.site, facts[0].shard.site
        wrap = program.text(shard.path, fact.shard.call.func)
        yield Report(
            program.span(move),
            f"`{program.text(move.path, move.node)}` moves parameters to the GPU, but `{wrap}` "
            f"{program.where(shard, move)} offloads them to the CPU: "
            f"{'`state_dict`' if fact.reads_state else 'the forward'} "
            f"{program.where(fact.use.site, move)} crashes",
            "must stay on the CPU",
            (
                program.evidence(shard, "sharded here"),
                program.evidence(fact.policy, "keeps parameters on the CPU"),
                program.evidence(fact.use.site, "this raises an exception"),
                *dict.fromkeys(each for one in facts for each in _leads_to(program, one)),
                *program.conditions(move, shard, fact.policy),
            ),
            partial(_fix, program, fact),
        )


def _leads_to(program: Program, fact: MovedUnderOffload) -> Iterator[Evidence]:
    """The call that leads to a move in a helper, in the function that leads to the use, too."""
    moved, used = fact.move.site.frames(), fact.use.site.frames()
    apart = next(
        (i for i, (one, two) in enumerate(zip(moved, used, strict=False)) if one != two), 0
    )
    if apart < len(moved) - 1:
        yield program.evidence(Site(*moved[apart]), "leads to the move")


def _fix(program: Program, fact: MovedUnderOffload) -> Fix | Declined:
    module, call = fact.move.receiver, fact.move.site.node
    assert isinstance(module, Object)
    assert isinstance(call, ir.Call)
    if fact.shard.module not in (module, *module.ancestors()):
        return Declined("unsharded parts of the model may need the move; move only these by hand")
    code = Code.of(program.tree(fact.move.site.path))
    if fact.move.name == "to_empty":
        return set_argument(code, call, 0, "device", '"cpu"', Safety.UNSAFE)
    kept = () if _casts_only(fact.move) else _dtypes(fact.move, call)
    return stay(code, call, kept)


def _dtypes(move: Call, call: ir.Call) -> tuple[ir.Argument, ...]:
    """The arguments of ``to`` that have it cast the module, too."""
    found = argument_of(call, 1, "dtype") if move.name == "to" else None
    return () if found is None else (found,)


@builder
def stay(code: Code, call: ir.Call, kept: tuple[ir.Argument, ...]) -> Fix:
    """Take a move away: its statement, or the call alone where more hangs on it.

    Args:
        kept: the arguments that are about something else than the device.
    """
    receiver = call.func.value if isinstance(call.func, ir.Attribute) else None
    if receiver is None or any(given.star for given in call.args):
        raise NoFixError(
            f"`{code.short(call)}` does not show what it moves; remove the move by hand"
        )
    title = f"leave `{code.short(receiver)}` on the CPU"
    if kept:
        return Fix(title, Safety.UNSAFE, tuple(without(code, call.args, kept)))
    statement = code.statement(call)
    if not _is_all(code, statement, call, receiver):
        edit = code.edit(receiver.end, call.end, "")
    elif len(code.block(statement).statements) == 1:
        raise NoFixError(
            f"`{code.short(statement)}` is the only statement of its block; remove the move by hand"
        )
    else:
        edit = code.delete_lines(*code.extent(statement))
    return Fix(title, Safety.UNSAFE, (edit,))


def _is_all(code: Code, statement: ir.Stmt, call: ir.Call, receiver: ir.Expr) -> bool:
    """Whether a statement does nothing but the move: ``model.cuda()``, ``model = model.cuda()``."""
    if not isinstance(statement, (ir.Expression, ir.Assign)) or statement.value is not call:
        return False
    if dotted(receiver) is None:
        return False
    targets = statement.targets if isinstance(statement, ir.Assign) else ()
    return all(code.slice(target) == code.slice(receiver) for target in targets)
