"""`FullyShardedDataParallelPlugin(…)`: accelerate's settings of FSDP1 become those of FSDP2.

Source: accelerate 1.15 (`utils/dataclasses.py`, `fsdp2_prepare_model` in `utils/fsdp_utils.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.projects import projects_of
from fsdplint.engine import ir
from fsdplint.engine.interpreter.accelerators import generation, plugin_of
from fsdplint.finding import Edit, Span
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.accelerate_settings import (
    BUFFERS_REFUSED,
    BY_SIZE_WITH_2,
    GONE_WITH_2,
    NO_FSDP2,
    NOT_HANDED_OUT,
    PLUGIN_CLASSES,
    PRECISION_WITH_2,
    RESHARD_APPLIES_WITH_2,
    RESHARDS,
    STATE_TYPES,
    STRATEGIES,
    UNUSED_WITH_2,
    WHOLE_STATES,
    WRAPS_BY_SIZE,
    WRAPS_CLASSES,
    has_fsdp2,
)
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.frameworks import (
    PLUGIN,
    PLUGIN_CLASS,
    STATE_TYPE,
    is_plugin,
)
from fsdplint.knowledge.fsdp import (
    FULL_CONFIGS,
    SHARDED_CONFIGS,
    SHARDING_STRATEGIES,
    STATE_DICT_TYPES,
)
from fsdplint.knowledge.modules import MODULE_WRAP_POLICY, SIZE_POLICY, TRANSFORMER_POLICY, WRAP
from fsdplint.knowledge.transformers_settings import POLICY, RESHARD
from fsdplint.migrate.calls import definition
from fsdplint.migrate.fsdp2.policies import without_comments_lost
from fsdplint.migrate.step import Change, Context, Found, Kept, Question, attempt
from fsdplint.rules.prepare_called_apart import fix
from fsdplint.rules.prepare_called_apart import prepared_apart as apart

_VERSION, _STRATEGY = "fsdp_version", "sharding_strategy"
_SYNC, _RAM_EFFICIENT = "sync_module_states", "cpu_ram_efficient_loading"
_MODULES = f"{WRAP}.{MODULE_WRAP_POLICY}"
STRATEGY_ANSWERS = {"full-shard": "FULL_SHARD", "shard-grad-op": "SHARD_GRAD_OP", "another": ""}
_BY_HAND = {
    "NO_SHARD": "use DDP: pass no `fsdp_plugin`",
    "HYBRID_SHARD": (
        "pass `ParallelismConfig(dp_replicate_size=…, dp_shard_size=…)` as `parallelism_config` "
        "of `Accelerator`, by hand"
    ),
}
_BY_HAND["HYBRID_SHARD_ZERO2"] = _BY_HAND["_HYBRID_SHARD_ZERO2"] = _BY_HAND["HYBRID_SHARD"]
_BY_SIZE = (
    f"{BY_SIZE_WITH_2}; name the classes of the blocks by hand: "
    f'`{POLICY}="transformer_based_wrap", {PLUGIN_CLASSES}=[…]`'
)


def plugins(context: Context) -> Iterator[Found]:
    """Yield a change for each plugin that is made for FSDP1."""
    for code in context.codes(PLUGIN_CLASS, PLUGIN):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and is_plugin(context.name(code, node.func)):
                yield from attempt(code, node, partial(_migrated, context, code, node))
            elif isinstance(node, ir.ClassDef):
                for base in node.bases:
                    if is_plugin(context.name(code, base)):
                        reason = "a class of its own may set anything; make it for FSDP2 by hand"
                        yield _kept(code, base, f"`class {node.name}`", reason)
            elif isinstance(node, ir.Assign):
                yield from _set_later(code, node)


def _migrated(context: Context, code: Code, call: ir.Call) -> Change | None:
    given = {each.keyword: each.value for each in call.args if each.keyword}
    version = given.get(_VERSION)
    if isinstance(version, ir.Constant) and version.value == 2:
        return None
    made = _Conversion(context, code, call, code.span(call), given)
    edits = made.edits()
    what = "have accelerate shard with FSDP2"
    return Change(made.span, what, tuple(edits), differs="; ".join(made.differs))


@dataclass(slots=True)
class _Conversion:
    """The arguments of one plugin.

    Attributes:
        values: the new texts of values, by argument.
        added: new arguments, and `gone` those that are dropped.
        differs: what is different afterwards.
    """

    context: Context
    code: Code
    call: ir.Call
    span: Span
    given: dict[str, ir.Expr]
    values: dict[str, str] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    differs: list[str] = field(default_factory=list)

    def edits(self) -> list[Edit]:
        """Return the edits.

        Raises:
            NoFixError: FSDP2 lacks what an argument asks for.
            UndecidedError: a question has no answer yet.
        """
        if len(self.given) < len(self.call.args):
            raise NoFixError("not all arguments are written as keywords; write them out by hand")
        if not has_fsdp2(projects_of({}).accelerate(Path(self.code.path))):
            raise NoFixError(NO_FSDP2)
        self.version()
        for name in (_STRATEGY, RESHARD):
            self.strategy(name)
        self.wrap_policy()
        self.states()
        self.state_configs()
        self.sync()
        self.precision()
        if not _is_none(self.given.get("param_init_fn")):
            raise NoFixError(
                "accelerate calls no `param_init_fn` with FSDP2; initialize the model before "
                "`prepare`, and remove it by hand"
            )
        unused = {name for name in self.given if f"fsdp_{name}" in GONE_WITH_2}
        self.gone |= unused | (self.given.keys() & {"param_init_fn", *UNUSED_WITH_2})
        return self._edits()

    def _edits(self) -> list[Edit]:
        code, call = self.code, self.call
        kept = [each for each in call.args if each.keyword not in self.gone]
        added = [f"{name}={text}" for name, text in self.added.items()]
        if not kept:
            if code.comments(call.func.end, call.end):
                raise NoFixError("a comment is between its arguments; change them by hand")
            return [code.edit(call.func.end, call.end, f"({', '.join(added)})")]
        edits = without_comments_lost(code, call.args, kept) if len(kept) < len(call.args) else []
        for name, text in self.values.items():
            value = self.given[name]
            edits.append(code.edit(value.start, value.end, text))
        first = kept[0]
        comma = f",{code.newline}{code.indentation(first)}" if code.starts_line(first) else ", "
        text = "".join(f"{each}{comma}" for each in added)
        return [*edits, code.edit(first.start, first.start, text)] if added else edits

    def version(self) -> None:
        value = self.given.get(_VERSION)
        if _is_none(value):
            self.gone.add(_VERSION)
            self.added[_VERSION] = "2"
        elif isinstance(value, ir.Constant) and value.value == 1:
            self.values[_VERSION] = "2"
        else:
            raise NoFixError("its `fsdp_version` is not known; choose 2 by hand")

    def strategy(self, name: str) -> None:
        value = self.given.get(name)
        if value is None:
            return
        word = "FULL_SHARD" if _is_none(value) else self._word(value, SHARDING_STRATEGIES)
        kind = STRATEGIES.get(word.removeprefix("_"))
        if kind is None:
            kind = self._asked(value)
        if kind not in RESHARDS:
            reason = _BY_HAND.get(kind, "correct it by hand")
            raise NoFixError(f"accelerate's FSDP2 has no `{kind or self.text(value)}`; {reason}")
        self.gone.add(name)
        if not RESHARDS[kind]:
            self.added[RESHARD] = "False"
            self.differs += [RESHARD_APPLIES_WITH_2] if name == RESHARD else []

    def _asked(self, value: ir.Expr) -> str:
        text = f"Which strategy does `{self.code.short(value)}` select?"
        question = Question(self.span, "sharding-strategy", text, tuple(STRATEGY_ANSWERS))
        return STRATEGY_ANSWERS.get(self.context.decided(question), "")

    def wrap_policy(self) -> None:
        value = self.given.get(POLICY)
        if _is_none(value):
            return
        assert value is not None
        word = self._word(value, "")
        if word == WRAPS_BY_SIZE:
            raise NoFixError(_BY_SIZE)
        if word in (WRAPS_CLASSES, "NO_WRAP"):
            return
        classes = self._classes(definition(self.code, value))
        if PLUGIN_CLASSES in self.given:
            raise NoFixError(f"`{PLUGIN_CLASSES}` and a policy are given; remove one by hand")
        names = ", ".join(f"{self.text(each)}.__name__" for each in classes)
        self.values[POLICY] = f'"{WRAPS_CLASSES.lower()}"'
        self.added[PLUGIN_CLASSES] = f"[{names}]"

    def _classes(self, policy: ir.Expr) -> tuple[ir.Expr, ...]:
        """Return the classes that a policy wraps.

        Raises:
            NoFixError: they are not written out, or it wraps by something else.
        """
        name = self.context.name(self.code, policy.func) if isinstance(policy, ir.Call) else ""
        found: ir.Expr | None = None
        if isinstance(policy, ir.Call) and name == _MODULES and len(policy.args) == 1:
            found = policy.args[0].value
        elif isinstance(policy, ir.Call) and name == "functools.partial" and policy.args:
            function = self.context.name(self.code, policy.args[0].value)
            if function == SIZE_POLICY:
                raise NoFixError(_BY_SIZE)
            named = [a.value for a in policy.args if a.keyword == "transformer_layer_cls"]
            if function == TRANSFORMER_POLICY and named:
                found = named[0]
        found = definition(self.code, found) if found is not None else None
        if isinstance(found, ir.Collection) and found.elements and all(map(dotted, found.elements)):
            return found.elements
        raise NoFixError(
            f"accelerate's FSDP2 ignores the policy `{self.text(policy)}`, so that no block is "
            'sharded; pass `auto_wrap_policy="transformer_based_wrap"` and the names of the '
            f"blocks' classes as `{PLUGIN_CLASSES}`, by hand"
        )

    def states(self) -> None:
        """Keep the default type of states, which is another one for FSDP2."""
        value = self.given.get(STATE_TYPE)
        if _is_none(value):
            launched = (
                isinstance(each, AccelerateConfig) and each.shards is not False
                for each in self.context.configs.values()
            )
            if not any(launched):
                self.gone.add(STATE_TYPE)
                self.added[STATE_TYPE] = f'"{WHOLE_STATES}"'
        elif value is not None:
            word = STATE_TYPES.get(self._word(value, STATE_DICT_TYPES))
            if word == "LOCAL_STATE_DICT":
                raise NoFixError(f"FSDP2 has no `{word}`; choose `SHARDED_STATE_DICT` by hand")

    def state_configs(self) -> None:
        """Drop objects of FSDP1 that say how states are gathered, which only rank 0 writes.

        Source: accelerate 1.15, `save_fsdp_model` and `save_fsdp_optimizer`.
        """
        for name in self.given.keys() & {"state_dict_config", "optim_state_dict_config"}:
            made = definition(self.code, self.given[name])
            kind = self.context.name(self.code, made.func) if isinstance(made, ir.Call) else ""
            if kind not in FULL_CONFIGS | SHARDED_CONFIGS and not _is_none(made):
                raise NoFixError(f"`{name}` is not known; remove it by hand")
            self.gone.add(name)

    def sync(self) -> None:
        """Have rank 0 hand out its weights, where FSDP1 does."""
        value, loading = self.given.get(_SYNC), self.given.get(_RAM_EFFICIENT)
        if value is None or (isinstance(value, ir.Constant) and not value.value):
            return
        if isinstance(loading, ir.Constant) and loading.value is True:
            self.differs.append(BUFFERS_REFUSED.format(name=_RAM_EFFICIENT))
            return
        text = (
            "FSDP2 hands out rank 0's weights only with "
            f"`{_RAM_EFFICIENT}=True`. Set it, or have all ranks the same weights before `prepare`?"
        )
        question = Question(self.span, "sync-module-states", text, ("set", "same-weights"))
        if self.context.decided(question) != "set":
            self.differs.append(NOT_HANDED_OUT)
            return
        self.differs.append(BUFFERS_REFUSED.format(name=_RAM_EFFICIENT))
        if loading is not None:
            self.values[_RAM_EFFICIENT] = "True"
        else:
            self.added[_RAM_EFFICIENT] = "True"

    def precision(self) -> None:
        value = self.given.get("mixed_precision_policy")
        if any(True for _ in self.context.codes("mixed_precision")):
            self.differs.append(PRECISION_WITH_2)
        if value is None or _is_none(value):
            return
        made = definition(self.code, value)
        if isinstance(made, ir.DictDisplay):
            self._precision_dict(value, made)

    def _precision_dict(self, value: ir.Expr, made: ir.DictDisplay) -> None:
        keys = {
            key.value: item
            for key, item in made.items
            if isinstance(key, ir.Constant) and isinstance(key.value, str)
        }
        if made is not value or keys.keys() != {"param_dtype", "reduce_dtype", "buffer_dtype"}:
            raise NoFixError(
                "FSDP2's policy has `output_dtype` instead of `buffer_dtype`; change the dict by "
                "hand"
            )
        items = {name: self.text(item) for name, item in keys.items() if name != "buffer_dtype"}
        items["output_dtype"] = items["param_dtype"]
        text = ", ".join(f'"{name}": {item}' for name, item in items.items())
        self.values["mixed_precision_policy"] = f"{{{text}}}"

    def text(self, node: ir.Expr) -> str:
        return self.code.slice(node)

    def _word(self, value: ir.Expr, enumeration: str) -> str:
        """Return a literal value, or a member of an enumeration, in capitals; "" for others."""
        meant = definition(self.code, value)
        if isinstance(meant, ir.Constant):
            return str(meant.value).upper()
        name = self.context.name(self.code, meant)
        return (
            name.removeprefix(enumeration) if enumeration and name.startswith(enumeration) else ""
        )


def prepared_alone(context: Context) -> Iterator[Found]:
    """Yield each `prepare_model` of a program with FSDP1, which accelerate refuses for FSDP2."""
    for trace in context.program.traces:
        for call in trace.calls("prepare_model"):
            plugin = plugin_of(call.receiver)
            alone = plugin is not None and generation(plugin) is not Generation.FSDP2
            if not alone or call.site.path not in context.files:
                continue
            if call.arguments.keywords.get("evaluation_mode") is not None:
                continue
            reason = (
                "accelerate refuses it with FSDP2; pass the model and its optimizer to `prepare`"
            )
            code = Code.of(context.program.tree(call.site.path))
            yield _kept(code, call.site.node, f"`{code.short(call.site.node)}`", reason)


def prepared_apart(context: Context) -> Iterator[Found]:
    """Yield a change for each model that is prepared without its optimizer.

    accelerate refuses that for FSDP2; FSDP1 trains nothing then, or has original parameters.
    """
    return (found for found in _apart(context) if isinstance(found, Change))


def still_apart(context: Context) -> Iterator[Found]:
    """Yield what `prepared_apart` cannot change, once no other step does."""
    return (found for found in _apart(context) if isinstance(found, Kept))


def _apart(context: Context) -> Iterator[Found]:
    for fact in apart(context.program):
        site = fact.alone.site
        if fact.build is not None or site.path not in context.files:
            continue
        made, code = fix(context.program, fact), Code.of(context.program.tree(site.path))
        if isinstance(made, Declined):
            yield _kept(code, site.node, f"`{code.short(site.node)}`", made.reason)
        else:
            yield Change(context.program.span(site), made.title, made.edits)


# Fields that FSDP2 takes another value for, or ignores, if code sets them after the plugin is made.
_FIELDS = frozenset(
    {POLICY, _STRATEGY, RESHARD, _VERSION, "mixed_precision_policy", "cpu_offload", "param_init_fn"}
)


def _set_later(code: Code, node: ir.Assign) -> Iterator[Found]:
    for target in node.targets:
        path = (dotted(target) or "").split(".")
        if len(path) > 1 and path[-1] in _FIELDS and PLUGIN in path[-2]:
            reason = "it is set after the plugin is made; make it for FSDP2 by hand"
            if path[-1] == POLICY:
                reason = (
                    "accelerate's FSDP2 ignores policies that are set later; pass the names of the "
                    f"blocks' classes as `{PLUGIN_CLASSES}` by hand"
                )
            yield _kept(code, target, f"`{code.short(node)}`", reason)


def _kept(code: Code, node: ir.Node, what: str, reason: str) -> Kept:
    return Kept(code.span(node), what, reason)


def _is_none(value: ir.Expr | None) -> bool:
    return value is None or (isinstance(value, ir.Constant) and value.value is None)
