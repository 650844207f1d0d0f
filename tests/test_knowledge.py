"""What the tables claim of PyTorch, asked of the installed one.

It is imported by the tests that ask: collecting them takes seconds less.
"""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from fsdplint.knowledge import calls, kinds, modules, names
from fsdplint.knowledge.calls import Signature
from fsdplint.knowledge.star_imports import STAR_NAMES
from fsdplint.knowledge.torch_api import first_releases
from fsdplint.knowledge.torch_range import EARLIEST

INSTALLED = tuple(int(part) for part in version("torch").split("+")[0].split("."))


def resolve(name: str) -> object:
    """The object of a dotted path: an attribute where there is one, else a module."""
    parent, _, last = name.rpartition(".")
    if not parent:
        return importlib.import_module(name)
    try:
        owner: object = importlib.import_module(parent)
    except ModuleNotFoundError:
        owner = resolve(parent)
    return getattr(owner, last) if hasattr(owner, last) else importlib.import_module(name)


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings(tuple(value.items()))
    elif isinstance(value, (tuple, frozenset)):
        for item in value:
            yield from strings(item)


TABLES = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (calls, modules, names)
    for name, value in vars(module).items()
    if name.strip("_").isupper()
}
TORCH_NAMES = sorted({n for n in strings(tuple(TABLES.values())) if n.startswith("torch.")})
# A decorator factory, listed for its effect.
_ALIASED = {alias for alias, _ in names._SAME_OBJECT}
_ALIASES = [row for row in names._SAME_OBJECT if row[0] != "torch._dynamo.optimize"]


def test_the_tables_are_found() -> None:
    assert {"calls.SHARDING_CALLS", "modules.REPEATED_BLOCKS", "names._SAME_OBJECT"} <= set(TABLES)
    assert {names.FULLY_SHARD, "torch.nn.ModuleList", "torch.save"} <= set(TORCH_NAMES)


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_a_name_of_torch_exists(name: str) -> None:
    if first_releases().get(name, EARLIEST) <= INSTALLED:
        assert resolve(name) is not None
    else:
        with pytest.raises(ModuleNotFoundError):
            resolve(name)


@pytest.mark.parametrize("name", sorted({*TORCH_NAMES} - _ALIASED))
def test_a_name_in_a_table_is_canonical(name: str) -> None:
    assert names.canonical(name) == name, "the engine never asks for another form"


@pytest.mark.parametrize(("alias", "target"), _ALIASES, ids=[alias for alias, _ in _ALIASES])
def test_an_alias_is_the_object_it_stands_for(alias: str, target: str) -> None:
    found, meant = resolve(alias), resolve(target)
    assert names.canonical(alias) == target
    if isinstance(found, types.ModuleType):
        shared = public(found) & set(dir(meant))
        assert shared, "no name is known under both"
        assert [n for n in sorted(shared) if getattr(found, n) is not getattr(meant, n)] == []
    else:
        # `torch._dynamo` wraps some functions where it is imported, under one of their names.
        assert inspect.unwrap(found) is inspect.unwrap(meant)


_FSDP1 = "FullyShardedDataParallel"


def public(module: types.ModuleType) -> set[str]:
    """The functions and classes that a module offers, submodules left out."""
    return {
        name
        for name, value in vars(module).items()
        if name[0] != "_" and (inspect.isclass(value) or inspect.isfunction(value))
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch.distributed._composable.fsdp.fully_shard", names.FULLY_SHARD),
        ("torch.distributed._composable.fsdp.fully_shard.fully_shard", names.FULLY_SHARD),
        ("torch.distributed.fsdp._fully_shard._fully_shard.fully_shard", names.FULLY_SHARD),
        (
            "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
            names.FSDP1,
        ),
        ("torch.nn.modules.module.Module", names.MODULE),
        ("torch.optim.adamw.AdamW", "torch.optim.AdamW"),
        ("torch.distributed._composable.fully_shard", "torch.distributed._composable.fully_shard"),
        ("torch.nn.modulesque.Module", "torch.nn.modulesque.Module"),
    ],
)
def test_canonical_names(name: str, expected: str) -> None:
    assert names.canonical(name) == expected


# Signatures


def parameters(name: str) -> list[inspect.Parameter]:
    found = resolve(name)
    assert callable(found)
    return list(inspect.signature(found).parameters.values())


def takes(name: str, at: Signature) -> None:
    parameter = parameters(name)[at.position]
    assert parameter.name == at.keyword
    assert parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


@pytest.mark.parametrize(
    "name", [n for n in calls.PLAIN_WRITES if n.startswith(("torch.", "pickle."))]
)
def test_a_write_takes_its_value_and_target_there(name: str) -> None:
    for signature in calls.PLAIN_WRITES[name]:
        takes(name, signature)


@pytest.mark.parametrize("name", list(calls.STATE_HELPERS))
def test_a_state_helper_takes_model_optimizers_and_options(name: str) -> None:
    takes(name, Signature(0, "model"))
    position = calls.STATE_HELPERS[name]
    keywords = {parameter.name: parameter.kind for parameter in parameters(name)}
    assert keywords["options"] is inspect.Parameter.KEYWORD_ONLY
    assert ("optimizers" in keywords) is (position is not None)
    if position is not None:
        takes(name, Signature(position, "optimizers"))


def test_state_is_sharded_unless_options_say_otherwise() -> None:
    options = "torch.distributed.checkpoint.state_dict.StateDictOptions"
    defaults = {p.name: p.default for p in parameters(options)}
    assert defaults["full_state_dict"] is False


@pytest.mark.parametrize(
    "name", sorted(n for n in calls.RETURNS_ARGUMENT if n.startswith("torch."))
)
def test_a_call_that_gives_its_argument_back_takes_it_there(name: str) -> None:
    parameter = parameters(name)[calls.RETURNS_ARGUMENT[name]]
    assert parameter.name in ("module", "model", "obj")


def test_sharding_calls_take_the_module_first() -> None:
    for name in calls.SHARDING_CALLS:
        takes(name, Signature(0, "module"))
    takes(names.FSDP1, Signature(2, "sharding_strategy"))
    takes(names.FSDP1, Signature(4, "auto_wrap_policy"))
    takes(names.REGISTER_FORWARD, Signature(1, "method_name"))
    defaults = {p.name: p.default for p in parameters(names.FSDP1)}
    assert (defaults["use_orig_params"], defaults["auto_wrap_policy"]) == (False, None)


def test_checkpoint_calls_its_first_argument() -> None:
    assert parameters("torch.utils.checkpoint.checkpoint")[0].name == "function"
    import torch.utils.checkpoint

    seen: list[object] = []
    torch.utils.checkpoint.checkpoint(seen.append, 1, use_reentrant=False)
    assert seen == [1]


# Modules


@pytest.mark.parametrize("name", sorted(calls.ABSENT_FROM_FSDP2))
def test_what_fsdp2_lacks(name: str) -> None:
    from torch import nn
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.fsdp._common_utils import FSDP_WRAPPED_MODULE, _FSDPState

    assert not hasattr(FSDPModule, name)
    assert not hasattr(nn.Module, name)
    of_objects = {FSDP_WRAPPED_MODULE, *vars(_FSDPState())}
    assert hasattr(FullyShardedDataParallel, name) or name in of_objects


def test_every_method_of_fsdp2_is_known() -> None:
    own = {name for name in vars(resolve("torch.distributed.fsdp.FSDPModule")) if name[0] != "_"}
    assert own - calls.INERT_METHODS - UNLISTED == set()
    assert own >= UNLISTED


# Too rare to be listed: calling one counts as unknown code.
UNLISTED = {
    "reset_iter_state",
    "set_all_reduce_hook",
    "set_allocate_memory_from_process_group_for_comm",
    "set_custom_all_gather",
    "set_custom_reduce_scatter",
    "set_force_sum_reduction_for_comms",
    "set_post_optim_event",
    "set_reduce_scatter_max_input_buffers",
    "set_reduce_scatter_unused_params",
    "set_separate_reduce_scatter_group",
    "set_symm_mem_for_comm",
    "set_unshard_in_backward",
}

_ELSEWHERE = frozenset({"cuda", "xpu", "npu"})


@pytest.mark.parametrize("name", sorted(calls.RETURNS_SELF - _ELSEWHERE))
def test_a_method_returns_its_module(name: str) -> None:
    import torch

    module = torch.nn.Linear(2, 2)
    arguments: dict[str, tuple[object, ...]] = {"to": ("cpu",), "type": (torch.float32,)}
    keywords = {"device": "cpu"} if name == "to_empty" else {}
    assert getattr(module, name)(*arguments.get(name, ()), **keywords) is module


@pytest.mark.parametrize("name", sorted(calls.SUBMODULE_VIEWS))
def test_a_view_gives_submodules(name: str) -> None:
    from torch import nn

    module = nn.Sequential(nn.Linear(2, 2))
    found = [item[1] if isinstance(item, tuple) else item for item in getattr(module, name)()]
    assert found == ([module, module[0]] if "modules" in name else [module[0]])


def test_views_of_parameters_are_generators() -> None:
    from torch import nn

    for name in calls.PARAMETER_VIEWS:
        assert isinstance(getattr(nn.Linear(2, 2), name)(), types.GeneratorType)


def test_methods_of_a_dtensor_exist() -> None:
    sharded = resolve("torch.distributed.tensor.DTensor")
    assert [n for n in calls.KEEPS_SHARDED if not hasattr(sharded, n)] == []


def test_containers_are_modules_that_hold_modules() -> None:
    from torch import nn

    for name in modules.CONTAINERS:
        made = resolve(name)
        assert isinstance(made, type)
        assert issubclass(made, nn.Module)
        assert hasattr(made, "__len__")


@pytest.mark.parametrize("name", sorted(modules.REPEATED_BLOCKS))
def test_repeated_blocks_stand_where_the_table_says(name: str) -> None:
    from torch import nn

    made = {
        "torch.nn.Transformer": lambda: nn.Transformer(4, 1, 2, 2, 4),
        "torch.nn.TransformerEncoder": lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 1, 4), 2, enable_nested_tensor=False
        ),
        "torch.nn.TransformerDecoder": lambda: nn.TransformerDecoder(
            nn.TransformerDecoderLayer(4, 1, 4), 2
        ),
    }[name]()
    lists = {path for path, part in made.named_modules() if isinstance(part, nn.ModuleList)}
    assert lists == set(modules.REPEATED_BLOCKS[name])
    for path in lists:
        (block,) = {type(part) for part in made.get_submodule(path).children()}
        assert f"torch.nn.{block.__name__}" in modules.BLOCK_LAYERS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("transformers.LlamaForCausalLM", ("model.layers",)),
        ("transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel", ("transformer.h",)),
        ("transformers.AutoModelForCausalLM", ()),
        ("transformers.AutoTokenizer", None),
        ("mine.LlamaForCausalLM", None),
        ("LlamaForCausalLM", None),
    ],
)
def test_hugging_face_blocks(name: str, expected: tuple[str, ...] | None) -> None:
    assert modules.hugging_face_blocks(name) == expected


# Optimizers and libraries


def test_a_class_of_torch_optim_is_an_optimizer() -> None:
    classes = {n for n, value in vars(resolve("torch.optim")).items() if inspect.isclass(value)}
    assert {n for n in classes if not names.is_optimizer(f"torch.optim.{n}")} == {"Optimizer"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch.optim.?", True),
        ("bitsandbytes.optim.AdamW8bit", True),
        ("transformers.AdamW", True),
        ("torch.optim.lr_scheduler", False),
        ("torch.optim.lr_scheduler.StepLR", False),
        ("torch.optim.swa_utils.AveragedModel", False),
        ("transformers.Trainer", False),
        ("mine.AdamW", False),
    ],
)
def test_optimizers_by_name(name: str, expected: bool) -> None:
    assert names.is_optimizer(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch.cuda.synchronize", True),
        ("os.path.join", True),
        ("tqdm.tqdm", True),
        ("torchtitan.parallelize", False),
        ("mine.shard", False),
    ],
)
def test_harmless_packages(name: str, expected: bool) -> None:
    assert calls.is_harmless(name) is expected


@pytest.mark.parametrize("module", STAR_NAMES)
def test_a_star_import_brings_what_the_table_says(module: str) -> None:
    brought: dict[str, object] = {}
    exec(f"from {module} import *", brought)
    assert sorted(STAR_NAMES[module] - brought.keys()) == []
    assert names.canonical(module) == module


# By canonical name, the classes of torch that programs are asked for by `isinstance`.
_KINDS = (names.MODULE, names.OPTIMIZER, kinds.SCHEDULE, kinds.DATA_LOADER)


@pytest.mark.parametrize(
    "package", ["torch.nn", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data"]
)
def test_a_class_of_torch_has_the_kind_that_is_told(package: str) -> None:
    bases = {kind: resolve(kind) for kind in _KINDS}
    for name, found in vars(importlib.import_module(package)).items():
        own = names.canonical(f"{found.__module__}.{name}") if inspect.isclass(found) else ""
        told = kinds.kind_of(own)
        if told is not None:
            real = [kind for kind, base in bases.items() if issubclass(found, base)]
            assert real == [told], own


def test_a_plain_layer_derives_from_no_other_one() -> None:
    from torch import nn

    classes = {n: c for n, c in vars(nn).items() if inspect.isclass(c) and issubclass(c, nn.Module)}
    plain = {name for name in classes if kinds.is_plain_layer(f"torch.nn.{name}")}
    assert {"Linear", "Embedding", "LayerNorm", "ModuleList", "Sequential"} <= plain
    for name in plain:
        above = {other for other in classes.values() if issubclass(classes[name], other)}
        assert above == {nn.Module, classes[name]}, name


def test_some_classes_have_a_kind() -> None:
    some = {"torch.nn.Linear", "torch.optim.AdamW", "torch.optim.lr_scheduler.StepLR"}
    assert {kinds.kind_of(name) for name in some} == set(_KINDS[:3])
    some = {"transformers.AutoModelForCausalLM", "diffusers.UNet2DConditionModel", "peft.PeftModel"}
    assert {kinds.kind_of(name) for name in some} == {names.MODULE}
    some = {"transformers.DataCollatorForSeq2Seq", "transformers.TFBertModel", "diffusers.EMAModel"}
    assert {kinds.kind_of(name) for name in some} == {None}
    assert {kinds.kind_of(f"torch.nn.{name}") for name in ("Parameter", "functional")} == {None}
