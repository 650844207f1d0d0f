"""Places that make an `FSDPStrategy`, or choose it by its word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.fixes.wrapping import WIDTH, wrapped
from fsdplint.knowledge.frameworks import STRATEGY_NAMES
from fsdplint.knowledge.lightning_settings import (
    DATA_SIZE,
    FSDP,
    FULL,
    NAMES,
    OF_BOTH,
    PARALLEL_SINCE,
    PARALLEL_STRATEGY,
    SAVES_SHARDS,
    STATES,
    STEPS,
    TENSOR_SIZE,
    admitted,
    is_fsdp,
    kind_of,
    package_of,
)
from fsdplint.knowledge.names import REGISTER_FORWARD
from fsdplint.migrate.fsdp2.calls import definition, strategy_calls
from fsdplint.migrate.fsdp2.lightning.fabric import marked, setups
from fsdplint.migrate.fsdp2.lightning.modules import accumulating, modules, sharded
from fsdplint.migrate.fsdp2.lightning.moved import Moved
from fsdplint.migrate.fsdp2.lightning.owners import Owner, owners, precision, world_size
from fsdplint.migrate.fsdp2.lightning.sharding import Conversion, Sharding, laid_out
from fsdplint.migrate.fsdp2.settings import arguments
from fsdplint.migrate.step import Change, Context, Found, attempt, kept

_WORDS = {name: {"cpu_offload"} if "offload" in name else set() for name in STRATEGY_NAMES}
# Where Lightning keeps a whole state if `state_dict_type` is not given.
_DEFAULT_STATES = {True: "full", False: "sharded"}


@dataclass(frozen=True, slots=True)
class Use:
    """An expression that makes or names a strategy for FSDP1.

    Attributes:
        cls: the name of the strategy's class, or of the owner that takes the word.
        owner: the trainer or `Fabric` that takes it, None if that does not show.
    """

    code: Code
    node: ir.Call | ir.Constant
    cls: str
    of_trainer: bool
    owner: Owner | None


def strategies(context: Context) -> Iterator[Found]:
    """Yield a change for each place that chooses FSDP1, or the reason why it stays."""
    for use in _uses(context):
        yield from attempt(use.code, use.node, partial(_changed, context, use))
    yield from _derived(context)


def _uses(context: Context) -> Iterator[Use]:
    seen: set[ir.Node] = set()
    for of_trainer in (True, False):
        for owner in owners(context, of_trainer=of_trainer):
            given = owner.get("strategy")
            for value in _values(owner.code, given) if given is not None else ():
                word = value.value if isinstance(value, ir.Constant) else None
                if word in STRATEGY_NAMES and isinstance(value, ir.Constant):
                    yield Use(owner.code, value, owner.cls, of_trainer, owner)
                cls = context.name(owner.code, value.func) if isinstance(value, ir.Call) else ""
                if isinstance(value, ir.Call) and is_fsdp(kind_of(cls)):
                    seen.add(value)
                    yield Use(owner.code, value, cls, of_trainer, owner)
    for code in context.codes(NAMES[FSDP]):
        for call in strategy_calls(context, code):
            cls = context.name(code, call.func)
            if call not in seen:
                yield Use(code, call, cls, kind_of(cls) == FSDP, None)


def _values(code: Code, value: ir.Expr) -> Iterator[ir.Expr]:
    """Yield what a value may be, as far as its text and the only assignment of it say."""
    if isinstance(value, ir.Conditional):
        yield from _values(code, value.body)
        yield from _values(code, value.orelse)
    elif isinstance(value, ir.Name):
        made = definition(code, value)
        if made is not value:
            yield from _values(code, made)
    else:
        yield value


def _derived(context: Context) -> Iterator[Found]:
    """Yield each class that is derived from the strategy, which may do anything."""
    for code in context.codes(NAMES[FSDP]):
        for node in code.walk(NAMES[FSDP]):
            for base in node.bases if isinstance(node, ir.ClassDef) else ():
                if is_fsdp(kind_of(context.name(code, base))):
                    reason = "a strategy of its own may do anything; derive it by hand from "
                    yield kept(code, base, f"{reason}`{PARALLEL_STRATEGY}`")


def _changed(context: Context, use: Use) -> Change:
    releases = admitted(context.program.admits)
    if not releases or any(each.release < PARALLEL_SINCE for each in releases):
        since = ".".join(map(str, PARALLEL_SINCE))
        raise NoFixError(
            f"Lightning has `{PARALLEL_STRATEGY}` since {since}, and the project admits other "
            f"releases; require `lightning>={since}`, then migrate again"
        )
    owner = use.owner or _owner(context, use)
    given = _arguments(use)
    imports = Imports(use.code, use.node)
    made = _Made(context, use, owner, given)
    if use.of_trainer:
        edits, others, sharding, first = made.in_modules()
    else:
        edits, others, sharding, first = made.in_function()
    name = imports.name(f"{package_of(use.cls)}.strategies", PARALLEL_STRATEGY)
    size = world_size(context, owner, use.node, imports)
    written = [*first, f"{DATA_SIZE}={size}", f"{TENSOR_SIZE}=1"]
    if made.states == "full":
        written.append(f"{SAVES_SHARDS}=False")
    written += [f"{each}={use.code.slice(given[each])}" for each in OF_BOTH if each in given]
    edits = [*edits, *_replaced(use.code, use.node, name, written)]
    units = f"{sharding.units.what} and the rest" if sharding.units.what else "the model"
    what = f"shard {units} with `fully_shard`"
    differs = "; ".join(sharding.differs)
    return Change(use.code.span(use.node), what, tuple(edits), (imports, *others), differs)


def _owner(context: Context, use: Use) -> Owner:
    """Return the owner that surely takes a strategy, or one of several that are alike.

    Raises:
        NoFixError: there is none.
    """
    found = list(owners(context, of_trainer=use.of_trainer))
    if not found:
        raise NoFixError(
            "no call passes it as `strategy`; pass it to a `Trainer` or `Fabric` in this program"
        )
    names = ("devices", "num_nodes", "precision")
    kinds = {
        tuple(each.code.slice(v) if (v := each.get(name)) else "" for name in names)
        for each in found
    }
    if len(kinds) > 1:
        raise NoFixError(
            "several calls may take it, with other devices or precisions; pass it to one of them"
        )
    return found[0]


def _arguments(use: Use) -> Mapping[str, ir.Expr]:
    """Return the arguments of a strategy by name.

    Raises:
        NoFixError: they are not all written out.
    """
    if isinstance(use.node, ir.Constant):
        return {name: ir.Constant(0, 0, True) for name in _WORDS[str(use.node.value)]}
    if any(each.keyword is None and not each.star for each in use.node.args):
        raise NoFixError("an argument has no keyword; write all of them as keywords")
    return arguments(use.code, use.node)


@dataclass(frozen=True, slots=True)
class _Made:
    """The code that shards as a strategy for FSDP1 does."""

    context: Context
    use: Use
    owner: Owner
    given: Mapping[str, ir.Expr]

    @property
    def states(self) -> str:
        """The kind of states that checkpoints hold."""
        value = self.given.get(STATES)
        if value is None:
            return _DEFAULT_STATES[self.use.of_trainer]
        meant = definition(self.use.code, value)
        if not isinstance(meant, ir.Constant) or meant.value not in ("full", "sharded"):
            raise NoFixError(f"the value of `{STATES}` is not written out; write it out")
        return str(meant.value)

    def _conversion(self, target: Code, node: ir.Node, model: str, mesh: str) -> Conversion:
        imports = Imports(target, node)
        moved = Moved(self.context, self.use.code, imports)
        made = Sharding(model, f'{mesh}["data_parallel"]')
        word = precision(self.context, self.owner)
        conversion = Conversion(self.context, self.use.code, moved, node, word, made)
        others = (STATES, *OF_BOTH)
        conversion.convert({n: v for n, v in self.given.items() if n not in others})
        if self.states == "sharded" and self.use.of_trainer:
            made.differs.append("sharded checkpoints that FSDP1 saved do not load")
        return conversion

    def in_modules(self) -> tuple[list[Edit], list[Imports], Sharding, list[str]]:
        """Return the edits that have the modules of the program shard themselves.

        Raises:
            NoFixError: there are none, or one cannot.
        """
        edits, imports, sharding = [], [], None
        for module in modules(self.context):
            conversion = self._conversion(module.code, module.node, "self", "self.device_mesh")
            sharding = conversion.made
            edits += sharded(module, conversion)
            if self.owner.accumulates:
                edits += accumulating(module, conversion.moved.imports)
            imports.append(conversion.moved.imports)
        if sharding is None:
            raise NoFixError(
                "the program defines no `LightningModule`; derive one from that of the library, "
                "and shard it in `configure_model` by hand"
            )
        return edits, imports, sharding, []

    def in_function(self) -> tuple[list[Edit], list[Imports], Sharding, list[str]]:
        """Return the edits that define a function which shards a model."""
        code = self.use.code
        top = next(each for each in code.module.body if each.end >= self.use.node.end)
        conversion = self._conversion(code, top, "model", "device_mesh")
        name = fresh(code, self.use.node, fresh(code, top, "shard"))
        lines = [f"def {name}(model, device_mesh):{code.newline}"]
        lines += laid_out(code, conversion.lines(), code.unit)
        lines += laid_out(code, self._registered(conversion), code.unit)
        lines += [f"{code.unit}return model{code.newline}", code.newline, code.newline]
        edits = [code.insert_lines(code.extent(top)[0], "".join(lines)), *setups(self.context)]
        return edits, [conversion.moved.imports], conversion.made, [f"parallelize_fn={name}"]

    def _registered(self, conversion: Conversion) -> Iterator[str]:
        """Yield lines that register the methods which a `Fabric` calls as forwards.

        Raises:
            NoFixError: it would no longer compute in the same precision there.
        """
        methods = marked(self.context) + ([*STEPS] if modules(self.context) else [])
        if not methods:
            return
        if conversion.precision != FULL:
            raise NoFixError(
                f"`Fabric` calls `{methods[0]}` without `precision={conversion.precision}` under "
                f"`{PARALLEL_STRATEGY}`; have `forward` do its work by hand"
            )
        imports, unit = conversion.moved.imports, conversion.moved.imports.code.unit
        register = imports.name(*REGISTER_FORWARD.rsplit(".", 1))
        names = ", ".join(f'"{each}"' for each in methods)
        yield f"for method in ({names}{',' * (len(methods) == 1)}):"
        yield f"{unit}if hasattr(model, method):"
        yield f"{unit}{unit}{register}(model, method)"


def _replaced(code: Code, node: ir.Expr, name: str, written: list[str]) -> Iterator[Edit]:
    """Yield the edits that make the new strategy, with the comments of the old one above it."""
    indent = code.indentation(code.statement(node))
    comments = code.comments_in(node.start, node.end)
    if comments:
        text = "".join(f"{indent}{each}{code.newline}" for each in comments)
        yield code.insert_lines(code.extent(code.statement(node))[0], text)
    text = f"{name}({', '.join(written)})"
    line = code.line(node.start)
    own = line[: len(line) - len(line.lstrip())]
    before = node.start - code.line_start(node.start)
    text = f"{code.newline}{own}".join(wrapped(text, code.unit, WIDTH - before))
    yield code.edit(node.start, node.end, text)
