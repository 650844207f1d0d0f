"""The strategy that replaces one for FSDP1, and the code that shards for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.knowledge.lightning_settings import (
    FULL,
    OF_BOTH,
    PARALLEL_SINCE,
    PARALLEL_STRATEGY,
    STATES,
    STEPS,
    admitted,
)
from fsdplint.knowledge.names import REGISTER_FORWARD
from fsdplint.migrate.calls import definition
from fsdplint.migrate.fsdp2.lightning.fabric import marked, setups
from fsdplint.migrate.fsdp2.lightning.modules import accumulating, modules, sharded
from fsdplint.migrate.fsdp2.lightning.moved import Moved
from fsdplint.migrate.fsdp2.lightning.sharding import Conversion, Sharding, laid_out
from fsdplint.migrate.step import Context

# Where Lightning keeps a whole state if `state_dict_type` is not given.
_DEFAULT_STATES = {True: "full", False: "sharded"}


def check_releases(context: Context) -> None:
    """Raise `NoFixError` if the project admits releases of Lightning without the strategy."""
    releases = admitted(context.program.admits)
    if not releases or any(each.release < PARALLEL_SINCE for each in releases):
        since = ".".join(map(str, PARALLEL_SINCE))
        raise NoFixError(
            f"Lightning has `{PARALLEL_STRATEGY}` since {since}, and the project admits other "
            f"releases; require `lightning>={since}`, then migrate again"
        )


@dataclass(slots=True)
class Made:
    """What a migration adds beside the new strategy.

    Attributes:
        first: arguments of the new strategy.
    """

    edits: list[Edit] = field(default_factory=list)
    imports: list[Imports] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    sharding: Sharding = field(default_factory=lambda: Sharding("", ""))

    @property
    def what(self) -> str:
        """What the change does."""
        units = self.sharding.units.what
        return f"shard {f'{units} and the rest' if units else 'the model'} with `fully_shard`"

    @property
    def differs(self) -> str:
        """What is different afterwards."""
        return "; ".join(self.sharding.differs)


@dataclass(frozen=True, slots=True)
class NewStrategy:
    """The strategy that replaces one for FSDP1.

    Attributes:
        source: where the arguments of the old one are written, None for a config file.
        given: these arguments by name.
        precision: the full name of that of the trainer or `Fabric`.
    """

    context: Context
    source: Code | None
    given: Mapping[str, ir.Expr]
    precision: str
    accumulates: bool
    of_trainer: bool

    @property
    def states(self) -> str:
        """The kind of states that checkpoints hold.

        Raises:
            NoFixError: it is not written out.
        """
        value = self.given.get(STATES)
        if value is None:
            return _DEFAULT_STATES[self.of_trainer]
        meant = definition(self.source, value) if self.source else value
        if not isinstance(meant, ir.Constant) or meant.value not in _DEFAULT_STATES.values():
            raise NoFixError(f"the value of `{STATES}` is not written out; write it out")
        return str(meant.value)

    def _conversion(self, target: Code, node: ir.Node, model: str, mesh: str) -> Conversion:
        source, imports = self.source or target, Imports(target, node)
        moved = Moved(self.context, source, imports)
        made = Sharding(model, f'{mesh}["data_parallel"]')
        conversion = Conversion(self.context, source, moved, node, self.precision, made)
        others = (STATES, *OF_BOTH)
        conversion.convert({n: v for n, v in self.given.items() if n not in others})
        if self.states == "sharded" and self.of_trainer:
            made.differs.append("sharded checkpoints that FSDP1 saved do not load")
        return conversion

    def in_modules(self) -> Made:
        """Return how the modules of the program shard themselves.

        Raises:
            NoFixError: there are none, or one cannot.
        """
        made, found = Made(), modules(self.context)
        for module in found:
            conversion = self._conversion(module.code, module.node, "self", "self.device_mesh")
            made.sharding = conversion.made
            made.imports.append(conversion.moved.imports)
            made.edits += sharded(module, conversion)
            if self.accumulates:
                made.edits += accumulating(self.context, module, conversion.moved.imports)
        if not found:
            raise NoFixError(
                "the program defines no `LightningModule`; derive one from that of the library, "
                "and shard it in `configure_model` by hand"
            )
        return made

    def in_function(self, code: Code, node: ir.Node) -> Made:
        """Return how a function above the one of ``node`` shards a model."""
        top = next(each for each in code.module.body if each.end >= node.end)
        conversion = self._conversion(code, top, "model", "device_mesh")
        name = fresh(code, node, fresh(code, top, "shard"))
        lines = [f"def {name}(model, device_mesh):{code.newline}"]
        lines += laid_out(code, conversion.lines(), code.unit)
        lines += laid_out(code, self._registered(conversion), code.unit)
        lines += [f"{code.unit}return model{code.newline}", code.newline, code.newline]
        edits = [code.insert_lines(code.extent(top)[0], "".join(lines)), *setups(self.context)]
        imports = [conversion.moved.imports]
        return Made(edits, imports, [f"parallelize_fn={name}"], conversion.made)

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
