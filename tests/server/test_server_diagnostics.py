"""Diagnostics that the server sends: what is in them, when they come, and for which version."""

from __future__ import annotations

from pathlib import Path

import pytest
from editor import Editor, editor, uri_of
from lsprotocol import types

from fsdplint.urls import rule_url

SCRIPT = """\
import torch
from gpt import GPT
from torch.distributed.fsdp import fully_shard

model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
fully_shard(model)
model(torch.ones(1)).sum().backward()
optimizer.step()
"""
BUILD = "torch.optim.AdamW(model.parameters(), lr=3e-4)"
IDLE = "x = 1  # fsdplint: ignore[direct-forward]\n"

pytestmark = pytest.mark.asyncio


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "gpt.py").write_text("import torch\n\n\nclass GPT(torch.nn.Linear): ...\n")
    return tmp_path


def rules(found: object) -> list[str]:
    assert isinstance(found, (list, tuple))
    return [each.data["rule"] for each in found]


async def test_a_diagnostic_has_all_that_a_finding_has(project: Path) -> None:
    file = project / "train.py"
    file.write_text(SCRIPT)
    async with editor(project) as user:
        uri = user.open(file)
        (found, *_) = await user.diagnostics(uri)
    assert user.under(uri, found.range) == BUILD
    assert found.severity == types.DiagnosticSeverity.Error
    assert (found.source, found.code) == ("fsdplint", "FSD301")
    assert found.code_description == types.CodeDescription(rule_url("optimizer-before-sharding"))
    assert found.message.startswith("optimizer-before-sharding: `AdamW`")
    assert found.data == {"rule": "optimizer-before-sharding", "fix": "unsafe", "declined": None}
    related = found.related_information
    assert related
    assert [user.under(uri, each.location.range) for each in related] == ["fully_shard(model)"]
