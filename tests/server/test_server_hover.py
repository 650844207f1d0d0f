"""Hovers: what the engine knows of the code under the cursor, and what a finding means."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from editor import Editor, capabilities, editor
from lsprotocol import types

from fsdplint.urls import rule_url

PROJECT = Path(__file__).parents[1] / "fixtures" / "projects" / "helper_module"
MESH = """\
import torch
from gpt import GPT
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cuda", (8,))
model = GPT()  # the model
fully_shard(model, mesh=mesh)
"""

pytestmark = pytest.mark.asyncio


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(PROJECT, tmp_path / "p")
    (tmp_path / "p" / "pyproject.toml").touch()
    return tmp_path / "p"


def markdown() -> types.ClientCapabilities:
    client = capabilities()
    assert client.text_document is not None
    content = [types.MarkupKind.Markdown]
    client.text_document.hover = types.HoverClientCapabilities(content_format=content)
    return client


async def hovered(user: Editor, uri: str, code: str) -> str | None:
    place = user.position(uri, user.texts[uri].index(code))
    identifier = types.TextDocumentIdentifier(uri)
    found = await user.client.text_document_hover_async(types.HoverParams(identifier, place))
    if found is None:
        return None
    assert isinstance(found.contents, types.MarkupContent)
    return found.contents.value


async def test_a_model_shows_its_units(project: Path) -> None:
    model = (
        "**Model** `Transformer`\n"
        "- `.layers[]`: FSDP2, line 12 of parallel.py: "
        "`mp_policy=MixedPrecisionPolicy(…), reshard_after_forward=True`\n"
        "- the model itself: FSDP2, line 13 of parallel.py: "
        "`mp_policy=MixedPrecisionPolicy(…), reshard_after_forward=True`"
    )
    async with editor(project, client=markdown()) as user:
        uri = user.open(project / "train.py")
        assert await hovered(user, uri, "Transformer(dim") == model
        # The rest of the statement, too.
        assert await hovered(user, uri, "model = Transformer(") == model
        assert await hovered(user, uri, "import torch") is None


async def test_a_sharding_call_shows_what_it_shards(project: Path) -> None:
    async with editor(project, client=markdown()) as user:
        uri = user.open(project / "parallel.py")
        assert await hovered(user, uri, "fully_shard(layer") == (
            "**FSDP2 unit** of `Transformer`: `.layers[]`\n"
            "- `mp_policy=MixedPrecisionPolicy(…)`\n"
            "- `reshard_after_forward=True`\n\n"
            "- In the loop `for layer in model.layers`"
        )
        assert await hovered(user, uri, "MixedPrecisionPolicy(param") == (
            "**mp_policy**: "
            "`MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)`"
        )


async def test_a_mesh_is_shown(tmp_path: Path) -> None:
    (tmp_path / "gpt.py").write_text("import torch\n\n\nclass GPT(torch.nn.Linear): ...\n")
    async with editor(tmp_path, client=markdown()) as user:
        uri = user.open(tmp_path / "train.py", MESH)
        mesh = '**mesh**: `init_device_mesh("cuda", (8,))`'
        assert await hovered(user, uri, "init_device_mesh(") == mesh


async def test_a_state_dict_shows_which_ranks_get_there(project: Path) -> None:
    async with editor(project, client=markdown()) as user:
        uri = user.open(project / "utils.py")
        text = await hovered(user, uri, "state_dict()")
    assert text is not None
    assert text.rpartition("---\n\n")[2] == (
        "**State dict**\n"
        "- Of `Transformer`, sharded by FSDP2: `.layers[]`; FSDP2: the model itself\n"
        "- Only some steps get here: `if step % 100 == 0`, line 20 of train.py\n"
        "- Only some ranks get here: `if dist.get_rank() == 0`, line 7 of utils.py\n"
        '- In the loop `for step, tokens in enumerate(torch.load("tokens.pt"))`'
    )


async def test_a_finding_shows_the_summary_of_its_page(project: Path) -> None:
    async with editor(project, client=markdown()) as user:
        uri = user.open(project / "train.py")
        text = await hovered(user, uri, "torch.optim.AdamW")
    assert text is not None
    page, rule, known = text.partition("\n\n---\n\n")
    assert page.startswith(
        "**optimizer-before-sharding** (FSD301): an optimizer is built before the model is "
        "sharded\n\nThe model never trains, and nothing reports it."
    )
    assert page.endswith(f"[Page of the rule]({rule_url('optimizer-before-sharding')})")
    assert rule
    assert (
        known == "**Optimizer** `AdamW`\n- The parameters of `Transformer`, taken before sharding"
    )


async def test_an_editor_without_markdown_gets_plain_text(project: Path) -> None:
    async with editor(project) as user:
        uri = user.open(project / "train.py")
        text = await hovered(user, uri, "optimizer.zero_grad()")
    assert text is not None
    assert text.startswith("Clears gradients\n- In the loop ")


async def test_invalid_code_has_no_hovers(project: Path) -> None:
    async with editor(project) as user:
        uri = user.open(project / "train.py")
        user.replace(uri, "import torch\n", "import (\n")
        assert await hovered(user, uri, "optimizer.zero_grad()") is None
        assert user.client.messages == []
