"""Facts: which events together make a finding, on which paths, and what speaks against it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from helpers import event, path_of, program, script
from limits import limit

from fsdplint.engine.facts.clipping import local_norms
from fsdplint.engine.facts.gradient_sync import missing_no_syncs, unreduced_steps
from fsdplint.engine.facts.sharding import as_unit
from fsdplint.engine.facts.state_files import sharded_writes
from fsdplint.engine.program import Program
from fsdplint.rules.direct_forward import skipped_hooks
from fsdplint.rules.only_root_sharded import root_only_shards
from fsdplint.rules.optimizer_before_sharding import StaleOptimizer, stale_optimizers
from fsdplint.rules.root_unsharded_after_eval import unsharded_captures


def stale(root: Path, text: str) -> list[tuple[str, str, str, str]]:
    """Stale optimizers as (optimizer, capture, first sharding, last sharding)."""
    found = script(root, text)
    return sorted({_stale(found, fact) for fact in stale_optimizers(found)})


def _stale(found: Program, fact: StaleOptimizer) -> tuple[str, str, str, str]:
    source = fact.capture.source
    return (
        event(found, fact.build)[1],
        found.text(source.path, source.node),
        event(found, fact.shard)[1],
        event(found, fact.last)[1],
    )


STALE = ("torch.optim.SGD(model.parameters())", "model.parameters()")
BUILD = "optimizer = torch.optim.SGD(model.parameters())"


# Stale optimizers


def test_an_optimizer_before_its_model_is_sharded(tmp_path: Path) -> None:
    text = f"""\
        model = Net()
        {BUILD}
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    """
    assert stale(tmp_path, text) == [(*STALE, "fully_shard(block)", "fully_shard(model)")]


@pytest.mark.parametrize(
    ("before", "sharding", "expected"),
    [
        (BUILD, "fully_shard(model)", True),
        (BUILD, "FSDP(model)", True),
        (BUILD, "FSDP(model, use_orig_params=False)", True),
        (BUILD, "FSDP(model, use_orig_params=True)", False),
        (BUILD, "FSDP(model, use_orig_params=args.o)", False),
        (BUILD, "FSDP(model, **args)", False),
        (BUILD, "fully_shard(model.head)", True),
        (BUILD, "fully_shard(other)", False),
        ("optimizer = torch.optim.SGD(model.head.parameters())", "fully_shard(model)", True),
        ("optimizer = torch.optim.SGD(model.head.parameters())", "fully_shard(model.body)", False),
        (
            "optimizer = torch.optim.SGD([p for n, p in model.named_parameters() if f(n)])",
            "fully_shard(model.head)",
            False,
        ),
        (
            "optimizer = torch.optim.SGD([p for n, p in model.named_parameters() if f(n)])",
            "fully_shard(model)",
            True,
        ),
    ],
)
def test_which_sharding_replaces_what_is_captured(
    tmp_path: Path, before: str, sharding: str, expected: bool
) -> None:
    text = f"model, other = Net(), Net()\n{before}\n{sharding}\n"
    assert bool(stale(tmp_path, text)) is expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("pass", True),
        ("optimizer.step()", True),
        # built again before the first step
        (BUILD, False),
        (f"optimizer.step()\n{BUILD}", True),
        (f"if x:\n    pass\n{BUILD}\noptimizer.step()", False),
        ("other = torch.optim.SGD(elsewhere.parameters())", True),
        # re-pointed
        ("optimizer.param_groups[0]['params'] = list(model.parameters())", False),
        ("for g in optimizer.param_groups:\n    g['params'] = new(g)", False),
        ("optimizer.param_groups = groups", False),
        ("optimizer.param_groups.clear()", False),
        ("optimizer.param_groups[0]['lr'] = 0.1", True),
        ("for g in optimizer.param_groups:\n    g['lr'] *= 0.1", True),
        # given to unknown code together, before or after the first step
        ("mystery(model, optimizer)", False),
        ("optimizer.step()\nmystery(model, optimizer)", True),
        ("mystery(optimizer)", True),
        ("mystery(model)", True),
        # prepared jointly by a library
        ("model, optimizer = accelerator.prepare(model, optimizer)", False),
    ],
)
def test_what_repairs_a_stale_optimizer(tmp_path: Path, after: str, expected: bool) -> None:
    text = f"model = Net()\n{BUILD}\nfully_shard(model)\n{after}\n"
    assert bool(stale(tmp_path, text)) is expected


def test_an_optimizer_on_a_path_that_is_cut_short_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"model = Net()\n{BUILD}\nfully_shard(model)\n" + "print(model)\n" * 200
    (tmp_path / "whole").mkdir()
    assert stale(tmp_path / "whole", text)
    limit(monkeypatch, path_steps=300)
    assert not stale(tmp_path, text)


def test_unknown_code_before_the_sharding_repairs_nothing(tmp_path: Path) -> None:
    text = f"model = Net()\n{BUILD}\nmystery(model, optimizer)\nfully_shard(model)\n"
    assert stale(tmp_path, text) == [(*STALE, *["fully_shard(model)"] * 2)]


# What can happen in one run


@pytest.mark.parametrize(
    ("build_test", "shard_test", "expected"),
    [
        (None, None, True),
        (None, "args.fsdp", True),
        ("args.train", None, True),
        ("args.fsdp", "args.fsdp", True),
        ("args.fsdp", "not args.fsdp", False),
        # two conditions of their own: only words tell whether they are ways to run in parallel
        ("args.train", "args.fsdp", True),
        ("args.ddp", "args.fsdp", False),
        ("args.ddp", "args.big", False),
        ("kind == 'a'", "kind == 'b'", False),
        ("kind == 'a'", "kind != 'b'", True),
        ("n > 1", "n == 1", False),
        ("n > 1", "n >= 1", True),
        ("x is None", "x is not None", False),
        # ranks and iterations are no ways to run
        ("dist.get_rank() == 0", "args.fsdp", True),
    ],
)
def test_two_events_under_conditions(
    tmp_path: Path, build_test: str | None, shard_test: str | None, expected: bool
) -> None:
    text = "\n".join(
        [
            "model = Net()",
            f"if {build_test or 'True'}:",
            f"    {BUILD}",
            f"if {shard_test or 'True'}:",
            "    fully_shard(model)",
        ]
    )
    assert bool(stale(tmp_path, text)) is expected


@pytest.mark.parametrize(
    ("first", "second", "third", "expected"),
    [
        ("args.ddp", "True", "args.fsdp", False),
        ("True", "args.ddp", "args.fsdp", False),
        ("True", "args.x", "args.fsdp", True),
    ],
)
def test_the_capture_and_the_optimizer_both_count(
    tmp_path: Path, first: str, second: str, third: str, expected: bool
) -> None:
    text = f"""\
        model, params = Net(), []
        if {first}:
            params = list(model.parameters())
        if {second}:
            torch.optim.SGD(params)
        if {third}:
            fully_shard(model)
    """
    assert bool(stale(tmp_path, text)) is expected


def test_a_use_under_another_mode_is_not_reported(tmp_path: Path) -> None:
    text = """\
        def main(args):
            model = Net()
            if args.fsdp:
                fully_shard(model)
            if args.ddp:
                model.no_sync()
            if args.verbose:
                model.forward(x)
    """
    found = script(tmp_path, text)
    assert list(missing_no_syncs(found)) == []
    assert {event(found, fact.forward)[1] for fact in skipped_hooks(found)} == {"model.forward(x)"}


def test_conditions_are_evidence(tmp_path: Path) -> None:
    text = """\
        def main(args):
            model = Net()
            if args.fsdp and not args.dry:
                fully_shard(model)
            for i, batch in enumerate(loader):
                if i % 4:
                    if dist.get_rank() == 0:
                        model.no_sync()
    """
    found = script(tmp_path, text)
    (fact,) = missing_no_syncs(found)
    source = found.tree(fact.call.site.path).text
    notes = [
        (source[each.span.start : each.span.end], each.note)
        for each in found.conditions(fact.call.site, fact.shard.site)
    ]
    assert notes == [
        ("dist.get_rank() == 0", "only some ranks pass this test"),
        ("args.fsdp and not args.dry", "when `args.fsdp and not args.dry` is true"),
    ]


def test_places_are_named_from_where_the_reader_is(tmp_path: Path) -> None:
    files = {
        "train.py": "from lib import shard\nmodel = Net()\nshard(model)\nmodel.no_sync()\n",
        "lib.py": "from torch.distributed.fsdp import fully_shard\n\n\n"
        "def shard(m):\n    return fully_shard(\n        m,\n    )\n",
    }
    found = program(tmp_path, files)
    (fact,) = missing_no_syncs(found)
    call, shard = fact.call.site, fact.shard.site
    assert found.where(shard, seen_from=call) == "in lib.py:5"
    assert found.where(call, seen_from=call) == "on line 4"
    assert found.text(shard.path, shard.node) == "fully_shard( m, )"
    assert found.span(call).start == files["train.py"].index("model.no_sync()")
    assert found.span(call).end == files["train.py"].index("()\n", found.span(call).start) + 2


# Which part is sharded


@pytest.mark.parametrize(
    ("sharded", "used", "expected"),
    [
        ("model", "model", True),
        ("model.head", "model.head", True),
        ("model.head", "model.body", False),
        ("FSDP", "model", False),
    ],
)
def test_a_use_is_of_the_part_that_is_sharded(
    tmp_path: Path, sharded: str, used: str, expected: bool
) -> None:
    call = "FSDP(model)" if sharded == "FSDP" else f"fully_shard({sharded})"
    found = script(tmp_path, f"model = Net()\n{call}\n{used}.forward(x)\n{used}.no_sync()\n")
    assert len(list(skipped_hooks(found))) == expected
    assert len(list(missing_no_syncs(found))) == expected


# Writes


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        ("torch.save(model.state_dict(), 'x')", True),
        ("torch.save({'m': model.state_dict(), 'step': 1}, 'x')", True),
        ("torch.save(obj=model.state_dict(), f='x')", True),
        ("torch.save({k: v.cpu() for k, v in model.state_dict().items()}, 'x')", True),
        ("torch.save(optimizer.state_dict(), 'x')", True),
        ("torch.save(get_model_state_dict(model), 'x')", True),
        ("torch.save(get_model_state_dict(model, options=sharded), 'x')", True),
        ("torch.save(get_model_state_dict(model, options=full), 'x')", False),
        ("torch.save(get_model_state_dict(model, options=unknown), 'x')", False),
        ("torch.save({k: v.full_tensor() for k, v in model.state_dict().items()}, 'x')", False),
        ("torch.save(gather(model.state_dict()), 'x')", False),
        ("torch.save({'step': 1}, 'x')", False),
        ("torch.save(other.state_dict(), 'x')", False),
        # one file per rank, by its value or by its words
        ("torch.save(model.state_dict(), f'x{dist.get_rank()}')", False),
        ("torch.save(model.state_dict(), f'x{number}')", False),
        ("torch.save(model.state_dict(), 'x' + str(number))", False),
        ("torch.save(model.state_dict(), rank_path(3))", False),
        ("torch.save(model.state_dict(), f'x{step}')", True),
    ],
)
def test_writes_of_sharded_state(tmp_path: Path, write: str, expected: bool) -> None:
    text = f"""\
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        full, sharded = StateDictOptions(full_state_dict=True), StateDictOptions(cpu_offload=True)
        model, other = Net(), Net()
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        number = dist.get_rank()
        {write}
    """
    found = script(tmp_path, text)
    facts = [event(found, fact.write)[1] for fact in sharded_writes(found)]
    assert facts == [" ".join(write.split())] * expected


def test_the_guards_of_a_write_are_its_rank_tests(tmp_path: Path) -> None:
    text = """\
        model = Net()
        fully_shard(model)
        if args.save:
            if dist.get_rank() == 0:
                torch.save(model.state_dict(), "a")
            if is_main(args):
                torch.save(model.state_dict(), "b")
            torch.save(model.state_dict(), "c")
    """
    found = script(tmp_path, text)
    guards = {
        fact.write.site.node.start: [found.text(g.path, g.test) for g in fact.guards]
        for fact in sharded_writes(found)
    }
    assert list(guards.values()) == [["dist.get_rank() == 0"], ["is_main(args)"], []]


def test_a_target_handed_in_may_be_one_per_rank(tmp_path: Path) -> None:
    text = """\
        def save(model, path):
            fully_shard(model)
            torch.save(model.state_dict(), path)
            if dist.get_rank() == 0:
                torch.save(model.state_dict(), path)
    """
    found = script(tmp_path, text)
    assert [len(fact.guards) for fact in sharded_writes(found)] == [1]


# Root-only sharding

NET = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(2, 2)
"""


def root_only(root: Path, text: str) -> list[tuple[str, tuple[str, ...], str]]:
    found = script(root, text)
    return [
        (event(found, f.shard)[1], tuple(each.path for each in f.blocks), f.model_class)
        for f in root_only_shards(found)
    ]


FOUND = [("fully_shard(model)", ("blocks",), "Net")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = Net()\nfully_shard(model)", True),
        ("model = Net().to('cuda')\nmodel.train()\nprint(model)\nfully_shard(model)", True),
        ("model = Net()\nfor b in model.blocks:\n    fully_shard(b)\nfully_shard(model)", False),
        ("model = Net()\nfully_shard(model.head)\nfully_shard(model)", False),
        ("model = Net()\nfor m in model.modules():\n    fully_shard(m)\nfully_shard(model)", False),
        # another model is sharded
        ("other, model = Net(), Net()\nfully_shard(other.head)\nfully_shard(model)", True),
        # unknown code had it before, or only after
        ("model = Net()\nmystery(model)\nfully_shard(model)", False),
        ("model = Net()\nmystery(model.blocks)\nfully_shard(model)", False),
        ("model = Net()\nmystery([model])\nfully_shard(model)", False),
        ("model = Net()\nfully_shard(model)\nmystery(model)", True),
        # branches that shard more, on a path or in code that was not reached
        ("model = Net()\nif a:\n    fully_shard(model.head)\nfully_shard(model)", False),
        (
            "model = Net()\nif a:\n    for b in model.blocks:\n        fully_shard(b)\n"
            "fully_shard(model)",
            False,
        ),
        ("model = Net()\nif False:\n    fully_shard(model.head)\nfully_shard(model)", False),
        # it is a part of something, or nobody saw it being made
        (
            "class W(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.net = Net()\nmodel = W().net\nfully_shard(model)",
            False,
        ),
        ("model = load()\nfully_shard(model)", False),
        # a base that is not read may shard in its constructor
        ("class Sub(Net, mystery.base()): pass\nmodel = Sub()\nfully_shard(model)", False),
    ],
)
def test_when_only_the_root_is_sharded(tmp_path: Path, text: str, expected: bool) -> None:
    found = root_only(tmp_path, f"import mystery\nfrom mystery import load\n{NET}{text}\n")
    mine = [each for each in found if each[0] == "fully_shard(model)"]
    assert mine == FOUND * expected


@pytest.mark.parametrize(
    ("function", "expected"), [("size_based_auto_wrap_policy", True), ("zoo.by_size", False)]
)
def test_a_wrap_policy_that_is_handed_to_nobody(
    tmp_path: Path, function: str, expected: bool
) -> None:
    text = f"""\
        import functools
        import zoo
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
        by_size = {function}
        policy = functools.partial(by_size, min_num_params=20_000)
        model = FSDP(zoo.ConvNet())
    """
    idle = [fact.idle_policy for fact in root_only_shards(script(tmp_path, text))]
    assert len(idle) == expected and None not in idle


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", True),
        (", use_orig_params=True", True),
        (", auto_wrap_policy=None", True),
        (", auto_wrap_policy=policy", False),
        (", None, None, None, policy", False),
        (", auto_wrap_policy=policy if a else None", False),
        (", **options", False),
        (", sharding_strategy=ShardingStrategy.NO_SHARD", False),
        (", sharding_strategy=ShardingStrategy.FULL_SHARD", True),
        (", sharding_strategy=args.strategy", False),
    ],
)
def test_an_fsdp1_policy_shards_the_children(
    tmp_path: Path, arguments: str, expected: bool
) -> None:
    text = f"from torch.distributed.fsdp import ShardingStrategy\n{NET}FSDP(Net(){arguments})\n"
    assert [each[1:] for each in root_only(tmp_path, text)] == [(("blocks",), "Net")] * expected


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ("self.a = nn.ModuleList([Block() for _ in range(n)])", ("a",)),
        ("self.a = nn.ModuleList(Block() for _ in range(n))", ("a",)),
        ("self.a = nn.ModuleList([Block(), Block()])", ("a",)),
        ("self.a = nn.Sequential(*[Block() for _ in range(n)])", ("a",)),
        ("self.a = nn.Sequential(Block(), Block())", ("a",)),
        (
            "self.a = nn.ModuleList()\n        for _ in range(n):\n"
            "            self.a.append(Block())",
            ("a",),
        ),
        ("self.a = nn.ModuleList([nn.TransformerEncoderLayer(2, 2) for _ in range(n)])", ("a",)),
        ("self.a = nn.TransformerEncoder(layer, 4)", ("a.layers",)),
        ("self.a = Inner()", ("a.b",)),
        ("self.a = Inner()\n        self.c = nn.ModuleList([Block(), Block()])", ("a.b", "c")),
        ("self.a = nn.ModuleList([Block()])", None),
        ("self.a = nn.ModuleList([nn.Linear(2, 2) for _ in range(n)])", None),
        ("self.a = nn.Sequential(Block(), nn.ReLU())", None),
        ("self.a = [Block() for _ in range(n)]", None),
        ("self.a = make_blocks()", None),
    ],
)
def test_where_the_blocks_of_a_model_are(
    tmp_path: Path, blocks: str, expected: tuple[str, ...] | None
) -> None:
    text = f"""\
class Block(nn.Module): pass
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.ModuleList([Block() for _ in range(4)])
class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        {blocks}
fully_shard(Net(4))
"""
    found = [each[1] for each in root_only(tmp_path, text)]
    assert found == ([] if expected is None else [expected])


def test_a_hugging_face_model_repeats_blocks(tmp_path: Path) -> None:
    text = """\
        from transformers import AutoModelForCausalLM, LlamaForCausalLM
        fully_shard(LlamaForCausalLM(config))
        fully_shard(AutoModelForCausalLM.from_pretrained("x"))
    """
    assert [each[1:] for each in root_only(tmp_path, text)] == [
        (("model.layers",), "LlamaForCausalLM"),
        (("",), "AutoModelForCausalLM"),
    ]


def test_a_program_says_what_it_could_not_read(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        {
            "train.py": "from torch.distributed.fsdp import fully_shard\nfully_shard(m)\n",
            "broken.py": "fully_shard(\n",
        },
    )
    assert [Path(path).name for path in found.project.failures] == ["broken.py"]
    assert [event(found, each)[1] for each in path_of(found).events] == ["fully_shard(m)"]


# Unreduced steps

ACCUMULATE = """\
model = fully_shard(Net())
optimizer = torch.optim.SGD(model.parameters())
for i, x in enumerate(data):
"""


def unreduced(root: Path, body: str, before: str = "") -> list[tuple[str, bool, bool]]:
    """The calls that turn reduction off, whether for good, and whether it is on too late."""
    text = f"{before}{ACCUMULATE}{textwrap.indent(textwrap.dedent(body), '    ')}"
    found = script(root, text)
    return sorted(
        {
            (event(found, fact.off)[1], fact.sticky, fact.late is not None)
            for fact in unreduced_steps(found)
        }
    )


OFF, ON = "model.set_requires_gradient_sync(False)", "model.set_requires_gradient_sync(True)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{OFF}\nmodel(x).backward()\noptimizer.step()", [(OFF, False, False)]),
        (f"{OFF}\ntorch.autograd.backward(model(x))\noptimizer.step()", [(OFF, False, False)]),
        (f"{OFF}\nmodel(x).backward()\n{ON}\noptimizer.step()", [(OFF, False, True)]),
        (f"{OFF}\nmodel(x).backward()\n{ON}\nmore(x)\noptimizer.step()", []),
        (f"if i % 4:\n    {OFF}\nmodel(x).backward()\noptimizer.step()", [(OFF, True, False)]),
        (f"if i % 4:\n    {OFF}\nelse:\n    {ON}\nmodel(x).backward()\noptimizer.step()", []),
        (f"model(x).backward()\n{OFF}\noptimizer.step()", []),
        (f"{OFF}\noptimizer.step()", []),
        (f"{OFF}\nmodel(x).backward()\nother.step()", []),
        (f"{OFF}\nmodel(x).backward()\noptimizer.step(lambda: model(x).backward())", []),
        (f"{OFF}\nprepare(model)\nmodel(x).backward()\noptimizer.step()", []),
        (f"{OFF}\nmodel(x).backward()\noptimizer.step()\n{ON}", [(OFF, False, False)]),
        (f"model(x).backward()\noptimizer.step()\n{OFF}", []),
        (f"if dist.get_rank():\n    {OFF}\nmodel(x).backward()\noptimizer.step()", []),
        ("model.set_requires_gradient_sync(i % 4 == 0)\nmodel(x).backward()\noptimizer.step()", []),
        (
            "model.set_requires_gradient_sync(args.sync)\nmodel(x).backward()\noptimizer.step()",
            [],
        ),
        (
            "model.set_requires_gradient_sync(False, recurse=False)\n"
            "model(x).backward()\noptimizer.step()",
            [],
        ),
        (f"{OFF}\nother.{ON[6:]}\nmodel(x).backward()\noptimizer.step()", []),
    ],
)
def test_steps_without_reduced_gradients(
    tmp_path: Path, body: str, expected: list[tuple[str, bool, bool]]
) -> None:
    assert unreduced(tmp_path, body) == expected


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ('dist.init_device_mesh("cuda", (2, 4))', True),
        ('dist.init_device_mesh("cuda", (8,))', False),
        ("make_mesh()", False),
    ],
)
def test_all_reduce_means_something_to_two_dimensions(
    tmp_path: Path, mesh: str, expected: bool
) -> None:
    text = f"""\
        mesh = {mesh}
        model = fully_shard(Net(), mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters())
        for x in data:
            model.set_requires_all_reduce(False)
            model(x).backward()
            optimizer.step()
    """
    assert bool(list(unreduced_steps(script(tmp_path, text)))) == expected


# Roots that an evaluation left unsharded


def opened(root: Path, between: str, sharding: str = "fully_shard(model)") -> list[tuple[str, str]]:
    """The optimizer and what left the root unsharded, of a program with ``between`` before it."""
    text = f"model = Net()\n{sharding}\n{textwrap.dedent(between)}\n{BUILD}\n"
    found = script(root, text)
    return sorted(
        {
            (event(found, f.build)[1], event(found, f.root.opened)[1])
            for f in unsharded_captures(found)
        }
    )


NO_GRAD = "with torch.no_grad():\n    "


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (f"{NO_GRAD}model(x)", "model(x)"),
        (f"{NO_GRAD}y = model(x)", "model(x)"),
        ("with torch.inference_mode():\n    y = model(x)", "model(x)"),
        ("model(x)", "model(x)"),
        ("model.unshard()", "model.unshard()"),
        ("y = model(x)", None),
        ("with torch.enable_grad():\n    y = model(x)", None),
        (f"{NO_GRAD}model(x)\nmodel.reshard()", None),
        (f"{NO_GRAD}model(x)\nmodel(x).backward()", None),
        ("model(x).backward()\nwith torch.no_grad():\n    model(x)", "model(x)"),
        (f"{NO_GRAD}model(x)\nstate = model.state_dict()", None),
        (f"{NO_GRAD}model(x)\nprepare(model)", None),
        (f"{NO_GRAD}other(x)", None),
        ("if x.flag:\n    model(x)", None),
        ("if dist.get_rank() == 0:\n    model(x)", None),
        ("for y in x:\n    model(y)", "model(y)"),
        ("", None),
    ],
)
def test_optimizers_on_unsharded_roots(tmp_path: Path, between: str, expected: str | None) -> None:
    found = opened(tmp_path, between)
    assert found == ([("torch.optim.SGD(model.parameters())", expected)] if expected else [])


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        ("fully_shard(model, reshard_after_forward=None)", True),
        ("fully_shard(model, reshard_after_forward=False)", True),
        ("fully_shard(model, reshard_after_forward=True)", False),
        ("fully_shard(model, reshard_after_forward=args.reshard)", False),
        ("fully_shard(model, **args)", False),
        ("fully_shard(model, **{'mp_policy': args.policy})", True),
        ("model = FSDP(model)", False),
        ("model.set_reshard_after_forward(True)", False),
        ("", False),
    ],
)
def test_roots_that_stay_unsharded(tmp_path: Path, sharding: str, expected: bool) -> None:
    assert bool(opened(tmp_path, f"{NO_GRAD}model(x)", sharding)) == expected


# Clipping


@pytest.mark.parametrize(
    ("bound", "measures"),
    [('float("inf")', True), ("math.inf", True), ("1.0", False), ("limit", False)],
)
def test_an_infinite_bound_clips_nothing(tmp_path: Path, bound: str, measures: bool) -> None:
    found = script(
        tmp_path,
        f"""\
        import math
        from settings import limit
        model = FSDP(Net())
        torch.nn.utils.clip_grad_norm_(model.parameters(), {bound})
    """,
    )
    assert [fact.only_measures for fact in local_norms(found)] == [measures]


@pytest.mark.parametrize(
    ("says", "how"),
    [
        ("def clip(model: FSDP):", "annotation"),
        ("def clip(model):\n    assert isinstance(model, FSDP)", "test"),
        ("def clip(model):\n    FSDP.set_state_dict_type(model, LOCAL)", "call"),
    ],
)
def test_what_says_that_a_model_is_a_unit(tmp_path: Path, says: str, how: str) -> None:
    clips = "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    found = script(tmp_path, f"from settings import LOCAL\n{says}\n{clips}\n")
    (fact,) = local_norms(found)
    assert f"an FSDP1 module according to the {how} " in as_unit(found, fact.shard, fact.call.site)
