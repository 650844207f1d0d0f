"""Files of other kinds than Python that are open in an editor."""

from __future__ import annotations

from pathlib import Path

import pytest
from editor import capabilities, editor
from lsprotocol import types

CONFIG = """\
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_offload_param: true  # kept
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
"""
SCRIPT = """\
import accelerate
import torch

accelerator = accelerate.Accelerator()
model = torch.nn.Linear(2, 2)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters()))
if accelerator.is_main_process:
    accelerator.save_state("out")
"""

pytestmark = pytest.mark.asyncio


async def test_an_open_config_file_is_checked_as_it_is_edited(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    file = tmp_path / "fsdp.yaml"
    file.write_text(CONFIG)
    async with editor(tmp_path) as user:
        uri = user.open(file, language="yaml")
        (found,) = await user.diagnostics(uri)
        assert (found.code, user.under(uri, found.range)) == ("FSD901", "fsdp_offload_param")
        user.replace(uri, "fsdp_offload_param:", "fsdp_offload_params:")
        assert await user.diagnostics(uri) == []
        user.replace(uri, "offload_params", "offload_parms")
        (found,) = await user.diagnostics(uri)
        # While it is no YAML, the findings of its last valid text move with it.
        user.replace(uri, "distributed_type: FSDP", "distributed_type: [FSDP")
        (moved,) = await user.diagnostics(uri)
        assert moved.range == found.range
        assert (moved.code, user.under(uri, moved.range)) == ("FSD901", "fsdp_offload_parms")


async def test_actions_in_a_config_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    file = tmp_path / "fsdp.yaml"
    file.write_text(CONFIG)
    async with editor(tmp_path, client=capabilities(resolve=True)) as user:
        uri = user.open(file, language="yaml")
        (found,) = await user.diagnostics(uri)
        context = types.CodeActionContext([found])
        params = types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, context)
        offered = await user.client.text_document_code_action_async(params)
        fixes = [each for each in offered or () if isinstance(each, types.CodeAction)]
        edited = {}
        for each in fixes:
            if each.kind == types.CodeActionKind.QuickFix:
                done = await user.client.code_action_resolve_async(each)
                assert done.edit is not None
                edited[each.title] = user.edited(done.edit)[uri]
    comment = "  # fsdplint: ignore[unknown-fsdp-setting] -- add a reason"
    assert edited == {
        "Rename it to `fsdp_offload_params` (unsafe fix)": CONFIG.replace("_param:", "_params:"),
        "Suppress unknown-fsdp-setting with a comment": CONFIG.replace("kept", f"kept{comment}"),
    }


async def test_code_follows_a_config_file_that_is_not_saved(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    file, script = tmp_path / "fsdp.yaml", tmp_path / "train.py"
    file.write_text(CONFIG.replace("_param:", "_params:"))
    script.write_text(SCRIPT)
    async with editor(tmp_path) as user:
        code = user.open(script)
        assert [each.code for each in await user.diagnostics(code)] == ["FSD601"]
        config = user.open(file, language="yaml")
        user.replace(config, "distributed_type: FSDP", "distributed_type: MULTI_GPU")
        user.replace(code, '"out"', '"to"')
        assert await user.diagnostics(code) == []
