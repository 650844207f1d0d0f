from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from fsdplint.check import inspect
from fsdplint.engine.inspection.summary import Inspection
from fsdplint.report.inspection import inspection_as_text
from fsdplint.report.style import plain

PROJECTS = Path(__file__).parents[1] / "fixtures" / "projects"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def inspected(source: str, name: str = "train.py") -> Inspection:
    Path(name).write_text(dedent(source))
    return inspect(name)[0]


def text(path: str | Path) -> str:
    return inspection_as_text(*inspect(path), plain)


def events(inspection: Inspection) -> list[tuple[str, str]]:
    (entry,) = inspection.entries
    return [(step.kind, step.text) for step in entry.steps if step.is_event]


FLAT = """\
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(8, 2) for _ in range(4)])
        self.tail = nn.ModuleList([nn.TransformerEncoderLayer(8, 2) for _ in range(4)])


mesh = init_device_mesh("cuda", (8,))
policy = MixedPrecisionPolicy(
    param_dtype=torch.bfloat16,  # half the traffic
)
kwargs = {"mesh": mesh, "mp_policy": policy}
model = Net()
for block in model.blocks:
    fully_shard(block, **kwargs)
fully_shard(model, reshard_after_forward=False, **kwargs)
optimizer = torch.optim.AdamW(model.parameters())
for step, batch in enumerate(data):
    loss = model(batch).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 100 == 0:
        torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id="x")
"""


def test_a_flat_script_in_full(here: Path) -> None:
    (here / "train.py").write_text(FLAT)
    expected = """\
train.py: top level
  models
    train.py:19  Net: Net()
    train.py:21    .blocks[]  FSDP2  mesh=…, mp_policy=MixedPrecisionPolicy(…)
    train.py:22    itself     FSDP2  reshard_after_forward=False, mesh=…, mp_policy=MixedPrecisionP…
                   .tail      repeated blocks, not sharded
  meshes and policies
    train.py:14  mesh: init_device_mesh("cuda", (8,))
    train.py:15  mp_policy: MixedPrecisionPolicy(param_dtype=torch.bfloat16)
  optimizers
    train.py:23  AdamW with Net's parameters, taken after sharding
  execution order
    train.py:14  mesh: init_device_mesh("cuda", (8,))
    train.py:20  for block in model.blocks
    train.py:21    shard: fully_shard(block, **kwargs)
    train.py:22  shard: fully_shard(model, reshard_after_forward=False, **kwargs)
    train.py:23  optimizer: torch.optim.AdamW(model.parameters())
    train.py:24  for step, batch in enumerate(data)
    train.py:25    forward: model(batch)
    train.py:26    backward: loss.backward()
    train.py:27    clip: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    train.py:28    step: optimizer.step()
    train.py:29    zero_grad: optimizer.zero_grad()
    train.py:30    [only some steps] if step % 100 == 0
    train.py:31      state: model.state_dict()
    train.py:31      save: torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id="x")
"""
    assert text("train.py") == expected


def test_a_program_of_several_files_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECTS / "helper_module")
    expected = """\
train.py: top level
  models
    train.py:12     Transformer: Transformer(dim=512, depth=12)
    parallel.py:12    .layers[]  FSDP2  mp_policy=MixedPrecisionPolicy(…), reshard_after_forward=Tr…
    parallel.py:13    itself     FSDP2  mp_policy=MixedPrecisionPolicy(…), reshard_after_forward=Tr…
  meshes and policies
    parallel.py:8   mp_policy: MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.…
  optimizers
    train.py:13     AdamW with Transformer's parameters, taken before sharding
  execution order
    train.py:26     main()
    train.py:13       optimizer: torch.optim.AdamW(model.parameters(), lr=3e-4)
    train.py:14       apply_fsdp(model)
    parallel.py:11      for layer in model.layers
    parallel.py:12        shard: fully_shard(layer, **kwargs)
    parallel.py:13      shard: fully_shard(model, **kwargs)
    train.py:15       for step, tokens in enumerate(torch.load("tokens.pt"))
    train.py:16         [bypasses the hooks] forward: model.forward(tokens)
    train.py:17         backward: loss.backward()
    train.py:18         step: optimizer.step()
    train.py:19         zero_grad: optimizer.zero_grad()
    train.py:20         [only some steps] if step % 100 == 0
    train.py:21           save_checkpoint(model, f"step{step}.pt")
    utils.py:7              [only some ranks] if dist.get_rank() == 0
    utils.py:8                state: model.state_dict()
    utils.py:8                [only this rank's shard of the state] write: torch.save({"model": mod…
"""
    assert text("train.py") == expected


def test_a_helper_is_shown_from_where_it_is_reached(here: Path) -> None:
    helper = "from torch.distributed.fsdp import fully_shard\n\ndef wrap(m):\n    fully_shard(m)\n"
    (here / "helper.py").write_text(helper)
    (here / "train.py").write_text("from helper import wrap\nwrap(make())\n")
    (here / "utils.py").write_text("x = 1\n")
    (entry,) = inspect("train.py")[0].entries
    assert inspect("helper.py")[0].entries == (entry,)
    assert text("utils.py") == "no sharding call is reachable from utils.py\n"


def test_a_helper_is_shown_with_the_models_of_its_callers(here: Path) -> None:
    (here / "a_helper.py").write_text(
        "from torch.distributed.fsdp import fully_shard\n\n"
        "def wrap(m):\n    fully_shard(m)\n\n"
        "def unused(m):\n    fully_shard(m, mesh=None)\n"
    )
    (here / "trainer.py").write_text(
        "from a_helper import wrap\nfrom models import Net\n\n"
        "class Trainer:\n    def __init__(self):\n        self.model = Net(3)\n"
        "        wrap(self.model)\n"
    )
    entries = inspect("a_helper.py")[0].entries
    shown = {entry.name: [model.built for model in entry.models] for entry in entries}
    assert shown == {"unused": ["the parameter `m`"], "Trainer.__init__": ["Net(3)"]}


def test_methods_of_an_object_are_shown_beside_those_of_what_it_holds(here: Path) -> None:
    (here / "actor.py").write_text(
        "class Actor:\n    def __init__(self, model):\n        self.model = model\n\n"
        "    def act(self, batch):\n        return self.model(batch)\n"
    )
    (here / "worker.py").write_text(
        "import torch\nfrom torch.distributed.fsdp import fully_shard\nfrom actor import Actor\n\n"
        "class Worker:\n    def setup(self, model):\n        self.model = model\n"
        "        fully_shard(model)\n        self.actor = Actor(model)\n\n"
        "    def save(self):\n        torch.save(self.model.state_dict(), 'x')\n"
    )
    entries = inspect("worker.py")[0].entries
    shown = {entry.name: [step.kind for step in entry.steps] for entry in entries}
    assert shown == {
        "Worker.setup": ["shard"],
        "Worker.save": ["state", "write"],
        "Actor.act": ["forward"],
    }


def test_a_helper_in_which_nothing_starts(here: Path) -> None:
    (here / "train.py").write_text(
        "from torch.distributed.fsdp import fully_shard\n"
        "from utils import save\n"
        "fully_shard(model)\n"
        "save(model)\n"
    )
    (here / "utils.py").write_text(
        "import torch\n\ndef save(model):\n    torch.save(model.state_dict(), 'x')\n"
    )
    expected = """\
no program starts in utils.py; it is reached from:

train.py: top level
  models
                model: created by code that was not analyzed
    train.py:3    itself  FSDP2
  no optimizer found
  execution order
    train.py:3  shard: fully_shard(model)
    train.py:4  save(model)
    utils.py:4    state: model.state_dict()
    utils.py:4    [only this rank's shard of the state] write: torch.save(model.state_dict(), 'x')
"""
    assert text("utils.py") == expected


@pytest.mark.parametrize(
    ("made", "built"),
    [
        ("model = build(3)", "build(3)"),
        ("model = Auto.from_pretrained('a').to(0)", "Auto.from_pretrained('a')"),
        ("model = adapted(torch.nn.Linear(2, 2))", "adapted(torch.nn.Linear(2, 2))"),
        ("model, tokenizer = build(3)", "build(3)"),
        ("model = build(3).inner", "build(3)"),
        ("model = AutoModel.from_pretrained('a').model", "AutoModel.from_pretrained('a')"),
        ("model = made(3)", "build(width)"),
    ],
)
def test_a_model_of_unknown_code_is_shown_by_its_call(made: str, built: str) -> None:
    found = inspected(
        "import torch\nfrom elsewhere import Auto, adapted, build\n"
        "from transformers import AutoModel\n"
        "from torch.distributed.fsdp import fully_shard\n\n"
        f"def made(width):\n    return build(width)\n\n{made}\nfully_shard(model)\n"
    )
    assert [each.built for each in found.entries[0].models] == [built]


def test_optimizers_say_when_they_took_their_parameters() -> None:
    found = inspected(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

        a, b, c = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        torch.optim.SGD(a.parameters())
        torch.optim.SGD([p for n, p in b.named_parameters() if "bias" in n])
        torch.optim.SGD(c.parameters())
        fully_shard(a)
        FSDP(b, use_orig_params=True)
        torch.optim.SGD(a.parameters())
        """
    )
    takes = [optimizer.takes for optimizer in found.entries[0].optimizers]
    assert takes == [
        (("Linear", "before sharding"),),
        (("some of Linear", "before wrapping, which keeps them"),),
        (("Linear", "not sharded"),),
        (("Linear", "after sharding"),),
    ]


def test_a_path_is_shown_by_what_differs() -> None:
    found = inspected(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

        def main(args):
            model = torch.nn.Linear(1, 1)
            if args.fsdp2:
                fully_shard(model)
            else:
                model = FSDP(model)
            optimizer = torch.optim.SGD(model.parameters())
            optimizer.step()

        main(parse())
        """
    )
    assert events(found) == [
        ("shard", "fully_shard(model)"),
        ("optimizer", "torch.optim.SGD(model.parameters())"),
        ("step", "optimizer.step()"),
    ]
    (variant,) = found.entries[0].variants
    assert variant.conditions == ("`args.fsdp2` is false",)
    assert [step.text for step in variant.added] == ["FSDP(model)"]
    assert [step.text for step in variant.removed] == ["fully_shard(model)"]


def test_a_path_is_shown_by_the_case_that_it_takes() -> None:
    found = inspected(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

        def main(args):
            model = torch.nn.Linear(1, 1)
            match args.kind:
                case "two" | "fsdp2":
                    fully_shard(model)
                case "one" if args.world > 1:
                    model = FSDP(model)
                case other:
                    raise ValueError(other)

        main(parse())
        """
    )
    (variant,) = found.entries[0].variants
    assert variant.conditions == ('`case "one" if args.world > 1` is taken',)
    assert [step.text for step in variant.added] == ["FSDP(model)"]


def test_only_what_the_outline_has_words_for_is_a_step() -> None:
    found = inspected(
        """
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(torch.nn.Linear(1, 1))
        model.scale = 2
        loss = model(torch.ones(1)).mean()
        dist.all_reduce(loss)
        loss = loss / 2
        loss /= dist.get_world_size()
        loss.backward()
        """
    )
    assert events(found) == [
        ("shard", "fully_shard(torch.nn.Linear(1, 1))"),
        ("forward", "model(torch.ones(1))"),
        ("backward", "loss.backward()"),
    ]


def test_calls_of_a_short_loop_are_one_line_with_all_targets() -> None:
    found = inspected(
        """
        from torch.distributed.fsdp import fully_shard
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(1, 1), nn.Linear(1, 1)

        model = Net()
        for layer in (model.a, model.b):
            fully_shard(layer)
        """
    )
    assert events(found) == [("shard", "fully_shard(layer)")]
    (sharding,) = found.entries[0].models[0].shardings
    assert sharding.targets == (".a", ".b")


def test_what_is_not_resolved(here: Path) -> None:
    (here / "broken.py").write_text("def f(:\n")
    (here / "train.py").write_text(
        "import elsewhere.wrap\n"
        "import numpy, json\n"
        "from . import lost\n"
        "from broken import f\n"
        "import torch\n"
        "from torch.distributed.fsdp import fully_shard\n"
        "model = torch.nn.Linear(1, 1)\n"
        "fully_shard(model)\n"
        "o = torch.optim.SGD(model.parameters())\n"
        "elsewhere.wrap.both(model, o)\n"
        "elsewhere.neither(json)\n"
    )
    unresolved = text("train.py").partition("unresolved\n")[2]
    assert re.sub("(?<=not parse: ).*", "…", unresolved) == (  # the parser's own words
        "    broken.py:1  does not parse: …\n"
        "    train.py:1   import of `elsewhere` cannot be resolved\n"
        "    train.py:3   import of `.lost` cannot be resolved\n"
        "    train.py:10  unknown code gets the model and the optimizer: "
        "elsewhere.wrap.both(model, o)\n"
    )


ACCELERATE = """
    import torch
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.load_state("in")
    accelerator.save_state("out")
    accelerator.save_model(model, "out")
    """


def test_what_a_framework_shards_saves_and_loads_is_shown() -> None:
    found = inspected(ACCELERATE)
    assert events(found) == [
        ("optimizer", "torch.optim.AdamW(model.parameters())"),
        ("shard", "accelerator.prepare(model, optimizer)"),
        ("repoint", "accelerator.prepare(model, optimizer)"),
        ("load", 'accelerator.load_state("in")'),
        ("save", 'accelerator.save_state("out")'),
        ("save", 'accelerator.save_model(model, "out")'),
    ]
    (entry,) = found.entries
    (sharding,) = entry.models[0].shardings
    assert (sharding.generation, sharding.targets) == ("settings", ("",))
    assert [optimizer.takes for optimizer in entry.optimizers] == [
        (("Linear", "before sharding by settings"),)
    ]


def test_a_framework_without_settings_to_shard_is_not_said_to_shard() -> None:
    source = ACCELERATE.replace("fsdp_plugin=FullyShardedDataParallelPlugin()", "")
    found = inspected(dedent(source) + "torch.distributed.fsdp.fully_shard(model)\n")
    assert [kind for kind, _ in events(found)] == [
        "optimizer",
        "repoint",
        "load",
        "save",
        "save",
        "shard",
    ]
    (entry,) = found.entries
    assert [sharding.generation for sharding in entry.models[0].shardings] == ["FSDP2"]


def test_a_trainer_of_a_framework_holds_the_model_that_it_saves() -> None:
    found = inspected(
        """
        from transformers import AutoModel, Trainer, TrainingArguments

        class Mine(Trainer):
            pass

        trainer = Mine(
            model=AutoModel.from_pretrained("a"),
            args=TrainingArguments("out", fsdp="full_shard auto_wrap"),
        )
        trainer.train()
        trainer.save_state()
        trainer.save_model("out")
        """
    )
    assert events(found) == [
        ("shard", "trainer.train()"),
        ("save", 'trainer.save_model("out")'),
    ]
    assert [model.built for model in found.entries[0].models] == ['AutoModel.from_pretrained("a")']


def test_a_trainer_of_the_program_is_no_framework() -> None:
    found = inspected(
        """
        from torch.distributed.fsdp import fully_shard
        from elsewhere import Trainer, make

        model = fully_shard(make())
        trainer = Trainer(model)
        trainer.save_model("out")
        """
    )
    assert events(found) == [("shard", "fully_shard(make())")]


def test_a_helper_with_an_entry_of_its_own_is_shown_with_its_callers(here: Path) -> None:
    (here / "helper.py").write_text(
        "import torch\n"
        "from torch.distributed.fsdp import fully_shard\n\n"
        "def wrap(m):\n    return fully_shard(m)\n\n"
        "def main():\n    fully_shard(torch.nn.Linear(1, 1))\n"
    )
    (here / "train.py").write_text("from helper import wrap\nwrap(make())\n")
    shown = [(Path(e.path).name, e.name) for e in inspect("helper.py")[0].entries]
    assert shown == [("helper.py", "main"), ("train.py", "<module>")]
    drawn = text("helper.py")
    headings = [line for line in drawn.splitlines() if line and not line.startswith(" ")]
    assert headings == [
        "helper.py: main()",
        "helper.py is also reached from:",
        "train.py: top level",
    ]


def test_a_script_that_others_import_is_shown_by_itself(here: Path) -> None:
    script = (
        "import torch\n"
        "from torch.distributed.fsdp import fully_shard\n\n"
        "def wrap(m):\n    return fully_shard(m)\n\n"
        'if __name__ == "__main__":\n    wrap(torch.nn.Linear(1, 1))\n'
    )
    (here / "train.py").write_text(script)
    (here / "other.py").write_text("from train import wrap\nwrap(make())\n")
    assert {Path(e.path).name for e in inspect("train.py")[0].entries} == {"train.py"}


SCHEDULED = """
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.optim.lr_scheduler import ChainedScheduler, LambdaLR
    from framework import build, settings

    model = torch.nn.Linear(2, 2)
    fully_shard(model)
    optimizer = {made}
    schedule = {schedule}
    optimizer.step()
    optimizer.zero_grad()
    """


@pytest.mark.parametrize(
    ("made", "takes"),
    [
        ("build(model)", ()),
        ("settings.optimizer.build(model, lr=0.1)", ()),
        ("build(**settings)", ()),
        ("build(model.parameters())", (("Linear", "after sharding"),)),
    ],
)
def test_what_a_schedule_of_torch_takes_is_an_optimizer(
    made: str, takes: tuple[tuple[str, str], ...]
) -> None:
    schedule = "LambdaLR(optimizer, lr_lambda=lambda step: 1.0)"
    found = inspected(SCHEDULED.format(made=made, schedule=schedule))
    (optimizer,) = found.entries[0].optimizers
    assert (optimizer.text, optimizer.takes) == (made, takes)
    by_keyword = schedule.replace("(optimizer", "(optimizer=optimizer")
    assert inspected(SCHEDULED.format(made=made, schedule=by_keyword)).entries[0].optimizers


@pytest.mark.parametrize(
    "schedule", ["None", "ChainedScheduler(optimizer)", "settings.LambdaLR(optimizer)"]
)
def test_what_is_only_stepped_and_zeroed_may_be_an_engine(schedule: str) -> None:
    found = inspected(SCHEDULED.format(made="build(model)", schedule=schedule))
    assert not found.entries[0].optimizers


def test_the_first_path_takes_a_choice_before_it_fails_for_want_of_one() -> None:
    (entry,) = inspected("""\
        import sys

        import torch
        from model import Net
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def build(name, parameters):
            if name == "adamw":
                return torch.optim.AdamW(parameters)
            if name == "sgd":
                return torch.optim.SGD(parameters)
            raise ValueError(name)


        model = FSDP(Net())
        optimizer = build(sys.argv[1], model.parameters())
        """).entries

    assert [optimizer.name for optimizer in entry.optimizers] == ["AdamW"]
