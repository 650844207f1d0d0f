"""Methods that nothing calls, of objects that hold sharded modules."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.settings.config import Settings

HEAD = """
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)

"""
TRAINER = """
class Trainer:
    def __init__(self, model):
        self.model = model

    def evaluate(self, batch):
        return self.model.forward(batch)

"""
FULL = "options=StateDictOptions(full_state_dict=True)"


def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> list[str]:
    """The findings, each with the line it is on."""
    monkeypatch.chdir(tmp_path)
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(text))
    outcome = check(["."], Settings())
    lines = []
    for finding in outcome.findings:
        source = outcome.sources[finding.span.path]
        start = source.text.rfind("\n", 0, finding.span.start) + 1
        line = source.text[start:].split("\n", 1)[0].strip()
        lines.append(f"{finding.rule}: {line}")
    return lines


def test_methods_use_what_the_constructor_sharded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = f"""
    class Trainer:
        def __init__(self, model):
            shard(model)
            self.model = model
            self.optimizer = torch.optim.AdamW(model.parameters())

        def step(self, batch):
            self.model.forward(batch).sum().backward()
            self.optimizer.step()

        def gathered(self):
            if dist.get_rank() == 0:
                return get_model_state_dict(self.model, {FULL})

        def save(self):
            torch.save(self.model.state_dict(), "model.pt")
    """
    assert found(tmp_path, monkeypatch, trainer=trainer) == [
        "direct-forward: self.model.forward(batch).sum().backward()",
        "collective-under-rank-guard: return get_model_state_dict(self.model, " + FULL + ")",
        'sharded-state-saved: torch.save(self.model.state_dict(), "model.pt")',
    ]


def test_a_method_comes_after_the_one_that_sets_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = """
    class Worker:
        def __init__(self, model):
            self.model, self.sharded, self.optimizer = model, None, None

        def setup(self):
            shard(self.model)
            self.sharded = self.model

        def build_optimizer(self):
            self.optimizer = torch.optim.AdamW(self.sharded.parameters())

        def save(self):
            torch.save(self.optimizer.state_dict(), "optimizer.pt")

        def evaluate(self, batch):
            return self.model.forward(batch)
    """
    # `evaluate` needs nothing that `setup` sets: it may run before.
    assert found(tmp_path, monkeypatch, worker=worker) == [
        'optimizer-state-saved-raw: torch.save(self.optimizer.state_dict(), "optimizer.pt")'
    ]


def test_a_method_is_entered_before_those_that_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = """
    class Worker:
        def __init__(self, build):
            self.build = build

        def _build(self, role):
            self.module = self.build(role)
            shard(self.module)

        def setup(self):
            self._build("actor")
            self.path = "model.pt"

        def save(self):
            torch.save(self.module.state_dict(), self.path)
    """
    assert found(tmp_path, monkeypatch, worker=worker) == [
        "sharded-state-saved: torch.save(self.module.state_dict(), self.path)"
    ]


def test_of_methods_without_an_order_none_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = """
    class Worker:
        def __init__(self, model):
            self.model = model

        def build_optimizer(self):
            self.optimizer = torch.optim.AdamW(self.model.parameters())

        def apply_fsdp(self):
            shard(self.model)

        def apply_ddp(self):
            self.model = DistributedDataParallel(self.model)

        def step(self, batch):
            self.model.forward(batch).sum().backward()
            self.optimizer.step()
    """
    assert found(tmp_path, monkeypatch, worker=worker) == []


def test_a_framework_sets_up_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = """
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def setup(self, stage):
            self.model.forward(torch.ones(8))

        def configure_model(self):
            shard(self.model)

        def training_step(self, batch):
            return self.model.forward(batch).sum()
    """
    assert found(tmp_path, monkeypatch, module=module) == [
        "direct-forward: return self.model.forward(batch).sum()"
    ]
    other = module.replace("lightning.LightningModule", "torch.nn.Module")
    assert found(tmp_path, monkeypatch, module=other) == []


def test_methods_of_bases_in_other_files_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = """
    class Base:
        def __init__(self, model):
            self.model = self.wrap(model)

        def wrap(self, model):
            raise NotImplementedError

        def evaluate(self, batch):
            return self.model.forward(batch)
    """
    trainer = """
    from base import Base


    class Trainer(Base):
        def wrap(self, model):
            shard(model)
            return model
    """
    assert found(tmp_path, monkeypatch, base=base, trainer=trainer) == [
        "direct-forward: return self.model.forward(batch)"
    ]


def test_a_function_may_return_the_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = """
    def build(model):
        shard(model)
        return Trainer(model)
    """
    assert found(tmp_path, monkeypatch, trainer=TRAINER + textwrap.dedent(build)) == [
        "direct-forward: return self.model.forward(batch)"
    ]


def test_a_method_starts_outside_of_the_branch_that_constructs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = """
    class Trainer:
        def __init__(self, model):
            self.model, self.hooked = model, False

        def evaluate(self, batch):
            self.hooked = True
            if self.hooked:
                return self.model(batch)
            return self.model.forward(batch)

    def build(model, evaluates):
        shard(model)
        trainer = None
        if evaluates:
            trainer = Trainer(model)
        return trainer
    """
    assert found(tmp_path, monkeypatch, trainer=trainer) == []


def test_what_tests_construct_is_no_object_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = """
    from trainer import Trainer

    def test_trainer(model):
        shard(model)
        Trainer(model)
    """
    assert found(tmp_path, monkeypatch, trainer=TRAINER, test_trainer=test) == []


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("self.accumulate", ["no-sync-under-fsdp2: with self.model.no_sync():"]),
        ("self.kind == 'fsdp'", []),
        ("self.kind != 'fsdp2'", []),
    ],
)
def test_methods_run_on_what_each_arm_of_the_constructor_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: str, expected: list[str]
) -> None:
    trainer = f"""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    class Trainer:
        def __init__(self, model, kind, accumulate):
            self.kind, self.accumulate = kind, accumulate
            if kind == "fsdp":
                self.model = FSDP(model, auto_wrap_policy=policy)
            elif kind == "fsdp2":
                shard(model)
                self.model = model

        def step(self, batch):
            if {test}:
                with self.model.no_sync():
                    self.model(batch).sum().backward()
            else:
                self.model(batch).sum().backward()
    """
    assert found(tmp_path, monkeypatch, trainer=trainer) == expected


def test_an_optimizer_of_the_constructor_that_only_a_method_shows_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = """
    from elsewhere import build


    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = build(model.parameters())
            shard(model)

        def step(self, batch):
            self.model(batch).sum().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
    """
    line = "optimizer-before-sharding: self.optimizer = build(model.parameters())"
    assert found(tmp_path, monkeypatch, trainer=trainer) == [line]
    other = trainer.replace("self.optimizer.zero_grad()", "self.optimizer.flush()")
    assert found(tmp_path, monkeypatch, trainer=other) == []


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("scores = self.model(batch)\nself.model._handle.reshard(True)", 1),
        ("for each in batch:\n    self.model(each)\nself.model._handle.reshard(True)", 1),
        # for the one that FSDP1 shards, by a test or as its caller may know
        ("self.model(batch)\nif self.kind == 'fsdp':\n    self.model._handle.reshard(True)", 0),
        ("self.model(batch)\nif self.frees:\n    self.model._handle.reshard(True)", 0),
        ("self.model._handle.reshard(True)", 0),
        ("self.model(batch)\nself.free()", 0),
    ],
)
def test_a_method_that_runs_the_model_is_for_either_fsdp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, expected: int
) -> None:
    worker = """
    from blocks import Scorer
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    class Worker:
        def __init__(self, config):
            self.kind, self.frees = config.kind, config.frees

        def _build(self):
            model = Scorer.from_pretrained("scorer")
            if self.kind == "fsdp":
                return FSDP(model, auto_wrap_policy=policy)
            shard(model)
            return model

        @register(mode="one to all")
        def init_model(self):
            self.model = self._build()

        @register(mode="data parallel")
        def score(self, batch):
            METHOD
    """.replace("METHOD", textwrap.indent(method, " " * 12).strip())
    if "free()" in method:
        worker += """
        def free(self):
            if self.kind == "fsdp":
                self.model._handle.reshard(True)
    """
    line = "fsdp1-api-on-fsdp2-model: self.model._handle.reshard(True)"
    assert found(tmp_path, monkeypatch, worker=worker) == [line] * expected


def test_a_set_up_shards_where_its_callers_here_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another package may."""
    trainer = """
    class Trainer:
        def __init__(self, model, mesh):
            self.model, self.mesh = model, mesh

        def build(self):
            if self.mesh is not None:
                self.unit = fully_shard(self.model)

        def evaluate(self, batch):
            return self.unit.forward(batch)


    def debug(model, batch):
        trainer = Trainer(model, None)
        trainer.build()
        print(model(batch))
    """
    assert found(tmp_path, monkeypatch, trainer=trainer) == [
        "direct-forward: return self.unit.forward(batch)"
    ]
    inert = trainer.replace("mesh is not None", "mesh is not None and False")
    assert found(tmp_path, monkeypatch, trainer=inert) == []
