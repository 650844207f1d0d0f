from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.engine.facts.repeated_blocks import Blocks
from fsdplint.finding import Fix
from fsdplint.fixes.code import Declined
from fsdplint.fixes.shard_blocks import shard_blocks
from fsdplint.knowledge.calls import Generation


def sharded(
    marked: str, *blocks: str | Blocks, generation: Generation = Generation.FSDP2
) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    root = at["root"]
    assert isinstance(root, ir.Call)
    found = [Blocks(each) if isinstance(each, str) else each for each in blocks or ("layers",)]
    return at, shard_blocks(at.code, root, found, generation)


def check(marked: str, expected: str, *blocks: str | Blocks) -> None:
    at, fix = sharded(marked, *blocks)
    assert at.fixed(fix) == expected


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "<root:fully_shard(model):root>\n",
            "for block in model.layers:\n    fully_shard(block)\nfully_shard(model)\n",
        ),
        (
            "<root:fully_shard(module=model, mesh=m):root>",
            "for block in model.layers:\n    fully_shard(block, mesh=m)\n"
            "fully_shard(module=model, mesh=m)",
        ),
        (
            "if x:\r\n\t# The root.\r\n"
            "\tmodel = <root:f.fully_shard(model, *a, **k):root>  # c\r\n",
            "if x:\r\n\tfor block in model.layers:\r\n\t\tf.fully_shard(block, *a, **k)\r\n"
            "\t# The root.\r\n\tmodel = f.fully_shard(model, *a, **k)  # c\r\n",
        ),
        (
            "def f(model):\n  return <root:fully_shard(\n    model,\n    mesh=mesh['dp'],\n"
            "    mp_policy=Policy(p=torch.bfloat16),  # bf16\n  ):root>\n",
            "def f(model):\n  for block in model.layers:\n"
            "    fully_shard(block, mesh=mesh['dp'], mp_policy=Policy(p=torch.bfloat16))\n"
            "  return fully_shard(\n    model,\n    mesh=mesh['dp'],\n"
            "    mp_policy=Policy(p=torch.bfloat16),  # bf16\n  )\n",
        ),
        (
            "block = 1\n<root:fully_shard(model):root>\n",
            "block = 1\nfor block_ in model.layers:\n    fully_shard(block_)\nfully_shard(model)\n",
        ),
        (
            "def f(model, block, block_): <x:pass:x>\ndef g(model):\n"
            "    <root:fully_shard(model):root>\n",
            "def f(model, block, block_): pass\ndef g(model):\n"
            "    for block in model.layers:\n        fully_shard(block)\n    fully_shard(model)\n",
        ),
        (
            "mesh = 1\n<root:fully_shard(model, mesh=(init_mesh('cuda', (8,)))):root>\n",
            "mesh = 1\nmesh_ = (init_mesh('cuda', (8,)))\n"
            "for block in model.layers:\n    fully_shard(block, mesh=mesh_)\n"
            "fully_shard(model, mesh=mesh_)\n",
        ),
        (
            "<root:fully_shard(model, mesh=init()\n  if x else y, f=lambda: g()):root>\n",
            "mesh = (init()\n  if x else y)\nfor block in model.layers:\n"
            "    fully_shard(block, mesh=mesh, f=lambda: g())\n"
            "fully_shard(model, mesh=mesh, f=lambda: g())\n",
        ),
    ],
)
def test_a_loop_goes_before_the_root(marked: str, expected: str) -> None:
    check(marked, expected)


def test_each_container_gets_a_loop() -> None:
    check(
        "<root:fully_shard(model):root>\n",
        "for block in model.encoder.layers:\n    fully_shard(block)\n"
        "for block in model.decoder.layers:\n    fully_shard(block)\n"
        "fully_shard(model)\n",
        "encoder.layers",
        "decoder.layers",
    )


IMPORT = "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "m = <root:FSDP(model):root>\n",
            "m = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({type(model.layers[0])}))\n",
        ),
        (
            "m = <root:FSDP(\n    model,\n    device_id=d,\n):root>\n",
            "m = FSDP(\n    model,\n    device_id=d,\n"
            "    auto_wrap_policy=ModuleWrapPolicy({type(model.layers[0])}),\n)\n",
        ),
        (
            "m = <root:FSDP(model, auto_wrap_policy=None, device_id=d):root>; x\n",
            "m = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({type(model.layers[0])}), "
            "device_id=d); x\n",
        ),
        (
            "f = lambda model: <root:FSDP(model, ):root>\n",
            "f = lambda model: FSDP(model, auto_wrap_policy=ModuleWrapPolicy("
            "{type(model.layers[0])}), )\n",
        ),
    ],
)
def test_fsdp1_gets_a_wrap_policy(marked: str, expected: str) -> None:
    at, fix = sharded(FSDP + marked, generation=Generation.FSDP1)
    assert at.fixed(fix) == FSDP + IMPORT + expected


def test_a_model_made_in_the_call_is_made_once() -> None:
    check(
        "x = 1\nmodel = <root:fully_shard(mesh=m, module=GPT().to('cuda')):root>\n",
        "x = 1\nmodel_ = GPT().to('cuda')\nfor block in model_.layers:\n"
        "    fully_shard(block, mesh=m)\nmodel = fully_shard(mesh=m, module=model_)\n",
    )
    marked = "if x:\n    m = <root:FSDP(GPT(\n        8\n    )):root>\n"
    at, fix = sharded(FSDP + marked, "blocks.values()", generation=Generation.FSDP1)
    policy = "ModuleWrapPolicy({type(next(iter(model.blocks.values())))})"
    assert at.fixed(fix) == (
        f"{FSDP}{IMPORT}if x:\n    model = (GPT(\n        8\n    ))\n"
        f"    m = FSDP(model, auto_wrap_policy={policy})\n"
    )


def test_the_policy_names_each_container_by_the_binding_the_file_has() -> None:
    head = "import torch.distributed.fsdp.wrap as w\n"
    at, fix = sharded(head + "<root:FSDP(model):root>\n", "a", "b", generation=Generation.FSDP1)
    policy = "w.ModuleWrapPolicy({type(model.a[0]), type(model.b[0])})"
    assert at.fixed(fix) == f"{head}FSDP(model, auto_wrap_policy={policy})\n"


LISTED = """\
lists = [part for part in m.modules() if isinstance(part, nn.ModuleList)]
names = m._no_split_modules or ()
blocks = [part for each in lists for part in each if type(part).__name__ in names]
"""


def test_a_model_of_a_checkpoint_names_its_blocks() -> None:
    head = "from torch import nn\n"
    check(
        f"{head}<root:fully_shard(m, mesh=x):root>\n",
        f"{head}{LISTED}for block in blocks:\n    fully_shard(block, mesh=x)\n"
        "fully_shard(m, mesh=x)\n",
        Blocks("", named=True),
    )
    second = """\
lists_ = [part for part in m.text.modules() if isinstance(part, nn.ModuleList)]
names_ = m.text._no_split_modules or ()
blocks_ = [part for each in lists_ for part in each if type(part).__name__ in names_]
"""
    at, fix = sharded(
        f"{head}{FSDP}<root:FSDP(m):root>\n",
        Blocks("", named=True),
        "tower.h",
        Blocks("text", named=True),
        generation=Generation.FSDP1,
    )
    policy = "ModuleWrapPolicy({*map(type, blocks), type(m.tower.h[0]), *map(type, blocks_)})"
    call = f"FSDP(m, auto_wrap_policy={policy})\n"
    assert at.fixed(fix) == f"{head}{FSDP}{IMPORT}{LISTED}{second}{call}"
    assert isinstance(fix, Fix)
    assert fix.title == "shard each block of `m` and `m.tower.h` and `m.text`, then the root"


def test_a_wrap_policy_that_needs_a_list_has_to_be_in_a_statement() -> None:
    marked = f"{FSDP}f = lambda m: <root:FSDP(m):root>\n"
    fix = sharded(marked, Blocks("", named=True), generation=Generation.FSDP1)[1]
    assert reason(fix) == (
        "`FSDP(m)` is in an expression that may skip or repeat it; move the call to a separate "
        "statement"
    )


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "x; <root:fully_shard(model):root>\n",
            "`fully_shard(model)` shares its line with other code; put it on its own line",
        ),
        (
            "if x: <root:fully_shard(model):root>\n",
            "`fully_shard(model)` shares its line with other code; put it on its own line",
        ),
        (
            "f = lambda: <root:fully_shard(model):root>\n",
            "`fully_shard(model)` is in an expression that may skip or repeat it; move the call to "
            "a separate statement",
        ),
        (
            "y = x and <root:fully_shard(model):root>\n",
            "`fully_shard(model)` is in an expression that may skip or repeat it; move the call to "
            "a separate statement",
        ),
        (
            "if <root:fully_shard(model):root>:\n    pass\n",
            "`fully_shard(model)` is in the header of a compound statement; move the call to a "
            "separate statement",
        ),
        (
            "<root:fully_shard(model, mesh=(m := 1)):root>\n",
            "`mesh=(m := 1)` cannot be repeated for each block; assign it to a variable first",
        ),
        (
            "<root:fully_shard(*args):root>\n",
            "`fully_shard(*args)` hides which argument is the module; shard the blocks by hand",
        ),
    ],
)
def test_declined(marked: str, why: str) -> None:
    assert reason(sharded(marked)[1]) == why


def test_a_policy_that_may_be_there_already_is_declined() -> None:
    fix = sharded("<root:FSDP(model, **k):root>\n", generation=Generation.FSDP1)[1]
    assert reason(fix) == (
        "`FSDP(model, **k)` may get `auto_wrap_policy` from its `**`; add it there by hand"
    )
