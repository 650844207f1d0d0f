"""Execution: short programs as ordered lists of what happens, path by path."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from helpers import (
    HEADER,
    event,
    events,
    every_path,
    guards,
    objects_made,
    path_of,
    program,
    script,
)
from limits import limit

from fsdplint.engine.interpreter.events import BuildOptimizer, DirectForward, Shard, Trace
from fsdplint.engine.interpreter.values import ClassValue, Object, Symbol
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation

# Kinds that rules ask about; `Call` is only of interest where a test says so.
_TELLING = ("Shard", "BuildOptimizer", "Repoint", "DirectForward", "NoSync", "PlainWrite")


def telling(program: Program, trace: Trace) -> list[tuple[str, str]]:
    return [each for each in events(program, trace) if each[0] in _TELLING]


def only_path(root: Path, text: str) -> list[tuple[str, str]]:
    found = script(root, text)
    return telling(found, path_of(found))


def paths(root: Path, text: str) -> list[list[tuple[str, str]]]:
    """What every path of a program does, in the order they were followed."""
    found = script(root, text)
    return [telling(found, trace) for trace in found.traces]


def parts(program: Program) -> list[tuple[str, str]]:
    """What is sharded, as (source of the call, the way from the model to the part)."""
    shards = [each for each in path_of(program).events if isinstance(each, Shard)]
    return [(event(program, each)[1], each.module.path()) for each in shards]


# Values and names


def test_an_alias_is_the_same_object(tmp_path: Path) -> None:
    text = """\
        a = Net()
        b = a
        fully_shard(b)
        optimizer = torch.optim.AdamW(a.parameters())
        a.forward(x)
        c = Net()
        c.forward(x)
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(b)"),
        ("BuildOptimizer", "torch.optim.AdamW(a.parameters())"),
        ("DirectForward", "a.forward(x)"),
    ]


def test_every_use_has_its_place_in_the_order(tmp_path: Path) -> None:
    text = """\
        model = Net()
        optimizer = torch.optim.SGD(model.parameters())
        fully_shard(model)
        loss = model(x)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.save(model.state_dict(), "x")
    """
    found = script(tmp_path, text)
    assert events(found, path_of(found)) == [
        ("BuildOptimizer", "torch.optim.SGD(model.parameters())"),
        ("Shard", "fully_shard(model)"),
        ("Call", "model(x)"),
        ("Call", "loss.backward()"),
        ("Call", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        ("Call", "optimizer.step()"),
        ("Call", "optimizer.zero_grad()"),
        ("Call", "model.state_dict()"),
        ("PlainWrite", 'torch.save(model.state_dict(), "x")'),
    ]
    times = [each.time for each in path_of(found).events]
    assert times == sorted(set(times))


def test_loops_over_views_of_a_model_share_their_element(tmp_path: Path) -> None:
    text = """\
        model = Net()
        for block in model.layers:
            fully_shard(block)
        for i, layer in enumerate(model.layers):
            layer.forward(x)
        model.layers[0].forward(x)
        for name, part in model.named_modules():
            fully_shard(part)
        for other in model.heads:
            other.forward(x)
        fully_shard(model)
    """
    found = script(tmp_path, text)
    assert telling(found, path_of(found)) == [
        ("Shard", "fully_shard(block)"),
        ("DirectForward", "layer.forward(x)"),
        ("DirectForward", "model.layers[0].forward(x)"),
        ("Shard", "fully_shard(part)"),
        ("Shard", "fully_shard(model)"),
    ]
    assert parts(found) == [
        ("fully_shard(block)", ".layers[]"),
        ("fully_shard(part)", ".named_modules()[]"),
        ("fully_shard(model)", ""),
    ]


def test_a_short_list_is_run_element_by_element(tmp_path: Path) -> None:
    text = """\
        for part in [model.embed, model.head]:
            fully_shard(part)
        for parts in (model.encoder.layers, model.decoder.layers):
            for part in parts:
                fully_shard(part)
        for part in [*model.extra, *model.more]:
            fully_shard(part)
    """
    assert [path for _, path in parts(script(tmp_path, text))] == [
        ".embed",
        ".head",
        ".encoder.layers[]",
        ".decoder.layers[]",
        ".extra[]",
        ".more[]",
    ]


def test_a_list_filled_in_a_loop_has_one_element_for_all(tmp_path: Path) -> None:
    text = """\
        models = []
        for i in range(4):
            models.append(Net())
        for model in models:
            fully_shard(model)
        models[0].no_sync()
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(model)"),
        ("NoSync", "models[0].no_sync()"),
    ]


def test_comprehensions_run_their_element(tmp_path: Path) -> None:
    text = """\
        model = Net()
        [fully_shard(block) for block in model.blocks if keep(block)]
        names = {name: fully_shard(part) for name, part in model.named_children()}
        any(block.no_sync() for block in model.blocks)
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(block)"),
        ("Shard", "fully_shard(part)"),
        ("NoSync", "block.no_sync()"),
    ]


def test_names_bound_in_passing(tmp_path: Path) -> None:
    text = """\
        (a := Net()).train()
        fully_shard(a)
        b, (c, *d) = a, (Net(), 1)
        b.forward(x)
        c.forward(x)
        holder.model = a
        holder.model.no_sync()
        table = {"m": a}
        table["m"].no_sync()
        setattr(holder, "other", a)
        getattr(holder, "other").no_sync()
        del a
        a.no_sync()
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(a)"),
        ("DirectForward", "b.forward(x)"),
        ("NoSync", "holder.model.no_sync()"),
        ("NoSync", 'table["m"].no_sync()'),
        ("NoSync", 'getattr(holder, "other").no_sync()'),
    ]


def test_calls_that_give_back_their_argument(tmp_path: Path) -> None:
    text = """\
        model = torch.compile(Net().to("cuda").train())
        model = fully_shard(model)
        model.no_sync()
        wrapped = FSDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(Net()))
        wrapped.module.no_sync()
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(model)"),
        ("NoSync", "model.no_sync()"),
        ("Shard", "FSDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(Net()))"),
    ]


def test_a_copy_is_another_object(tmp_path: Path) -> None:
    text = """\
        import copy
        model = Net()
        teacher = copy.deepcopy(model)
        fully_shard(model)
        teacher.no_sync()
    """
    assert only_path(tmp_path, text) == [("Shard", "fully_shard(model)")]


def test_tests_on_a_sharded_object_are_known(tmp_path: Path) -> None:
    text = """\
        from torch.distributed.fsdp import FSDPModule
        model = Net()
        fully_shard(model)
        if hasattr(model, "no_sync") or isinstance(model, FSDP) or model is None:
            model.no_sync()
        if isinstance(model, FSDPModule) and isinstance(model, nn.Module):
            model.forward(x)
        getattr(model, "no_sync", print)()
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(model)"),
        ("DirectForward", "model.forward(x)"),
    ]


def test_methods_that_only_fsdp2_has_tell_it(tmp_path: Path) -> None:
    text = """\
        def step(model):
            if hasattr(model, "set_requires_gradient_sync"):
                model.set_requires_gradient_sync(True)
            else:
                model.no_sync()
        model = Net()
        fully_shard(model)
        step(model)
    """
    assert only_path(tmp_path, text) == [("Shard", "fully_shard(model)")]


def test_methods_of_known_text_are_known(tmp_path: Path) -> None:
    text = """\
        mode = " FSDP:full ".strip().lower()
        model = Net()
        if mode.startswith("fsdp") and mode.removeprefix("fsdp:") == "full":
            fully_shard(model)
        elif mode.center(3) == "x":
            model = FSDP(model)
    """
    assert paths(tmp_path, text) == [[("Shard", "fully_shard(model)")]]


def test_an_attribute_set_in_one_arm_may_be_as_before(tmp_path: Path) -> None:
    text = """\
        class Options:
            sharded = True
        def main(quick, options=Options()):
            if quick:
                options.sharded = False
            model = Net()
            if options.sharded:
                fully_shard(model)
            optimizer = torch.optim.AdamW(model.parameters())
        main(x)
    """
    assert paths(tmp_path, text) == [
        [
            ("Shard", "fully_shard(model)"),
            ("BuildOptimizer", "torch.optim.AdamW(model.parameters())"),
        ]
    ]


# Entries


def test_what_the_constructor_calls_is_not_called_once_more(tmp_path: Path) -> None:
    text = """\
        class Base:
            def __init__(self, model):
                self.model = model
                self.set_up()
                self.optimizer = torch.optim.AdamW(self.model.parameters())
        class Trainer(Base):
            def set_up(self):
                self.shard()
            def shard(self):
                fully_shard(self.model)
            def shard_all(self):
                fully_shard(self.model)
    """
    built = [
        ("Shard", "fully_shard(self.model)"),
        ("BuildOptimizer", "torch.optim.AdamW(self.model.parameters())"),
    ]
    assert paths(tmp_path, text) == [built, [*built, ("Shard", "fully_shard(self.model)")]]


# Functions


def test_a_helper_is_entered_at_its_call(tmp_path: Path) -> None:
    text = """\
        def shard(m, extra=None):
            for block in m.layers:
                fully_shard(block)
            if extra:
                m.no_sync()
            return fully_shard(m)
        def main():
            model = shard(Net())
            model.forward(x)
        main()
    """
    found = script(tmp_path, text)
    trace = path_of(found)
    assert telling(found, trace) == [
        ("Shard", "fully_shard(block)"),
        ("Shard", "fully_shard(m)"),
        ("DirectForward", "model.forward(x)"),
    ]
    frames = [
        [found.text(path, node) for path, node in each.site.frames()]
        for each in trace.events
        if isinstance(each, (Shard, DirectForward))
    ]
    assert frames == [
        ["main()", "shard(Net())", "fully_shard(block)"],
        ["main()", "shard(Net())", "fully_shard(m)"],
        ["main()", "model.forward(x)"],
    ]


def test_arguments_find_their_parameters(tmp_path: Path) -> None:
    text = """\
        def f(a, /, b, *rest, c=None, **others):
            fully_shard(a)
            fully_shard(b)
            fully_shard(rest[0])
            fully_shard(c)
            fully_shard(others["d"])
        one, two, three, four, five = Net(), Net(), Net(), Net(), Net()
        f(one, *[two, three], c=four, **{"d": five})
        one.forward(1)
        two.forward(2)
        three.forward(3)
        four.forward(4)
        five.forward(5)
    """
    forwards = [text for kind, text in only_path(tmp_path, text) if kind == "DirectForward"]
    assert forwards == [
        "one.forward(1)",
        "two.forward(2)",
        "three.forward(3)",
        "four.forward(4)",
        "five.forward(5)",
    ]


def test_children_are_known_one_by_one(tmp_path: Path) -> None:
    text = """\
        from elsewhere import trunk

        class Whole(nn.Module):
            def __init__(self):
                self.first = nn.Linear(2, 2)
                self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(6)])

        class Open(Whole):
            def __init__(self):
                super().__init__()
                self.trunk = trunk()

        for _, child in Whole().named_children():
            fully_shard(child)
        for child in Open().children():
            fully_shard(child)
    """
    found = [path for _, path in parts(script(tmp_path, text))]
    assert found == [".first", ".layers", ".first", ".layers", ".children()[]"]


def test_a_key_that_a_dict_surely_has(tmp_path: Path) -> None:
    text = """\
        class Registry:
            def __init__(self):
                self.tables = {}

            def table(self, kind):
                if kind not in self.tables:
                    self.tables[kind] = {}
                return self.tables[kind]

            def add(self, name):
                def decorated(function):
                    self.table("model")[name] = function
                    return function
                return decorated

        registry = Registry()

        @registry.add("net")
        def make():
            return nn.Linear(2, 2)

        fully_shard(registry.table("model")["net"]())
    """
    found = script(tmp_path, text)
    (shard,) = {shard.module.cls.name for shard in path_of(found).of(Shard)}
    assert shard == "torch.nn.Linear"


@pytest.mark.parametrize("taken", ["kept.pop('a')", "del kept['a']", "kept.clear()"])
def test_a_key_that_a_dict_has_no_longer(tmp_path: Path, taken: str) -> None:
    text = f"""\
        kept = {{"a": 1, "b": 2}}
        {taken}
        if "a" in kept:
            fully_shard(first)
        else:
            fully_shard(second)
    """
    found = {tuple(path) for path in every_path(script(tmp_path, text))}
    assert (("Shard", "fully_shard(second)"),) in found


@pytest.mark.parametrize(("asked", "big"), [("big", "Linear"), ("not big", "Conv1d")])
def test_a_branch_decides_for_a_later_one(tmp_path: Path, asked: str, big: str) -> None:
    text = f"""\
        def main(big):
            if {asked}:
                model = nn.Linear(2, 2)
            else:
                model = nn.Conv1d(2, 2, 1)
            if big:
                fully_shard(model)
            else:
                FSDP(model)
        main(args.big)
    """
    shards = [shard for trace in script(tmp_path, text).traces for shard in trace.of(Shard)]
    made = {shard.generation: shard.module.cls for shard in shards}
    names = {each: cls.name for each, cls in made.items() if isinstance(cls, Symbol)}
    small = "Conv1d" if big == "Linear" else "Linear"
    assert len(shards) == 2
    assert names == {Generation.FSDP2: f"torch.nn.{big}", Generation.FSDP1: f"torch.nn.{small}"}


def test_recursion_ends(tmp_path: Path) -> None:
    text = """\
        def wrap(module):
            for child in module.children():
                wrap(child)
            fully_shard(module)
        wrap(Net())
    """
    found = script(tmp_path, text)
    assert [path for _, path in parts(found)] == [".children()[]", ""]
    assert path_of(found).complete


def test_partials_and_lambdas_and_bound_methods(tmp_path: Path) -> None:
    text = """\
        from functools import partial
        model = Net()
        shard = partial(partial(fully_shard, mesh=mesh), reshard_after_forward=False)
        shard(model)
        (lambda m, y=1: m.forward(y))(model)
        run = partial(model.forward, x)
        run()
        list(map(lambda part: fully_shard(part), model.parts))
    """
    found = script(tmp_path, text)
    trace = path_of(found)
    assert telling(found, trace) == [
        ("Shard", "shard(model)"),
        ("DirectForward", "m.forward(y)"),
        ("DirectForward", "run()"),
        ("Shard", "fully_shard(part)"),
    ]
    (sharded, *_) = (each for each in trace.events if isinstance(each, Shard))
    assert sorted(sharded.keywords) == ["mesh", "reshard_after_forward"]


def test_closures_see_the_variables_around_them(tmp_path: Path) -> None:
    text = """\
        def make():
            model = Net()
            def shard():
                fully_shard(model)
            return model, shard
        model, shard = make()
        optimizer = torch.optim.SGD(model.parameters())
        shard()
        model.forward(x)
    """
    assert only_path(tmp_path, text) == [
        ("BuildOptimizer", "torch.optim.SGD(model.parameters())"),
        ("Shard", "fully_shard(model)"),
        ("DirectForward", "model.forward(x)"),
    ]


def test_a_table_of_functions(tmp_path: Path) -> None:
    text = """\
        def one(m): fully_shard(m)
        def two(m): FSDP(m)
        TABLE = {"one": one, "two": two}
        TABLE["two"](Net())
        TABLE[args.kind](Net())
    """
    assert sorted(paths(tmp_path, text)) == [
        [("Shard", "FSDP(m)"), ("Shard", "FSDP(m)")],
        [("Shard", "FSDP(m)"), ("Shard", "fully_shard(m)")],
    ]


def test_spawn_runs_its_function_with_a_rank(tmp_path: Path) -> None:
    text = """\
        import torch.multiprocessing as mp
        def worker(index, model):
            fully_shard(model)
            if index == 0:
                torch.save(model.state_dict(), "x")
        mp.spawn(worker, args=(Net(),), nprocs=2)
    """
    found = script(tmp_path, text)
    (write,) = (each for each in path_of(found).events if type(each).__name__ == "PlainWrite")
    assert guards(found, write.site.guards) == [("index == 0", True, "rank")]


def test_a_generator_context_manager_yields_what_as_binds(tmp_path: Path) -> None:
    text = """\
        from contextlib import contextmanager
        @contextmanager
        def sharded(model):
            fully_shard(model)
            yield model
        with sharded(Net()) as m:
            m.no_sync()
    """
    assert only_path(tmp_path, text) == [("Shard", "fully_shard(model)"), ("NoSync", "m.no_sync()")]


def test_generators_and_coroutines(tmp_path: Path) -> None:
    text = """\
        async def build():
            return fully_shard(Net())
        def models():
            yield fully_shard(Net())
        async def main():
            model = await build()
            async for x in loader:
                model.forward(x)
            for other in models():
                other.no_sync()
        main()
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(Net())"),
        ("DirectForward", "model.forward(x)"),
        ("Shard", "fully_shard(Net())"),
        ("NoSync", "other.no_sync()"),
    ]


# Classes


def test_inheritance_and_super(tmp_path: Path) -> None:
    text = """\
        class Base:
            def __init__(self, model):
                self.model = model
                self.setup()
            def setup(self):
                fully_shard(self.model)
        class Trainer(Base):
            def __init__(self, model, lr):
                self.optimizer = torch.optim.SGD(model.parameters(), lr)
                super().__init__(model)
            def setup(self):
                super(Trainer, self).setup()
                self.model.no_sync()
        class Other(Trainer):
            def setup(self):
                Base.setup(self)
                self.model.forward(self.optimizer)
        Trainer(Net(), 0.1)
        Other(Net(), 0.1)
    """
    assert only_path(tmp_path, text) == [
        ("BuildOptimizer", "torch.optim.SGD(model.parameters(), lr)"),
        ("Shard", "fully_shard(self.model)"),
        ("NoSync", "self.model.no_sync()"),
        ("BuildOptimizer", "torch.optim.SGD(model.parameters(), lr)"),
        ("Shard", "fully_shard(self.model)"),
        ("DirectForward", "self.model.forward(self.optimizer)"),
    ]


def test_properties_static_and_class_methods(tmp_path: Path) -> None:
    text = """\
        class Trainer:
            kind = "fsdp"
            def __init__(self):
                self._model = Net()
            @property
            def model(self):
                return self._model
            @staticmethod
            def shard(m):
                fully_shard(m)
            @classmethod
            def build(cls):
                made = cls()
                if made.kind == "fsdp":
                    made.shard(made.model)
                return made
            def __call__(self):
                self.model.no_sync()
        Trainer.build()()
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(m)"),
        ("NoSync", "self.model.no_sync()"),
    ]


def test_a_dataclass_holds_what_it_was_made_with(tmp_path: Path) -> None:
    text = """\
        from dataclasses import dataclass
        @dataclass
        class Base:
            name: str
        @dataclass
        class Config(Base):
            mode: str
            shard: bool = True
        def main(config):
            model = Net()
            if config.mode == "ddp":
                FSDP(model)
            if config.mode == "fsdp" and config.shard:
                fully_shard(model)
        main(Config("x", "fsdp"))
        main(Config("y", mode="ddp"))
        main(Config("z", "fsdp", shard=False))
    """
    assert only_path(tmp_path, text) == [("Shard", "fully_shard(model)"), ("Shard", "FSDP(model)")]


def test_a_model_called_runs_its_forward_under_its_hooks(tmp_path: Path) -> None:
    text = """\
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()
            def forward(self, x):
                self.forward(x)
                return self.inner.forward(x)
        model = Net()
        fully_shard(model.inner)
        fully_shard(model)
        model(x)
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(model.inner)"),
        ("Shard", "fully_shard(model)"),
        ("DirectForward", "self.inner.forward(x)"),
    ]


def test_forwards_that_run_hooks_are_not_direct(tmp_path: Path) -> None:
    text = """\
        from torch.utils.checkpoint import checkpoint
        from torch.distributed.fsdp import register_fsdp_forward_method
        a, b, c = Net(), Net(), Net()
        fully_shard(a)
        fully_shard(b)
        fully_shard(c)
        checkpoint(a, 1)
        checkpoint(a.forward, 2)
        register_fsdp_forward_method(a, "forward")
        a.forward(3)
        torch.compile(b).forward(4)
        c.unshard()
        c.forward(5)
        c.reshard()
        c.forward(6)
    """
    forwards = [text for kind, text in only_path(tmp_path, text) if kind == "DirectForward"]
    assert forwards == ["checkpoint(a.forward, 2)", "c.forward(6)"]


def test_a_registered_method_runs_under_the_hooks(tmp_path: Path) -> None:
    text = """\
        from torch.distributed.fsdp import register_fsdp_forward_method
        class Net(nn.Module):
            def generate(self, x):
                return self.forward(x)
        model = Net()
        fully_shard(model)
        model.generate(1)
        register_fsdp_forward_method(model, "generate")
        model.generate(2)
        model.forward(3)
    """
    found = script(tmp_path, text)
    forwards = [each for each in path_of(found).events if isinstance(each, DirectForward)]
    assert [[found.text(*frame) for frame in each.site.frames()] for each in forwards] == [
        ["model.generate(1)", "self.forward(x)"],
        ["model.forward(3)"],
    ]


# Branches


def test_an_early_return_leaves_its_condition_behind(tmp_path: Path) -> None:
    text = """\
        def main(args):
            model = Net()
            if not args.fsdp:
                return model
            fully_shard(model)
            if args.fsdp:
                model.forward(x)
            else:
                model.no_sync()
        main(args)
    """
    found = script(tmp_path, text)
    trace = path_of(found)
    assert telling(found, trace) == [
        ("Shard", "fully_shard(model)"),
        ("DirectForward", "model.forward(x)"),
    ]
    assert guards(found, trace.events[0].site.guards) == [("args.fsdp", True, "")]


def test_branches_that_exclude_each_other(tmp_path: Path) -> None:
    text = """\
        model = Net()
        if args.kind == "two":
            fully_shard(model)
        elif args.kind == "one":
            FSDP(model)
        else:
            raise ValueError
        if args.kind != "one":
            model.no_sync()
    """
    assert paths(tmp_path, text) == [
        [("Shard", "fully_shard(model)"), ("NoSync", "model.no_sync()")],
        [("Shard", "FSDP(model)")],
    ]


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ('case "one" | "two": FSDP(model)', {"FSDP(model)"}),
        ('case "two" | "three": FSDP(model)', {"fully_shard(model)"}),
        ('case "one" as kind: FSDP(model)', {"FSDP(model)"}),
        ('case kind if kind == "two": FSDP(model)', {"fully_shard(model)"}),
        ('case "one" if args.flat: FSDP(model)', {"FSDP(model)", "fully_shard(model)"}),
        ('case "two" if args.flat: FSDP(model)', {"fully_shard(model)"}),
        ('case ["one"]: FSDP(model)', {"FSDP(model)", "fully_shard(model)"}),
        ("case str(): FSDP(model)", {"FSDP(model)", "fully_shard(model)"}),
    ],
)
def test_a_case_asks_what_its_pattern_does(tmp_path: Path, cases: str, expected: set[str]) -> None:
    text = f"""\
        model = Net()
        kind = "one"
        match kind:
            {cases}
            case _: fully_shard(model)
    """
    assert {code for path in paths(tmp_path, text) for _, code in path} == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("FSDPModule()", {"fully_shard(part)"}),
        ("FullyShardedDataParallel()", {"FSDP(part)"}),
        ("FSDPModule(width=8)", {"fully_shard(part)", "FSDP(part)"}),
        ("FSDPModule() | FullyShardedDataParallel()", {"fully_shard(part)"}),
        ("FullyShardedDataParallel() | DistributedDataParallel()", {"FSDP(part)"}),
    ],
)
def test_a_class_pattern_asks_for_an_instance(
    tmp_path: Path, pattern: str, expected: set[str]
) -> None:
    text = f"""\
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
        from torch.nn.parallel import DistributedDataParallel
        model, part = fully_shard(Net()), Net()
        match model:
            case {pattern}: fully_shard(part)
            case _: FSDP(part)
    """
    found = {code for path in paths(tmp_path, text) for _, code in path}
    assert found - {"fully_shard(Net())"} == expected


@pytest.mark.parametrize(
    ("bases", "cls", "expected"),
    [
        ("nn.Module", "nn.Module", {"fully_shard(part)"}),
        ("nn.Module", "nn.Linear", {"FSDP(part)"}),
        ("nn.Module", "nn.parallel.DistributedDataParallel", {"FSDP(part)"}),
        ("nn.Linear", "nn.Linear", {"fully_shard(part)"}),
        ("nn.Linear", "nn.Module", {"fully_shard(part)"}),
        ("nn.RNN", "nn.LSTM", {"fully_shard(part)", "FSDP(part)"}),
        ("nn.Module, Mixin", "nn.Linear", {"fully_shard(part)", "FSDP(part)"}),
        ("nn.Module", "Mixin", {"fully_shard(part)", "FSDP(part)"}),
    ],
)
def test_a_class_of_the_project_is_what_its_bases_are(
    tmp_path: Path, bases: str, cls: str, expected: set[str]
) -> None:
    text = f"""\
        from mixins import Mixin
        class Own({bases}):
            pass
        model, part = Own(), Net()
        if isinstance(model, {cls}): fully_shard(part)
        else: FSDP(part)
    """
    assert {code for path in paths(tmp_path, text) for _, code in path} == expected


def test_the_same_asked_twice_of_a_subject_is_answered_alike(tmp_path: Path) -> None:
    text = """\
        model = Net()
        match args.plan:
            case {"kind": "two"}:
                fully_shard(model)
        match args.plan:
            case {"kind": "two"}:
                pass
            case _:
                FSDP(model)
    """
    assert sorted(paths(tmp_path, text)) == [
        [("Shard", "FSDP(model)")],
        [("Shard", "fully_shard(model)")],
    ]


def test_a_match_is_a_chain_of_branches(tmp_path: Path) -> None:
    text = """\
        model = Net()
        match args.kind:
            case "two":
                fully_shard(model)
            case "one":
                FSDP(model)
            case _:
                model.no_sync()
    """
    found = script(tmp_path, text)
    assert every_path(found) == [[("Shard", "FSDP(model)")], [("Shard", "fully_shard(model)")]]
    (first, second) = (trace.events[0].site.guards for trace in found.traces)
    assert guards(found, first) == [('"two"', True, "")]
    assert guards(found, second) == [('"two"', False, ""), ('"one"', True, "")]


def test_a_branch_without_events_splits_no_path(tmp_path: Path) -> None:
    text = """\
        if args.a:
            name = "fsdp"
        else:
            name = "hsdp"
        model = Net()
        if args.b:
            print(model)
        if name == "ddp":
            FSDP(model)
        if name != "ddp":
            fully_shard(model)
    """
    assert only_path(tmp_path, text) == [("Shard", "fully_shard(model)")]


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        # what is only checked together excludes only each other
        (
            """\
            if args.ddp:
                if args.fsdp:
                    raise ValueError
            """,
            [["FSDP"], ["fully_shard"], []],
        ),
        (
            """\
            if not args.ddp:
                pass
            else:
                assert not args.fsdp
            """,
            [["FSDP"], ["fully_shard"], []],
        ),
        # with another condition both may be
        (
            """\
            if args.ddp and args.other:
                if args.fsdp:
                    raise ValueError
            """,
            [["FSDP", "fully_shard"], ["FSDP"], ["fully_shard"], []],
        ),
        # without a check both may be
        ("", [["FSDP", "fully_shard"], ["FSDP"], ["fully_shard"], []]),
    ],
    ids=["raise", "assert", "parts", "none"],
)
def test_what_a_check_excludes(tmp_path: Path, check: str, expected: list[list[str]]) -> None:
    text = """\
        if args.ddp:
            FSDP(Net())
        if args.fsdp:
            fully_shard(Net())
        fully_shard(other)
    """
    checked = textwrap.dedent(check) + textwrap.dedent(text)
    shards = [[text for kind, text in path] for path in paths(tmp_path, checked)]
    found = sorted([call.partition("(")[0] for call in path[:-1]] for path in shards)
    assert found == sorted(expected)


def test_what_a_branch_assigned_is_either(tmp_path: Path) -> None:
    text = """\
        a, b = Net(), Net()
        fully_shard(a)
        if unknown():
            model = a
        else:
            model = b
        model.no_sync()
        if unknown():
            only = a
        only.no_sync()
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(a)"),
        ("NoSync", "model.no_sync()"),
        ("NoSync", "only.no_sync()"),
    ]


def test_rank_tests_run_both_arms_on_one_path(tmp_path: Path) -> None:
    text = """\
        model = Net()
        fully_shard(model)
        rank = dist.get_rank()
        if rank == 0:
            model.no_sync()
        else:
            model.forward(x)
        if rank != 0:
            raise SystemExit
        torch.save(model.state_dict(), "x")
    """
    found = script(tmp_path, text)
    trace = path_of(found)
    seen = [(event(found, each)[1], guards(found, each.site.guards)) for each in trace.events]
    assert [each for each in seen if each[0] != "model.state_dict()"] == [
        ("fully_shard(model)", []),
        ("model.no_sync()", [("rank == 0", True, "rank")]),
        ("model.forward(x)", [("rank == 0", False, "rank")]),
        ("model.forward(x)", [("rank == 0", False, "rank")]),
        ('torch.save(model.state_dict(), "x")', [("rank != 0", False, "rank")]),
    ]


@pytest.mark.parametrize(
    ("rank", "mark"),
    [
        ("dist.get_rank()", "rank"),
        ('int(os.environ["LOCAL_RANK"])', "rank"),
        ('os.environ.get("RANK", 0)', "rank"),
        ("accelerator.process_index", "rank"),
        ("mesh.get_local_rank()", "rank"),
        ("trainer.global_rank + 1", "rank"),
        ('os.environ["WORLD_SIZE"]', ""),
        ("args.number", ""),
    ],
)
def test_values_that_differ_between_ranks(tmp_path: Path, rank: str, mark: str) -> None:
    text = f"import os\nfully_shard(m)\nvalue = {rank}\nif value == 0:\n    m.no_sync()\n"
    found = script(tmp_path, text)
    (call,) = (e for t in found.traces for e in t.events if type(e).__name__ == "NoSync")
    assert guards(found, call.site.guards) == [("value == 0", True, mark)]


def test_loop_tests_run_both_arms_on_one_path(tmp_path: Path) -> None:
    text = """\
        from contextlib import nullcontext
        model = Net()
        fully_shard(model)
        for i, batch in enumerate(loader):
            with model.no_sync() if i % 4 else nullcontext():
                model.forward(batch)
            if i > 3:
                break
        step = 0
        while step < 10:
            step += 1
            if step == 3:
                model.no_sync()
    """
    found = script(tmp_path, text)
    trace = path_of(found)
    seen = {event(found, each): guards(found, each.site.guards) for each in trace.events}
    assert seen == {
        ("Shard", "fully_shard(model)"): [],
        ("NoSync", "model.no_sync()"): [("step == 3", True, "loop")],
        ("DirectForward", "model.forward(batch)"): [],
        ("Call", "model.forward(batch)"): [],
    }
    assert [k for k in telling(found, trace) if k[0] == "NoSync"] == [
        ("NoSync", "model.no_sync()"),
        ("NoSync", "model.no_sync()"),
    ]


def test_which_of_several_constants_a_function_returned_is_not_known(tmp_path: Path) -> None:
    text = """\
        def train(model):
            for step in range(10):
                if step > limit:
                    return False, model
            return True, model
        model = Net()
        fully_shard(model)
        while True:
            good, trained = train(model)
            if not good:
                break
            trained.no_sync()
    """
    shard = ("Shard", "fully_shard(model)")
    assert paths(tmp_path, text) == [[shard, ("NoSync", "trained.no_sync()")]]


def test_a_flag_that_a_loop_changes_is_not_constant_in_it(tmp_path: Path) -> None:
    text = """\
        model = Net()
        fully_shard(model)
        first, fixed = True, True
        for batch in loader:
            if first:
                first = False
                model.forward(batch)
            elif fixed:
                model.no_sync()
            else:
                fully_shard(model.head)
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(model)"),
        ("DirectForward", "model.forward(batch)"),
        ("NoSync", "model.no_sync()"),
    ]


def test_a_try_runs_through_or_fails_at_once(tmp_path: Path) -> None:
    text = """\
        model = Net()
        fully_shard(model)
        try:
            model.forward(x)
        except RuntimeError:
            model.no_sync()
        else:
            model.forward(y)
        finally:
            torch.save(model.state_dict(), "x")
    """
    saved = ("PlainWrite", 'torch.save(model.state_dict(), "x")')
    assert paths(tmp_path, text) == [
        [
            ("Shard", "fully_shard(model)"),
            ("DirectForward", "model.forward(x)"),
            ("DirectForward", "model.forward(y)"),
            saved,
        ],
        [("Shard", "fully_shard(model)"), ("NoSync", "model.no_sync()"), saved],
    ]


def test_an_import_that_may_fail_is_either(tmp_path: Path) -> None:
    text = """\
        try:
            from torch.distributed.fsdp import fully_shard as shard
        except ImportError:
            shard = None
        if shard is not None:
            shard(Net())
    """
    assert paths(tmp_path, text) == [[("Shard", "shard(Net())")]]


def test_torch_shards_where_another_library_is_not_installed(tmp_path: Path) -> None:
    imports = """\
try:
    import torch_xla.core.xla_model as xm
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as Wrap
except ImportError:
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrap
    xm = None
"""
    train = """
from saving import save
model = Wrap(torch.nn.Linear(8, 8))
if xm:
    xm.mark_step()
save(model)
"""
    saving = """
def save(model):
    if xm:
        xm.save(model.state_dict())
    else:
        torch.save(model.state_dict(), "x")
"""
    files = {
        "train.py": f"import torch\n{imports}{train}",
        "saving.py": f"import torch\n{imports}{saving}",
    }
    made = program(tmp_path, files)
    assert [telling(made, trace) for trace in made.traces] == [
        [
            ("Shard", "Wrap(torch.nn.Linear(8, 8))"),
            ("PlainWrite", 'torch.save(model.state_dict(), "x")'),
        ]
    ]


def test_a_call_that_ends_the_program_ends_the_path(tmp_path: Path) -> None:
    text = """\
        import sys
        fully_shard(model)
        def usage():
            sys.exit(2)
        if args.help:
            usage()
        model.forward(x)
        sys.exit()
        model.no_sync()
    """
    assert only_path(tmp_path, text) == [
        ("Shard", "fully_shard(model)"),
        ("DirectForward", "model.forward(x)"),
    ]


# Parameters


@pytest.mark.parametrize(
    ("before", "after", "early"),
    [
        ("p = model.parameters()", "torch.optim.SGD(p)", False),
        ("p = list(model.parameters())", "torch.optim.SGD(p)", True),
        ("p = [q for q in model.parameters() if q.requires_grad]", "torch.optim.SGD(p)", True),
        ("p = (q for q in model.parameters())", "torch.optim.SGD(p)", False),
        ("p = filter(f, model.parameters())", "torch.optim.SGD(p)", False),
        ("p = [{'params': model.parameters()}]", "torch.optim.SGD(p)", False),
        ("p = [{'params': list(model.parameters())}]", "torch.optim.SGD(p)", True),
        ("pass", "torch.optim.SGD(model.parameters())", False),
        ("p = model.parameters", "torch.optim.SGD(p())", False),
    ],
)
def test_parameters_are_taken_when_a_generator_is_consumed(
    tmp_path: Path, before: str, after: str, early: bool
) -> None:
    found = script(tmp_path, f"model = Net()\n{before}\nfully_shard(model)\n{after}\n")
    trace = path_of(found)
    (shard,) = (each for each in trace.events if isinstance(each, Shard))
    (build,) = (each for each in trace.events if isinstance(each, BuildOptimizer))
    assert [capture.time < shard.time for capture in build.captures] == [early]
    assert [capture.module for capture in build.captures] == [shard.module]


# Entries and files


def test_entries_are_what_nothing_else_runs(tmp_path: Path) -> None:
    text = """\
        def caller(model):
            helper(model)
        def helper(model):
            fully_shard(model)
        class Trainer:
            def __init__(self, model):
                self.model = model
            def run(self):
                fully_shard(self.model)
            def idle(self):
                self.model.train()
        def cold(model):
            model.train()
    """
    assert [trace.entry for trace in script(tmp_path, text).traces] == ["caller", "Trainer.run"]


def test_a_main_guard_is_passed(tmp_path: Path) -> None:
    text = """\
        def main():
            fully_shard(model)
        if __name__ == "__main__":
            main()
    """
    assert [trace.entry for trace in script(tmp_path, text).traces] == ["<module>"]


@pytest.mark.parametrize(
    ("combine", "differs"),
    [
        ("dist.broadcast(step, src=0)", False),
        ("dist.all_reduce(step, op=dist.ReduceOp.MAX)", False),
        ("dist.broadcast(step, 0, None)", False),
        ("dist.broadcast(step, 0, dist.new_group([0, 1]))", True),
        ("dist.reduce(step, dst=0)", True),
        ("if dist.get_rank() < 2:\n    dist.broadcast(step, src=0)", True),
        ("dist.barrier()", True),
    ],
)
def test_a_tensor_is_the_same_on_all_ranks_after_a_broadcast(
    tmp_path: Path, combine: str, differs: bool
) -> None:
    text = f"""{HEADER}
step = torch.tensor(dist.get_rank())
{combine}
if step.item() < 100:
    fully_shard(model)
"""
    found = script(tmp_path, text)
    (shard,) = path_of(found).of(Shard)
    expected = ("step.item() < 100", True, "rank" if differs else "")
    assert expected in guards(found, shard.site.guards)


@pytest.mark.parametrize("differs", [False, True])
def test_a_list_is_the_same_on_all_ranks_after_a_broadcast(tmp_path: Path, differs: bool) -> None:
    text = f"""{HEADER}
box = [dist.get_rank()]
{"dist.barrier()" if differs else "dist.broadcast_object_list(box, src=0)"}
if box[0] < 100:
    fully_shard(model)
"""
    found = script(tmp_path, text)
    (shard,) = path_of(found).of(Shard)
    assert any(guard.divergent for guard in shard.site.guards) is differs


def test_a_name_that_two_files_import_from_each_other_is_unknown(tmp_path: Path) -> None:
    files = {
        "train.py": HEADER + "from lib import rows\nfully_shard(model)\nmodel(rows)\n",
        "lib/__init__.py": "from .loading import *\n",
        "lib/loading.py": "from lib import rows\n",
    }
    found = program(tmp_path, files)
    assert not found.project.early_stops
    assert path_of(found).complete


def test_an_imported_file_runs_silently_and_unguarded(tmp_path: Path) -> None:
    files = {
        "train.py": "import lib\nfrom lib import model, shard as s\n"
        "if __name__ == '__main__':\n    s(model)\n    lib.model.no_sync()\n",
        "lib.py": HEADER
        + "model = Net()\ndef shard(m):\n    fully_shard(m)\n"
        + "if __name__ == '__main__':\n    FSDP(model)\n",
    }
    found = program(tmp_path, files)
    seen = [(Path(t.path).name, telling(found, t)) for t in found.traces]
    assert sorted(seen, reverse=True) == [
        ("train.py", [("Shard", "fully_shard(m)"), ("NoSync", "lib.model.no_sync()")]),
        ("lib.py", [("Shard", "FSDP(model)")]),
    ]


@pytest.mark.parametrize(
    "export",
    ["from .wrap import shard\n", "from .wrap import *\n", "from .wrap import all_of as shard\n"],
)
def test_an_entry_may_reach_sharding_by_a_package_that_exports_it(
    tmp_path: Path, export: str
) -> None:
    files = {
        "train.py": "from lib import tools\nimport lib.tools as t\n"
        "def main(model):\n    tools.shard(model)\n"
        "def other(model):\n    t.shard(model)\n"
        "def cold(model):\n    tools.describe(model)\n",
        "lib/__init__.py": "",
        "lib/tools/__init__.py": export + "from .wrap import describe\n",
        "lib/tools/wrap.py": HEADER + "def shard(m):\n    fully_shard(m)\nall_of = shard\n"
        "def describe(m):\n    print(m)\n",
    }
    assert [trace.entry for trace in program(tmp_path, files).traces] == ["main", "other"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("for name, value in given.items():\n    setattr(Config, name, value)", True),
        ("setattr(Config, name, True)", True),
        ("setattr(Config, 'fsdp', True)", True),
        ("setattr(Config, 'other', True)", False),
        ("setattr(Config(), name, True)", False),
    ],
)
def test_a_class_as_configuration_may_be_changed(
    tmp_path: Path, change: str, expected: bool
) -> None:
    text = (
        "class Config:\n    fsdp = False\n    other = 1\n"
        f"{change}\nmodel = Net()\nfully_shard(model.part)\n"
        "if Config.fsdp:\n    fully_shard(model)\n"
    )
    reached = any(("Shard", "fully_shard(model)") in path for path in paths(tmp_path, text))
    assert reached is expected


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("type(model).__name__ == 'Net'", True),
        ("type(model).__name__ == 'Block'", False),
        ("model.__class__.__name__ in ('Other', 'Net')", True),
        ("'et' in type(model).__name__", True),
        ("type(model) is Net", True),
        ("type(model) in (Block, torch.nn.Linear)", False),
        ("type(layer) is torch.nn.Linear and type(layer).__name__ == 'Linear'", True),
        ("type(layer) is torch.nn.Embedding", False),
        ("isinstance(layer, torch.nn.Module)", True),
        ("isinstance(layer, (torch.nn.Embedding, torch.nn.LazyLinear))", False),
        ("isinstance(special, torch.nn.Embedding)", False),
        ("isinstance(special, torch.nn.Linear)", True),
        # what may have another class
        ("type(sharded).__name__ == 'Net'", None),
        ("type(torch.compile(model)).__name__ == 'Net'", None),
        ("type(given).__name__ == 'Net'", None),
        ("type(turned).__name__ == 'Net'", None),
        ("isinstance(recurrent, torch.nn.RNNBase)", None),
        ("isinstance(norm, torch.nn.SyncBatchNorm)", None),
    ],
)
def test_what_class_an_object_is_of(tmp_path: Path, test: str, expected: bool | None) -> None:
    text = f"""\
        class Net(torch.nn.Module):
            pass
        class Block(torch.nn.Module):
            pass
        class Special(torch.nn.Linear):
            pass
        model, layer, special = Net(), torch.nn.Linear(1, 1), Special(1, 1)
        recurrent, norm = torch.nn.LSTM(1, 1), torch.nn.BatchNorm1d(1)
        sharded, turned = fully_shard(Net()), Net()
        turned.__class__ = Block
        if {test}:
            fully_shard(outcome)
    """
    found = {("Shard", "fully_shard(outcome)") in path for path in paths(tmp_path, text)}
    assert found == ({True, False} if expected is None else {expected})


def test_a_dict_that_fills_itself(tmp_path: Path) -> None:
    text = """\
        from collections import defaultdict
        groups, nested = defaultdict(list), defaultdict(lambda: defaultdict(list))
        counts, options = defaultdict(int), defaultdict(dict, shard=True)
        groups["a"].append(Net())
        groups["b"].append(Net())
        nested["x"]["y"].append(Net())
        for model in [*groups["a"], *nested["x"]["y"]]:
            fully_shard(model)
        for model in groups["b"]:
            model.no_sync()
        if groups.get("c"):
            fully_shard(other)
        if options["shard"] and "shard" in options:
            fully_shard(options["made"].setdefault("net", Net()))
        options["made"]["net"].no_sync()
        counts["steps"] += 1
        if counts["steps"] and not counts["other"]:
            fully_shard(third)
    """
    first, *_ = paths(tmp_path, text)
    assert first == [
        ("Shard", "fully_shard(model)"),
        ("Shard", "fully_shard(model)"),
        ("Shard", 'fully_shard(options["made"].setdefault("net", Net()))'),
        ("NoSync", 'options["made"]["net"].no_sync()'),
        ("Shard", "fully_shard(third)"),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("for key in names:\n    node = getattr(node, key)\nsetattr(node, leaf, value)", True),
        ("setattr(getattr(node, key), leaf, value)", True),
        ("setattr(getattr(other, key), leaf, value)", False),
        ("setattr(node, leaf, value)", False),
        ("getattr(node, key)", False),
    ],
)
def test_nested_settings_may_be_changed_by_names_that_are_not_known(
    tmp_path: Path, change: str, expected: bool
) -> None:
    text = (
        "class Node:\n    pass\n"
        "config, other = Node(), Node()\nconfig.system = Node()\nconfig.system.parallel = Node()\n"
        "config.system.parallel.fsdp = False\nnode = config\n"
        f"{change}\nmodel = Net()\nfully_shard(model.part)\n"
        "if config.system.parallel.fsdp:\n    fully_shard(model)\n"
    )
    reached = any(("Shard", "fully_shard(model)") in path for path in paths(tmp_path, text))
    assert reached is expected


def test_a_function_of_another_file_by_every_way_of_importing(tmp_path: Path) -> None:
    calls = ["a(m)", "lib.wrap.shard(m)", "w.shard(m)", "shard(m)", "again(m)", "inner.shard(m)"]
    files = {
        "train.py": "from lib.wrap import shard as a\nimport lib.wrap\nimport lib.wrap as w\n"
        "from lib.wrap import *\nfrom lib import again\nfrom lib import wrap as inner\n"
        "m = Net()\n" + "\n".join(calls) + "\n",
        "lib/__init__.py": "from .wrap import shard as again\n",
        "lib/wrap.py": HEADER + "def shard(m):\n    fully_shard(m)\n",
    }
    found = program(tmp_path, files)
    entered = [found.text(*each.site.calls[0]) for each in path_of(found).events]
    assert entered == calls


def test_unknown_code_may_change_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = objects_made(monkeypatch)
    text = """\
        import mystery
        class A(nn.Module): pass
        class B(nn.Module): pass
        class C(nn.Module): pass
        class D(nn.Module): pass
        a, b, c, d = A(), B(), C(), D()
        fully_shard(d)
        mystery.call(a)
        torch.cuda.synchronize(b)
        mystery.call([{"k": c}])
        print(d)
    """
    found = script(tmp_path, text)
    trace = path_of(found)
    escapes = [
        (found.text(each.site.path, each.site.node), [_class(made) for made in each.objects])
        for each in trace.escapes
    ]
    assert escapes == [("mystery.call(a)", ["A"]), ('mystery.call([{"k": c}])', ["C"])]
    assert [_class(made) for made in every if made.escaped is not None] == ["A", "C"]


def _class(made: Object) -> str:
    assert isinstance(made.cls, ClassValue)
    return made.cls.node.name


# Budgets


def test_many_independent_branches_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, repeats=0)
    branches = [f"if a{i}:\n    model.no_sync()" for i in range(60)]
    found = script(tmp_path, "\n".join(["model = Net()", "fully_shard(model)", *branches]))
    assert [trace.complete for trace in found.traces] == [True] * 61
    assert len(telling(found, found.traces[0])) == 61


def test_branches_without_events_cost_no_paths(tmp_path: Path) -> None:
    branches = [f"if a{i}:\n    x{i} = 1" for i in range(60)]
    found = script(tmp_path, "\n".join(["model = Net()", "fully_shard(model)", *branches]))
    assert len(path_of(found).decisions) == 0


def test_a_path_that_is_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, path_steps=300)
    lines = ["fully_shard(model)", *(f"f({i})" for i in range(300)), "model.no_sync()"]
    found = script(tmp_path, "\n".join(lines))
    assert telling(found, path_of(found)) == [("Shard", "fully_shard(model)")]
    assert not path_of(found).complete


def test_calls_nested_too_deep_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [f"def f{i}(m):\n    f{i - 1}(m)" for i in range(1, 10)]
    text = "\n".join(["def f0(m):\n    fully_shard(m)", *chain, "f9(Net())", "fully_shard(m)"])
    limit(monkeypatch, depth=4)
    found = script(tmp_path, text)
    depths = [len(each.site.calls) for trace in found.traces for each in trace.events]
    assert depths[0] == 0, "the top level goes on behind the call"
    assert max(depths) == 4, "and what it did not reach is an entry"


def test_mutual_recursion_ends(tmp_path: Path) -> None:
    text = """\
        def a(m, n):
            fully_shard(m)
            b(m, n)
            b(m.x, n - 1)
        def b(m, n):
            if n:
                a(m, n)
            a(m.y, n)
        a(Net(), 100)
    """
    found = script(tmp_path, text)
    assert {trace.complete for trace in found.traces} == {True}


def test_a_budget_that_ends_inside_a_generator_context_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, path_steps=300)
    lines = "\n".join(f"        x{i} = f(f(f({i})))" for i in range(300))
    text = f"""
from contextlib import contextmanager
from torch.distributed.fsdp import fully_shard

@contextmanager
def around(m):
    yield m

def main(m, f):
    with around(m) as inner:
        fully_shard(inner)
{lines}
"""
    assert not path_of(script(tmp_path, text)).complete


def test_a_list_that_holds_itself_is_no_error(tmp_path: Path) -> None:
    text = "a = []\na.append(a)\nb = [a]\na.append(b)\nc = list(b)\nfully_shard(model)"
    found = script(tmp_path, text)
    assert telling(found, path_of(found)) == [("Shard", "fully_shard(model)")]


def test_the_objects_of_a_class_that_share_their_attributes_are_set_up_once(tmp_path: Path) -> None:
    text = """\
        class Run:
            _shared = {}

            def __init__(self):
                self.__dict__ = self._shared
                if not self.ready:
                    fully_shard(model)
                    self.model = model

            @property
            def ready(self):
                return self._shared != {}

        Run()
        Run().model.forward(1)
    """
    assert paths(tmp_path, text)[0] == [
        ("Shard", "fully_shard(model)"),
        ("DirectForward", "Run().model.forward(1)"),
    ]


def test_a_function_that_calls_itself_sets_attributes_inside_itself(tmp_path: Path) -> None:
    text = """\
        class Config:
            fsdp = False

        def update(config, options):
            if isinstance(config, tuple):
                for each in config:
                    update(each, options)
            else:
                for name, value in options.items():
                    setattr(config, name, value)

        config = Config()
        update((config,), vars(args))
        model = nn.Linear(4, 4)
        if config.fsdp:
            fully_shard(model)
    """
    assert [trace.of(Shard)[0].module for trace in script(tmp_path, text).traces] != []


@pytest.mark.parametrize(("given", "runs"), [("settings", 1), ("model", 2)])
def test_a_function_that_calls_itself_runs_once_more_only_for_what_rules_ask_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, runs: int
) -> None:
    text = f"""\
        def walk(value, depth):
            return walk(value, Depth(depth))

        class Depth:
            def __init__(self, inner):
                self.inner = inner

        settings = load("settings.yaml")
        model = nn.Linear(4, 4)
        fully_shard(model)
        walk({given}, None)
    """
    made = objects_made(monkeypatch)
    found = script(tmp_path, text)
    depths = [
        each for each in made if getattr(getattr(each.cls, "node", None), "name", "") == "Depth"
    ]
    assert len(depths) == runs * len(found.traces)
