"""What the arguments of `FSDPStrategy` become: lines that shard a model with `fully_shard`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import binders, fresh
from fsdplint.fixes.wrapping import WIDTH, wrapped
from fsdplint.knowledge.fsdp import SHARDING_STRATEGIES
from fsdplint.knowledge.lightning_settings import (
    CHECKPOINTING_POLICY,
    DTYPES,
    MESH,
    MIXED_PRECISION,
    POLICY,
    SHARDING,
)
from fsdplint.knowledge.names import (
    COMPOSABLE_CHECKPOINT,
    DEVICE_MESH_PACKAGE,
    DISTRIBUTED,
    FULLY_SHARD,
)
from fsdplint.knowledge.policies import (
    CPU_OFFLOAD,
    CPU_OFFLOAD_POLICY,
    MIXED_PRECISION_POLICY,
    OFFLOAD_PARAMS,
)
from fsdplint.knowledge.policies import (
    MIXED_PRECISION as OLD_PRECISION,
)
from fsdplint.migrate.calls import definition
from fsdplint.migrate.fsdp2.lightning.moved import Moved
from fsdplint.migrate.fsdp2.policies import argument, casts_inputs
from fsdplint.migrate.fsdp2.strategies import HYBRID, KEEPING
from fsdplint.migrate.fsdp2.units import Units, loop, of_classes, selected
from fsdplint.migrate.step import Context

# Arguments that FSDP2 needs no counterpart of.
_NEEDLESS = frozenset(
    {"backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params"}
)


@dataclass(slots=True)
class Sharding:
    """How a model is sharded.

    Attributes:
        model: the name of the model.
        mesh: the expression of the mesh.
        before: lines to run first.
        shared: arguments of every `fully_shard` call.
        casts: whether the root, and the other units, cast their inputs.
        differs: what is different afterwards.
    """

    model: str
    mesh: str
    units: Units = field(default_factory=Units)
    before: list[str] = field(default_factory=list)
    shared: dict[str, str] = field(default_factory=dict)
    casts: tuple[bool, bool] = (True, False)
    differs: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Conversion:
    """The arguments of one strategy.

    Attributes:
        moved: brings expressions to the code that shards.
        use: the node of that code.
        precision: the precision of the trainer.
    """

    context: Context
    code: Code
    moved: Moved
    use: ir.Node
    precision: str
    made: Sharding

    def convert(self, given: Mapping[str, ir.Expr]) -> Sharding:
        """Return how the model is sharded.

        Raises:
            NoFixError: an argument has no counterpart.
        """
        for name, value in given.items():
            if isinstance(value, ir.Constant) and value.value in (None, False):
                continue
            convert = _CONVERSIONS.get(name)
            if convert is not None:
                convert(self, value)
            elif name not in _NEEDLESS:
                raise NoFixError(f"`{name}` has no counterpart; remove it by hand")
        if "mp_policy" not in self.made.shared:
            self._plugin_precision()
        return self.made

    def policy(self, value: ir.Expr) -> None:
        units = self._units(value)
        if units is None and not self._is_callable(definition(self.code, value)):
            raise NoFixError(
                f"`{self.code.short(value)}` does not show which modules it selects; name their "
                f"classes in `{POLICY}` by hand"
            )
        what = f"each module that `{self.code.short(value)}` selects"
        self.made.units = units or Units(policy=self.moved.text(value), what=what)

    def _is_callable(self, policy: ir.Expr) -> bool:
        """Return whether a policy is surely a function, which can be asked at run time."""
        if isinstance(policy, ir.Call):
            return self.context.name(self.code, policy.func) == "functools.partial"
        if not isinstance(policy, ir.Name):
            return isinstance(policy, ir.Lambda)
        bound = binders(self.code, self.code.module).get(policy.id, [])
        return bool(bound) and all(isinstance(each, ir.FunctionDef) for each in bound)

    def _units(self, value: ir.Expr) -> Units | None:
        policy = definition(self.code, value)
        if isinstance(policy, ir.Collection):
            return of_classes(self.code, policy, self.moved.text)
        return selected(self.context, self.code, policy, self.moved.text)

    def strategy(self, value: ir.Expr) -> None:
        kind = self._strategy(value)
        if kind == "NO_SHARD":
            raise NoFixError('use `strategy="ddp"` instead of `NO_SHARD`, by hand')
        if kind in KEEPING:
            self.made.shared["reshard_after_forward"] = "False"
        if kind in HYBRID and self.made.mesh.endswith("]"):
            dist = self._import_module(DISTRIBUTED, "dist")
            node = f"{self._import_module('torch', 'torch')}.cuda.device_count()"
            self._set_mesh(f"({dist}.get_world_size() // {node}, {node})")

    def _strategy(self, value: ir.Expr) -> str:
        meant = definition(self.code, value)
        if isinstance(meant, ir.Constant) and isinstance(meant.value, str):
            return meant.value.upper()
        name = self.context.name(self.code, meant)
        if not name.startswith(SHARDING_STRATEGIES):
            raise NoFixError(
                f"the program chooses `{self.code.short(value)}` when it runs; write the name of "
                "the strategy out"
            )
        return name.removeprefix(SHARDING_STRATEGIES)

    def mesh(self, value: ir.Expr) -> None:
        sizes = definition(self.code, value)
        if not isinstance(sizes, ir.Collection):
            raise NoFixError(f"write the tuple of sizes `{MESH}` out, by hand")
        self._set_mesh(f"({', '.join(map(self.moved.text, sizes.elements))})")

    def _set_mesh(self, sizes: str) -> None:
        make = self._import(f"{DEVICE_MESH_PACKAGE}.init_device_mesh")
        names = 'mesh_dim_names=("replicate", "shard")'
        self.made.mesh = f'{make}("cuda", {sizes}, {names})'

    def offload(self, value: ir.Expr) -> None:
        made = definition(self.code, value)
        if isinstance(made, ir.Call) and self.context.name(self.code, made.func) == CPU_OFFLOAD:
            given = [each.value for each in made.args if each.keyword in (None, OFFLOAD_PARAMS)]
            made = definition(self.code, given[0]) if given else made
        if not isinstance(made, ir.Constant):
            raise NoFixError(
                f"the program decides on `{self.code.short(value)}` when it runs; write it out"
            )
        if made.value:
            self.made.shared["offload_policy"] = f"{self._import(CPU_OFFLOAD_POLICY)}()"

    def checkpointing(self, value: ir.Expr) -> None:
        """Checkpoint activations by hooks, which do not rename the parameters as a wrapper does."""
        found = self._units(value) or self._of_classes(value)
        if found is None:
            raise NoFixError(
                f"`{self.code.short(value)}` does not show which modules it selects; name their "
                "classes by hand"
            )
        checkpoint = self._import(COMPOSABLE_CHECKPOINT)
        module = fresh(self.moved.imports.code, self.use, "module")
        unit, model = self.code.unit, self.made.model
        test = found.test.replace("module", module, 1)
        self.made.before += [
            f"for {module} in {model}.modules():",
            f"{unit}if {module} is not {model} and {test}:",
            f"{unit}{unit}{checkpoint}({module})",
        ]

    def _of_classes(self, value: ir.Expr) -> Units | None:
        """Return the units of the older argument, a class or several."""
        meant = definition(self.code, value)
        if isinstance(meant, (ir.Name, ir.Attribute)):
            return Units(f"isinstance(module, {self.moved.text(meant)})")
        return None

    def sync(self, _: ir.Expr) -> None:
        raise NoFixError("have all ranks begin with the same weights by `seed_everything`, by hand")

    def precision_of(self, value: ir.Expr) -> None:
        made = definition(self.code, value)
        name = self.context.name(self.code, made.func) if isinstance(made, ir.Call) else ""
        if not isinstance(made, ir.Call) or name != OLD_PRECISION or any(a.star for a in made.args):
            raise NoFixError(f"`{self.code.short(value)}` is not made in one place; write it out")
        self.made.casts = casts_inputs(self.code, made)
        compute, reduce = argument(made, "param_dtype"), argument(made, "reduce_dtype")
        fields = {"param_dtype": compute, "reduce_dtype": reduce or compute}
        texts = [f"{name}={self.moved.text(each)}" for name, each in fields.items() if each]
        if argument(made, "buffer_dtype") is not None:
            self.made.differs.append("FSDP2 does not cast buffers")
        self.made.shared["mp_policy"] = (
            f"{self._import(MIXED_PRECISION_POLICY)}({', '.join(texts)})"
        )

    def _plugin_precision(self) -> None:
        """Compute in the dtype that Lightning chooses for FSDP1 from the precision."""
        word = DTYPES[self.precision]
        if not word:
            return
        dtype = f"{self._import_module('torch', 'torch')}.{word}"
        policy = self._import(MIXED_PRECISION_POLICY)
        self.made.shared["mp_policy"] = f"{policy}(param_dtype={dtype}, reduce_dtype={dtype})"
        self.made.differs.append("FSDP2 does not cast buffers")

    def _import(self, name: str) -> str:
        return self.moved.imports.name(*name.rsplit(".", 1))

    def _import_module(self, name: str, alias: str) -> str:
        return self.moved.imports.module(name, alias)

    def lines(self) -> Iterator[str]:
        """Yield the lines that shard the model."""
        made, code, shard = self.made, self.moved.imports.code, self._import(FULLY_SHARD)
        yield from made.before
        yield f"mesh = {made.mesh}"
        shared = {"mesh": "mesh", **made.shared}
        policy = shared.pop("mp_policy", "")
        blocks = root = ""
        if policy:
            replace = self._import("dataclasses.replace")
            yield f"mp_policy = {policy}"
            off = f", mp_policy={replace}(mp_policy, cast_forward_inputs=False)"
            root, blocks = (", mp_policy=mp_policy" if on else off for on in made.casts)
        settings = "".join(f", {name}={text}" for name, text in shared.items())
        for line in loop(code, self.use, made.units, made.model, f"{settings}{blocks}"):
            yield line.replace("fully_shard(", f"{shard}(")
        yield f"{shard}({made.model}{settings}{root})"


_CONVERSIONS = {
    POLICY: Conversion.policy,
    "activation_checkpointing": Conversion.checkpointing,
    CHECKPOINTING_POLICY: Conversion.checkpointing,
    "cpu_offload": Conversion.offload,
    MESH: Conversion.mesh,
    MIXED_PRECISION: Conversion.precision_of,
    SHARDING: Conversion.strategy,
    "sync_module_states": Conversion.sync,
}


def laid_out(code: Code, lines: Iterator[str], indent: str) -> Iterator[str]:
    """Yield lines at a level of indentation, broken where they are too long."""
    for line in lines:
        for part in wrapped(line, code.unit, WIDTH - len(indent)):
            yield f"{indent}{part}{code.newline}" if part else code.newline
