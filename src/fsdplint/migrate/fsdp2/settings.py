"""What the arguments of `FSDP(…)` become: settings of `fully_shard`, and lines around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.finding import Span
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
from fsdplint.fixes.wrapping import on_one_line
from fsdplint.knowledge.checkpoints import HELPERS
from fsdplint.knowledge.fsdp import FSDP1_ARGUMENTS, SHARDING_STRATEGIES
from fsdplint.knowledge.launch import TORCH_DEVICE
from fsdplint.knowledge.names import DEVICE_MESH_PACKAGE, DISTRIBUTED, NN
from fsdplint.knowledge.policies import (
    BATCH_NORM,
    BATCH_NORM_WORDS,
    MIXED_PRECISION,
    MIXED_PRECISION_POLICY,
)
from fsdplint.migrate.calls import definition, may_be_none, possible_values
from fsdplint.migrate.fsdp2.averaged import averages_weights
from fsdplint.migrate.fsdp2.filled import items
from fsdplint.migrate.fsdp2.meta import may_be_on_meta
from fsdplint.migrate.fsdp2.policies import castings, casts_buffers
from fsdplint.migrate.fsdp2.strategies import (
    HYBRID,
    KEEPING,
    TWO_DIMENSIONAL,
    enumeration,
    is_one_of,
    mentioned,
)
from fsdplint.migrate.fsdp2.units import has_units
from fsdplint.migrate.fsdp2.unused_parameters import use_may_differ
from fsdplint.migrate.sharding import on_its_own
from fsdplint.migrate.step import Context, Question

# The type at the start of a text that names a device.
_DEVICE_TYPE = re.compile(r"""[fF]?["']([a-z]+)""")
_POLICIES = frozenset({MIXED_PRECISION, MIXED_PRECISION_POLICY})
# The answers to which strategy an expression selects.
_STRATEGIES = {
    "full-shard": "FULL_SHARD",
    "shard-grad-op": "SHARD_GRAD_OP",
    "hybrid-shard": "HYBRID_SHARD",
    "no-shard": "NO_SHARD",
}


@dataclass(slots=True)
class Settings:
    """The arguments of one `FSDP(…)` as they become.

    Attributes:
        before: lines to run before the model is sharded, and `after` lines to run after it.
        norms: the class of batch norms that are units of their own, "" for none; their arguments
            are `of_norms`.
        buffers: lines that cast the buffers, for later still.
        shared: arguments of every `fully_shard` call.
        root: those of the root alone, and `blocks` those of all other units.
        differs: what is different afterwards, "" if nothing is.
    """

    model: str
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    shared: dict[str, str] = field(default_factory=dict)
    root: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, str] = field(default_factory=dict)
    norms: str = ""
    of_norms: dict[str, str] = field(default_factory=dict)
    differs: str = ""


def arguments(code: Code, call: ir.Call) -> dict[str, ir.Expr]:
    """Return the arguments of an `FSDP(…)` after the module, those of a `**settings` too.

    Raises:
        NoFixError: they are not all written out.
    """
    found: dict[str, ir.Expr] = {}
    for index, given in enumerate(call.args):
        if given.star == "**":
            found |= _unpacked(code, given.value)
        elif given.star or (not given.keyword and index > len(FSDP1_ARGUMENTS)):
            raise NoFixError(
                f"`{code.short(given)}` hides the arguments; write them out, then migrate again"
            )
        elif given.keyword not in ("module", "wrapper_cls") and (index or given.keyword):
            found[given.keyword or FSDP1_ARGUMENTS[index - 1]] = given.value
    return found


def _unpacked(code: Code, value: ir.Expr) -> Mapping[str, ir.Expr]:
    """Return the items of a dict that is made in one statement and only unpacked."""
    made = code.meaning(value)
    hidden = NoFixError(
        f"`**{code.short(value)}` hides the arguments; write them out, then migrate again"
    )
    name = dotted(value)
    uses = [n for n in code.nodes_of(code.scope(value)) if dotted(n) == name]
    unpacks = [n for n in uses if getattr(code.parent(n), "star", "") == "**"]
    if name is not None and len(uses) - len(unpacks) != 1:
        raise hidden
    found = items(made)
    if found is None:
        raise hidden
    return found


def settings_of(
    context: Context, code: Code, call: ir.Call, model: str, imports: Imports
) -> Settings:
    """Return what the arguments of an `FSDP(…)` become.

    Raises:
        NoFixError: one has no counterpart.
        UndecidedError: one leaves a choice that has no answer yet.
    """
    given = {
        name: value
        for name, value in arguments(code, call).items()
        if not (isinstance(value, ir.Constant) and value.value in (None, False))
    }
    made = _Conversion(context, code, call, imports, Settings(model), given)
    for name, value in given.items():
        convert = _CONVERSIONS.get(name)
        if convert is not None:
            convert(made, value)
        elif name not in _NEEDLESS:
            raise NoFixError(f"`{name}` is not an argument of `FullyShardedDataParallel`")
    if "param_init_fn" not in given and not made.synchronizes and made.on_meta:
        made.reset()
    if averages_weights(context):
        made.settings.shared.pop("reshard_after_forward", None)
        made.settings.root["reshard_after_forward"] = "True"
        made.settings.differs = made.settings.differs or _FREES
    if use_may_differ(context):
        made.settings.after.append(f"{model}.set_reduce_scatter_unused_params(True)")
        made.settings.differs = made.settings.differs or _NEEDS
    return made.settings


_NEEDS = (
    "ranks may use different parameters in a step; FSDP2 reduces the gradients of all of them with "
    "`set_reduce_scatter_unused_params`, which needs PyTorch 2.13"
)

_FREES = (
    "the root's parameters are freed after each forward, so that averages change its shards, which "
    "an evaluation under FSDP1 may not use"
)

# FSDP2 does what these ask for by itself; the policy is for `units`.
_NEEDLESS = frozenset(
    {
        "auto_wrap_policy",
        "backward_prefetch",
        "forward_prefetch",
        "limit_all_gathers",
        "use_orig_params",
    }
)


@dataclass(frozen=True, slots=True)
class _Conversion:
    context: Context
    code: Code
    call: ir.Call
    imports: Imports
    settings: Settings
    given: Mapping[str, ir.Expr]

    @property
    def span(self) -> Span:
        return self.code.span(self.call)

    @property
    def dist(self) -> str:
        return self.imports.module(DISTRIBUTED, "dist")

    @property
    def device_type(self) -> str:
        """The device type of meshes, as the source of a string."""
        return '"cpu"' if self._device_types() == {"cpu"} else '"cuda"'

    def _device_types(self) -> set[str]:
        """Return the types of devices that `device_id` names."""
        device = self.given.get("device_id")
        values = [] if device is None else possible_values(self.code, device)
        nodes = [node for value in values for node in ir.walk(value)]
        calls = (n for n in nodes if isinstance(n, ir.Call) and n.args)
        made = [n.args[0].value for n in calls if self._name(n.func) == TORCH_DEVICE]
        either = [(n.body, n.orelse) if isinstance(n, ir.Conditional) else (n,) for n in made]
        found = (_DEVICE_TYPE.match(self.code.slice(n)) for each in either for n in each)
        return {match[1] for match in found if match is not None}

    def _name(self, node: ir.Expr) -> str:
        return self.context.name(self.code, node)

    def text(self, value: ir.Expr) -> str:
        """Return the source of a value, on as many lines as its comments need.

        It is in parentheses if it is on several lines and has no others of its own.
        """
        lines = on_one_line(self.code, value).splitlines()
        was = self.code.indentation(value)
        own = self.code.indentation(self.code.statement(self.call))
        later = (f"{own}{line.removeprefix(was)}" for line in lines[1:])
        return on_its_own(self.code.newline.join([lines[0], *later]))

    def mesh(self, sizes: str) -> str:
        make = self.imports.name(DEVICE_MESH_PACKAGE, "init_device_mesh")
        names = ', mesh_dim_names=("replicate", "shard")' if ", " in sizes else ""
        return f"{make}({self.device_type}, ({sizes}){names})"

    def strategy(self, value: ir.Expr) -> None:
        name = self.context.name(self.code, definition(self.code, value))
        if not name.startswith(SHARDING_STRATEGIES):
            possible = mentioned(self.context)
            if possible is not None:
                self._strategy_at_run_time(value, possible)
                return
            question = Question(
                self.span,
                "sharding-strategy",
                f"Which strategy does `{self.code.short(value)}` select?",
                tuple(_STRATEGIES),
            )
            name = _STRATEGIES.get(self.context.decided(question), "FULL_SHARD")
        kind = name.removeprefix(SHARDING_STRATEGIES)
        if kind in KEEPING:
            self.settings.shared["reshard_after_forward"] = "False"
        if kind in TWO_DIMENSIONAL and self._chooses_mesh:
            self.settings.shared["mesh"] = self._mesh_of(kind)

    @property
    def _chooses_mesh(self) -> bool:
        return "device_mesh" not in self.given and "process_group" not in self.given

    def _mesh_of(self, kind: str) -> str:
        world = f"{self.dist}.get_world_size()"
        if kind == "NO_SHARD":
            return self.mesh(f"{world}, 1")
        node = f"{self.imports.module('torch', 'torch')}.cuda.device_count()"
        return self.mesh(f"{world} // {node}, {node}")

    def _strategy_at_run_time(self, value: ir.Expr, possible: frozenset[str]) -> None:
        """Keep what a strategy selects that is known only when the program runs."""
        meshes = sorted(possible & TWO_DIMENSIONAL) if self._chooses_mesh else []
        keeping = sorted(possible & KEEPING)
        if not meshes and not keeping:
            return
        enum = enumeration(self.imports)
        chosen = self.text(value)
        if dotted(value) is None:
            chosen = fresh(self.code, self.call, "sharding_strategy")
            self.settings.before.append(f"{chosen} = {self.text(value)}")
        if keeping:
            test = is_one_of(chosen, enum, keeping, negated=True)
            self.settings.shared["reshard_after_forward"] = test
        if meshes:
            name = fresh(self.code, self.call, "mesh")
            of_all = f"{self.dist}.get_world_size(),"
            on_cpu = self.device_type == '"cpu"'
            lines = [f"{name} = {self.mesh(of_all) if on_cpu else None}"]
            for kinds in filter(None, (possible & {"NO_SHARD"}, possible & HYBRID)):
                lines.append(f"if {is_one_of(chosen, enum, sorted(kinds))}:")
                lines.append(f"{self.code.unit}{name} = {self._mesh_of(min(kinds))}")
            self.settings.before += lines
            self.settings.shared["mesh"] = name

    def device_mesh(self, value: ir.Expr) -> None:
        self.settings.shared["mesh"] = self.text(value)

    def process_group(self, value: ir.Expr) -> None:
        if any(isinstance(v, ir.Collection) for v in possible_values(self.code, value)):
            raise NoFixError("it has a pair of process groups; build a mesh of them by hand")
        mesh = self.imports.name(DEVICE_MESH_PACKAGE, "DeviceMesh")
        group = self.text(value)
        made = f"{mesh}.from_group({group}, {self.device_type})"
        if may_be_none(self.code, value):
            made = f"None if {group} is None else {made}"
        self.settings.shared["mesh"] = made

    def precision(self, value: ir.Expr) -> None:
        """Cast the inputs of the units that FSDP1 casts: by default the root's alone."""
        policy = self.imports.name(*MIXED_PRECISION_POLICY.rsplit(".", 1))
        text = self.text(value)
        made = definition(self.code, value)
        if not isinstance(made, ir.Call) or self._name(made.func) not in _POLICIES:
            plain = dotted(value) or isinstance(value, ir.Call) or text.startswith("(")
            text = text if plain else f"({text})"
            text = f"{text} or {policy}()"
        if dotted(value) is None or " or " in text:
            name = fresh(self.code, self.call, "mp_policy")
            self.settings.before.append(f"{name} = {text}")
            text = name
        if "auto_wrap_policy" in self.given:
            self._keep_norms(text)
        if casts_buffers(self.context):
            self._cast_buffers(text)
        replace = self.imports.name("dataclasses", "replace")
        found = castings(self.context)
        if len(found) > 1:
            # Each policy says what the units cast, and FSDP1's root casts in any case.
            self.settings.root["mp_policy"] = f"{replace}({text}, cast_forward_inputs=True)"
            self.settings.blocks["mp_policy"] = text
            return
        root, blocks = found.pop() if found else (True, False)
        off = f"{replace}({text}, cast_forward_inputs=False)"
        self.settings.root["mp_policy"] = text if root else off
        self.settings.blocks["mp_policy"] = text if blocks else off

    def _keep_norms(self, policy: str) -> None:
        """Leave batch norms in float32: FSDP1 wraps each apart if it has a wrap policy."""
        if not any(True for _ in self.context.codes(*BATCH_NORM_WORDS)):
            return
        self.settings.norms = self.imports.name(*BATCH_NORM.rsplit(".", 1))
        own = self.imports.name(*MIXED_PRECISION_POLICY.rsplit(".", 1))
        dtype = f"{self.imports.module('torch', 'torch')}.float32"
        made = f"{own}(param_dtype={dtype}, output_dtype={policy}.param_dtype)"
        self.settings.of_norms["mp_policy"] = made

    def _cast_buffers(self, policy: str) -> None:
        """Cast the buffers as FSDP1 does before the first forward, but for those of batch norms."""
        module, buffer = (fresh(self.code, self.call, name) for name in ("module", "buffer"))
        unit, model, norms = self.code.unit, self.settings.model, self.settings.norms
        test = f"{buffer}.is_floating_point()"
        lines = [f"for {buffer} in {model}.buffers():"]
        if norms:
            test += f" and not isinstance({module}, {norms})"
            within = f"{module}.buffers(recurse=False)"
            lines = [f"for {module} in {model}.modules():", f"{unit}for {buffer} in {within}:"]
        indent = unit * len(lines)
        lines += [f"{indent}if {test}:"]
        lines += [f"{indent}{unit}{buffer}.data = {buffer}.to({policy}.param_dtype)"]
        self.settings.buffers += lines

    def offload(self, value: ir.Expr) -> None:
        self.settings.shared["offload_policy"] = self.text(value)

    def _offloads(self) -> bool:
        """Return whether the parameters are surely on the CPU."""
        value = self.given.get("cpu_offload")
        made = None if value is None else definition(self.code, value)
        given = made.args if isinstance(made, ir.Call) else ()
        return any(isinstance(a.value, ir.Constant) and a.value.value is True for a in given)

    def ignored_modules(self, value: ir.Expr) -> None:
        self._ignored(f"{{p for m in {self._given(value)} for p in m.parameters()}}")

    def ignored_states(self, value: ir.Expr) -> None:
        nn = self.imports.module(NN, "nn")
        states = f"(each.parameters() if isinstance(each, {nn}.Module) else [each])"
        self._ignored(f"{{p for each in {self._given(value)} for p in {states}}}")

    def _given(self, value: ir.Expr) -> str:
        """Return the source of a collection that FSDP1 takes, and does without if it is None."""
        made = isinstance(definition(self.code, value), (ir.Collection, ir.Comprehension, ir.Call))
        return self.text(value) if made else f"{self.text(value)} or ()"

    def _ignored(self, text: str) -> None:
        name = fresh(self.code, self.call, "ignored_params")
        self.settings.before.append(f"{name} = {text}")
        self.settings.shared["ignored_params"] = name

    def device(self, value: ir.Expr) -> None:
        """Set the device of the process, which `fully_shard` moves the model to."""
        text, types = self.text(value), self._device_types()
        if not types <= {"cpu", "cuda"}:
            other = ", ".join(sorted(types - {"cpu", "cuda"}))
            raise NoFixError(f"no run shows what FSDP2 does on `{other}`; shard it by hand")
        if types == {"cpu"}:
            if "mesh" not in self.settings.shared and "device_mesh" not in self.given:
                world = f"{self.dist}.get_world_size(),"
                self.settings.shared.setdefault("mesh", self.mesh(world))
            return
        is_set = any(True for _ in self.context.codes("set_device(", "set_device_index("))
        if not is_set and "current_device" not in text:
            torch, test = self.imports.module("torch", "torch"), ""
            if isinstance(value, ir.Conditional) and self.code.slice(value.orelse) == "None":
                text, test = self.text(value.body), self.text(value.test)
            elif types == {"cpu", "cuda"}:
                test = f"{torch}.cuda.is_available()"
            lines = [f"if {test}:"] if test else []
            unit = self.code.unit if test else ""
            self.settings.before += [*lines, f"{unit}{torch}.cuda.set_device({text})"]

    def sync(self, value: ir.Expr) -> None:
        """Give every rank the state of rank 0, after sharding: then it fits in memory."""
        code, model, unit = self.code, self.settings.model, self.code.unit
        state = fresh(code, self.call, "full_state")
        load = self.imports.name(HELPERS, "set_model_state_dict")
        options = self.imports.name(HELPERS, "StateDictOptions")
        known = self.synchronizes
        indent = "" if known else unit
        if not known:
            self.settings.after.append(f"if {self.text(value)}:")
        elif "param_init_fn" in self.given or self.on_meta:
            device = self._empty_device()
            empty = '"cpu"' if self._offloads() else device
            self.settings.after += [
                f"{indent}if any(p.is_meta for p in {model}.parameters()):",
                f"{indent}{unit}{model}.to_empty(device={empty})",
            ]
            if empty != device:  # only parameters are offloaded
                self.settings.after += [
                    f"{indent}{unit}for buffer in {model}.buffers():",
                    f"{indent}{unit}{unit}buffer.data = buffer.to({device})",
                ]
        taken = f"{model}.state_dict()"
        if has_units(self.context, code, self.call):
            get = self.imports.name(HELPERS, "get_model_state_dict")
            form = f"{options}(full_state_dict=True, cpu_offload=True)"
            taken = f"{get}({model}, options={form})"
        self.settings.before.append(f"{state} = {taken}")
        self.settings.after += [
            f"{indent}{load}(",
            f"{indent}{unit}{model},",
            f"{indent}{unit}{state},",
            f"{indent}{unit}options={options}(full_state_dict=True, broadcast_from_rank0=True),",
            f"{indent})",
            f"{indent}for buffer in {model}.buffers():",
            f"{indent}{unit}{self.dist}.broadcast(buffer, src=0)",
            f"del {state}",
        ]

    @property
    def synchronizes(self) -> bool:
        """Whether the state of rank 0 surely replaces what the other ranks have."""
        return isinstance(self.given.get("sync_module_states"), ir.Constant)

    def initialize(self, value: ir.Expr) -> None:
        """Run the function on what is on the meta device, unless rank 0's state replaces it.

        FSDP1 runs it before it shards a unit, when only the unit is whole on each rank.

        Raises:
            UndecidedError: the user has not said whether to run it before or after sharding.
        """
        if self.synchronizes:
            return
        lines, code, name = self._initial_lines(), self.code, dotted(value)
        if name is None:
            name = fresh(code, self.call, "param_init_fn")
            lines.append(f"{name} = {self.text(value)}")
        given = "" if isinstance(definition(code, value), ir.Lambda) else f"{name} and "
        lines += self._modules_on_meta(given, lambda module: [f"{name}({module})"])

    def reset(self) -> None:
        """Initialize what is on the meta device as FSDP1 does if it is given no function.

        Raises:
            UndecidedError: as `initialize`.
        """
        device = self._empty_device()

        def body(module: str) -> list[str]:
            empty = f"{module}.to_empty(device={device}, recurse=False)"
            return [empty, f"{module}.reset_parameters()"]

        self._initial_lines().extend(self._modules_on_meta("", body))

    def _initial_lines(self) -> list[str]:
        """Return the lines that modules on the meta device are to be initialized in."""
        model = self.settings.model
        question = Question(
            self.span,
            "meta-device",
            f"Initialize `{model}` before it is sharded, when each rank holds all of it, or after?",
            ("before", "after"),
        )
        early = self.context.decided(question) == "before"
        self.settings.differs = "the modules are initialized in another order"
        return self.settings.before if early else self.settings.after

    def _modules_on_meta(self, given: str, body: Callable[[str], Sequence[str]]) -> Iterator[str]:
        """Yield a loop over modules that have tensors on the meta device.

        Args:
            given: a condition that comes first, with its ``and``.
            body: returns the lines for the module in a variable.
        """
        unit, module = self.code.unit, fresh(self.code, self.call, "module")
        own = f"(*{module}.parameters(recurse=False), *{module}.buffers(recurse=False))"
        yield f"for {module} in {self.settings.model}.modules():"
        yield f"{unit}tensors = {own}"
        yield f"{unit}if {given}any(tensor.is_meta for tensor in tensors):"
        for line in body(module):
            yield f"{unit}{unit}{line}"

    @property
    def on_meta(self) -> bool:
        return may_be_on_meta(self.context, self.call)

    def _empty_device(self) -> str:
        device = self.given.get("device_id")
        return self.device_type if device is None else self.text(device)


_CONVERSIONS = {
    "cpu_offload": _Conversion.offload,
    "device_id": _Conversion.device,
    "device_mesh": _Conversion.device_mesh,
    "ignored_modules": _Conversion.ignored_modules,
    "ignored_states": _Conversion.ignored_states,
    "mixed_precision": _Conversion.precision,
    "param_init_fn": _Conversion.initialize,
    "process_group": _Conversion.process_group,
    "sharding_strategy": _Conversion.strategy,
    "sync_module_states": _Conversion.sync,
}
