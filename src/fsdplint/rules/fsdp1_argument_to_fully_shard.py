"""Arguments that `fully_shard` does not accept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import is_caught, is_for_some_releases
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.values import reachable
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.arguments import renamed, without
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.policies import (
    construction,
    is_offload_policy,
    meaning,
    offloads,
    precision_policy,
    unused,
)
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fsdp import FOREIGN, NEEDLESS, RENAMED, REPLACED, SHARDING_STRATEGIES, SINCE
from fsdplint.knowledge.policies import CPU_OFFLOAD_POLICY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD701",
    summary="`fully_shard` is called with an argument that it does not accept",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class ForeignArguments:
    """A call of FSDP2's `fully_shard` that raises a TypeError for its arguments.

    Attributes:
        names: keywords of FSDP1 or DDP, in the order of the call.
        late: keywords that a targeted release does not have yet.
        positional: the number of positional arguments after the module.
        blocks_sharded: other calls shard parts of the module.
    """

    shard: Shard
    names: tuple[str, ...]
    late: tuple[str, ...]
    positional: int
    blocks_sharded: bool


def foreign_arguments(program: Program) -> Iterator[ForeignArguments]:
    for trace in program.traces:
        for shard in trace.of(Shard):
            if shard.generation is not Generation.FSDP2:
                continue
            names = tuple(name for name in shard.keywords if name in FOREIGN)
            late = tuple(name for name in _written(shard) if _is_late(program, name))
            late = () if late and is_for_some_releases(trace, shard.site) else late
            positional = max(0, len(shard.positional) - 1)
            wrong = names or late or positional
            if wrong and not is_caught(program, shard.site, "TypeError"):
                inside = _parts_sharded(trace, shard)
                yield ForeignArguments(shard, names, late, positional, inside)


def _written(shard: Shard) -> list[str]:
    """Return the keywords in the call itself: a dict may add some for newer releases only."""
    return [each.keyword for each in shard.call.args if each.keyword in shard.keywords]


def _is_late(program: Program, keyword: str) -> bool:
    return keyword in SINCE and program.torch.concerns(upper=SINCE[keyword])


def _parts_sharded(trace: Trace, root: Shard) -> bool:
    parts = {part for part in reachable(root.module) if part is not root.module}
    others = [shard.module for shard in trace.of(Shard) if shard.module is not root.module]
    return any(each in parts or root.module in each.ancestors() for each in others)


def reports(program: Program) -> Iterator[Report]:
    for fact in foreign_arguments(program):
        shard = fact.shard
        yield Report(
            program.span(shard.site),
            _message(program, fact),
            "raises a TypeError",
            (*_places(fact), *program.conditions(shard.site)),
            partial(_fix, program, fact),
        )


def _message(program: Program, fact: ForeignArguments) -> str:
    function = f"`{program.text(fact.shard.site.path, fact.shard.call.func)}`"
    if fact.names:
        *others, last = [f"`{name}`" for name in fact.names]
        names = f"{', '.join(others)} or {last}" if others else last
        return f"{function} does not accept {names}: this call raises a TypeError"
    if fact.positional:
        return (
            f"{function} accepts only the module as a positional argument: this call raises a "
            "TypeError"
        )
    name = fact.late[0]
    since = ".".join(map(str, SINCE[name][:2]))
    return (
        f"{function} accepts `{name}` only since torch {since}: this call raises a TypeError on "
        "the older releases that you target"
    )


def _places(fact: ForeignArguments) -> Iterator[Evidence]:
    wrong = {*fact.names, *fact.late}
    for site in filter(None, (fact.shard.site, fact.shard.partial)):
        for argument in site.node.args if isinstance(site.node, ir.Call) else ():
            if argument.keyword in wrong:
                span = Span(site.path, argument.start, argument.end)
                yield Evidence(span, f"`{argument.keyword}` is passed here")


def _fix(program: Program, fact: ForeignArguments) -> Fix | Declined:
    if fact.late:
        return Declined(
            f"older releases have no equivalent of `{fact.late[0]}`; remove it, or raise the "
            "minimum release"
        )
    code = Code.of(program.tree(fact.shard.site.path))
    return pass_own_arguments(code, fact.shard.call, fact.blocks_sharded)


@builder
def pass_own_arguments(code: Code, call: ir.Call, blocks_sharded: bool) -> Fix:
    """``fully_shard(m, device_mesh=mesh, device_id=0)`` to ``fully_shard(m, mesh=mesh)``.

    Args:
        blocks_sharded: a wrap policy is not needed, since other calls shard the blocks.
    """
    if any(argument.star for argument in call.args):
        raise NoFixError("the call unpacks arguments; change them by hand where they are built")
    rewriting = _Rewriting(code, call, blocks_sharded)
    plain = [argument for argument in call.args if argument.keyword is None]
    for argument in plain[1:]:
        rewriting.mesh(argument)
    for argument in call.args:
        if argument.keyword in FOREIGN:
            rewriting.own(argument, str(argument.keyword))
    return rewriting.fix()


@dataclass(slots=True)
class _Rewriting:
    code: Code
    call: ir.Call
    blocks_sharded: bool
    edits: list[Edit] = field(default_factory=list)
    dropped: list[ir.Argument] = field(default_factory=list)
    replaced: list[ir.Expr] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    imports: list[Imports] = field(default_factory=list)
    safe: bool = True

    def fix(self) -> Fix:
        code, call = self.code, self.call
        if not self.named and not self.dropped:
            raise NoFixError("the arguments are set elsewhere; change them there by hand")
        if self.dropped and code.comments(call.start, call.end):
            raise NoFixError("the fix would lose a comment in the call; edit the call by hand")
        kept = [argument for argument in call.args if argument not in self.dropped]
        added = [edit for imports in self.imports for edit in imports.edits()]
        edits = [*self.edits, *without(code, call.args, kept), *added]
        gone = [*self.replaced, *(argument.value for argument in self.dropped)]
        edits += unused(code, gone, edits)
        return Fix(self.title(), Safety.SAFE if self.safe else Safety.UNSAFE, tuple(edits))

    def title(self) -> str:
        passed = ", ".join(f"`{name}`" for name in self.named)
        dropped = ", ".join(f"`{argument.keyword}`" for argument in self.dropped)
        parts = [passed and f"pass {passed}", dropped and f"drop {dropped}"]
        return " and ".join(filter(None, parts))

    def importing(self, use: ir.Expr) -> Imports:
        """Return the imports of the fix, which are placed for the first code that needs them."""
        if not self.imports:
            self.imports.append(Imports(self.code, use))
        return self.imports[0]

    def name(self, argument: ir.Argument, new: str) -> None:
        if new in self.named or any(a.keyword == new for a in self.call.args):
            raise NoFixError(f"`{new}` would be passed twice; remove one of the two by hand")
        self.edits.append(renamed(self.code, argument, new))
        self.named.append(new)

    def drop(self, argument: ir.Argument) -> None:
        self.dropped.append(argument)
        self.safe = False

    def mesh(self, argument: ir.Argument) -> None:
        """Pass a positional mesh by keyword."""
        text = self.code.short(argument)
        if "mesh" not in text.lower():
            raise NoFixError(f"`{text}` may not be a mesh; pass it by keyword by hand")
        self.name(argument, "mesh")

    def own(self, argument: ir.Argument, keyword: str) -> None:
        """Replace an argument of FSDP1 by the one that `fully_shard` has instead."""
        new = RENAMED.get(keyword)
        if keyword in NEEDLESS or is_default(argument.value, keyword):
            self.drop(argument)
        elif new == "mesh":
            self.name(argument, new)
        elif new == "mp_policy":
            self.name(argument, new)
            self.precision(argument)
        elif new == "offload_policy":
            self.offload(argument)
        elif keyword == "sharding_strategy":
            self.strategy(argument)
        elif keyword == "auto_wrap_policy" and self.blocks_sharded:
            self.drop(argument)
        else:
            raise NoFixError(REPLACED[keyword])

    def precision(self, argument: ir.Argument) -> None:
        made = construction(self.code, argument.value) or argument.value
        edits = precision_policy(self.code, argument.value, self.importing(made))
        self.edits += edits
        if edits:
            self.replaced.append(made)
            self.safe = False

    def offload(self, argument: ir.Argument) -> None:
        self.safe = False
        if not is_offload_policy(self.code, argument.value):
            if not offloads(self.code, argument.value):
                self.drop(argument)
                return
            value = argument.value
            policy = self.importing(value).name(*CPU_OFFLOAD_POLICY.rsplit(".", 1))
            self.edits.append(self.code.edit(value.start, value.end, f"{policy}()"))
            self.replaced.append(value)
        self.name(argument, "offload_policy")

    def strategy(self, argument: ir.Argument) -> None:
        """Replace a sharding strategy by `reshard_after_forward`, or drop it."""
        strategy = meaning(self.code, argument.value)
        if strategy == SHARDING_STRATEGIES + "FULL_SHARD":
            self.drop(argument)
        elif strategy == SHARDING_STRATEGIES + "SHARD_GRAD_OP":
            self.safe = False
            self.name(argument, "reshard_after_forward")
            value = argument.value
            self.edits.append(self.code.edit(value.start, value.end, "False"))
            self.replaced.append(value)
        else:
            raise NoFixError(REPLACED["sharding_strategy"])


def is_default(value: ir.Expr, keyword: str) -> bool:
    """Whether an argument only repeats the default."""
    return isinstance(value, ir.Constant) and value.value in (None, False) and keyword in REPLACED
