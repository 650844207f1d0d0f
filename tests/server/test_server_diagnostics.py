"""Diagnostics that the server sends: what is in them, when they come, and for which version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from editor import capabilities, editor, uri_of
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
GPT = "import torch\n\n\nclass GPT(torch.nn.Linear): ...\n"
IDLE = "x = 1  # fsdplint: ignore[direct-forward]\n"
COMMENT = IDLE[7:-1]

pytestmark = pytest.mark.asyncio


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "gpt.py").write_text(GPT)
    return tmp_path


def rules(found: Sequence[types.Diagnostic]) -> list[str]:
    return sorted(each.data["rule"] for each in found)


async def test_a_diagnostic_has_all_that_a_finding_has(project: Path) -> None:
    file = project / "train.py"
    file.write_text(SCRIPT)
    async with editor(project) as user:
        uri = user.open(file)
        (found,) = await user.diagnostics(uri)
    assert user.under(uri, found.range) == BUILD
    assert found.severity == types.DiagnosticSeverity.Error
    assert (found.source, found.code) == ("fsdplint", "FSD301")
    assert found.code_description == types.CodeDescription(rule_url("optimizer-before-sharding"))
    assert found.message.startswith("optimizer-before-sharding: `AdamW`")
    assert found.tags is None
    assert found.data == {"rule": "optimizer-before-sharding", "fix": "unsafe", "declined": None}
    related = found.related_information
    assert related
    assert [user.under(uri, each.location.range) for each in related] == [
        "GPT()",
        "model.parameters()",
        "fully_shard(model)",
    ]


async def test_evidence_is_shown_in_other_files(project: Path) -> None:
    helper = project / "helper.py"
    helper.write_text(
        "from torch.distributed.fsdp import fully_shard\n\n\ndef shard(model):\n"
        "    fully_shard(model)\n"
    )
    file = project / "train.py"
    file.write_text(
        SCRIPT.replace("torch.distributed.fsdp import fully_shard", "helper import shard").replace(
            "fully_shard(", "shard("
        )
    )
    async with editor(project) as user:
        (found,) = await user.diagnostics(user.open(file))
    related = [
        (each.location.uri, each.location.range.start) for each in found.related_information or ()
    ]
    assert (uri_of(helper), types.Position(4, 4)) in related


async def test_a_tag_fades_what_does_nothing(project: Path) -> None:
    async with editor(project) as user:
        uri = user.open(project / "new.py", IDLE)
        (found,) = await user.diagnostics(uri)
    assert user.under(uri, found.range) == COMMENT
    assert list(found.tags or ()) == [types.DiagnosticTag.Unnecessary]
    assert found.severity == types.DiagnosticSeverity.Warning


async def test_an_open_helper_is_read_instead_of_the_file(project: Path) -> None:
    helper = project / "helper.py"
    helper.write_text("def shard(model): ...\n")
    file = project / "train.py"
    file.write_text(
        SCRIPT.replace("torch.distributed.fsdp import fully_shard", "helper import shard").replace(
            "fully_shard(", "shard("
        )
    )
    async with editor(project) as user:
        uri = user.open(file)
        assert await user.diagnostics(uri) == []
        count = len(user.published)
        new = (
            "import torch.distributed.fsdp as f\n\n\ndef shard(model):\n    f.fully_shard(model)\n"
        )
        user.open(helper, new)
        while len([each for each in user.published[count:] if each.uri == uri]) == 0:
            await asyncio.sleep(0.01)
        assert rules(await user.diagnostics(uri)) == ["optimizer-before-sharding"]
        user.close(uri_of(helper))
        while user.client.diagnostics[uri]:
            await asyncio.sleep(0.01)
    assert helper.read_text() == "def shard(model): ...\n"


async def test_findings_follow_the_buffer(project: Path) -> None:
    file = project / "train.py"
    file.write_text(SCRIPT)
    async with editor(project) as user:
        uri = user.open(file)
        assert rules(await user.diagnostics(uri)) == ["optimizer-before-sharding"]
        user.replace(uri, "fully_shard(model)\n", "")
        assert await user.diagnostics(uri) == []
        user.replace(uri, "optimizer = ", "fully_shard(model)\noptimizer = ")
        assert await user.diagnostics(uri) == []
        user.replace(uri, "model(torch", "model.forward(torch")
        assert rules(await user.diagnostics(uri)) == ["direct-forward"]
    assert file.read_text() == SCRIPT


async def test_no_result_is_sent_for_another_version(project: Path) -> None:
    """Each state has as many findings as its version says."""
    async with editor(project) as user:
        uri = user.open(project / "new.py", IDLE)
        for count in range(2, 40):
            user.texts[uri] += IDLE
            user.change(uri, types.TextDocumentContentChangeWholeDocument(user.texts[uri]))
            await asyncio.sleep(0.3 if count % 10 == 0 else 0.01)
        assert len(await user.diagnostics(uri)) == 39
        sent = [(each.version, len(each.diagnostics)) for each in user.published]
    assert all(version == found for version, found in sent)
    assert sent == sorted(sent)
    # There is a pause after each tenth change alone; a busy machine makes others.
    assert len(sent) < 30


async def test_findings_stay_while_the_code_is_invalid(project: Path) -> None:
    file = project / "train.py"
    file.write_text(SCRIPT)
    async with editor(project) as user:
        uri = user.open(file)
        (found,) = await user.diagnostics(uri)
        user.replace(uri, "model = GPT()", "# 🔥\nmodel = GPT((")
        (moved,) = await user.diagnostics(uri)
        assert moved.range.start.line == found.range.start.line + 1
        assert user.under(uri, moved.range) == BUILD
        assert moved.data["fix"] is None
        user.replace(uri, "lr=3e-4)", "lr=")
        assert await user.diagnostics(uri) == []
        user.replace(uri, "lr=", "lr=3e-4)")
        user.replace(uri, "GPT((", "GPT()")
        (again,) = await user.diagnostics(uri)
        assert user.under(uri, again.range) == BUILD


async def test_a_file_that_is_saved_invalid_is_reported(project: Path) -> None:
    async with editor(project) as user:
        uri = user.open(project / "new.py", "x = (\n")
        assert rules(await user.diagnostics(uri)) == ["invalid-syntax"]
        user.replace(uri, "(", "((")
        assert await user.diagnostics(uri) == []
        user.replace(uri, "((", "1")
        assert await user.diagnostics(uri) == []
        user.replace(uri, "1", "[")
        assert await user.diagnostics(uri) == []
        count = len(user.published)
        user.save(uri)
        while len(user.published) == count:
            await asyncio.sleep(0.01)
        assert rules(await user.diagnostics(uri)) == ["invalid-syntax"]


async def test_a_closed_file_has_no_diagnostics(project: Path) -> None:
    async with editor(project) as user:
        uri = user.open(project / "new.py", IDLE)
        assert len(await user.diagnostics(uri)) == 1
        user.close(uri)
        while user.published[-1].diagnostics:
            await asyncio.sleep(0.01)
        assert user.published[-1] == types.PublishDiagnosticsParams(uri, ())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_positions_count_in_the_units_of_the_editor(
    project: Path, encoding: str, newline: str
) -> None:
    async with editor(project, client=capabilities(encoding)) as user:
        text = f's = "é🔥\f"{newline}é = "🔥€"; {IDLE}'.replace("\n", newline).replace("\r\r", "\r")
        uri = user.open(project / "new.py", text)
        (found,) = await user.diagnostics(uri)
        assert user.under(uri, found.range) == COMMENT
        user.replace(uri, "€", "🔥🔥")
        user.replace(uri, "x = 1", f"y = 1{newline}z = 2")
        (found,) = await user.diagnostics(uri)
        assert user.under(uri, found.range) == COMMENT
        user.replace(uri, COMMENT, "")
        assert await user.diagnostics(uri) == []


async def test_the_process_ends_with_the_session(project: Path) -> None:
    async with editor(project) as user:
        uri = user.open(project / "new.py", IDLE)
        await user.diagnostics(uri)
        server = user.client._server
    assert server is not None
    assert await server.wait() == 0


async def test_settings_that_cannot_be_used_are_one_message(project: Path) -> None:
    (project / "fsdplint.toml").write_text("select = 1\n")
    async with editor(project) as user:
        uri = user.open(project / "new.py", IDLE)
        assert await user.diagnostics(uri) == []
        user.replace(uri, "1", "2")
        assert await user.diagnostics(uri) == []
        messages = [each.message for each in user.client.messages]
    file = project / "fsdplint.toml"
    assert messages == [f"fsdplint: {file}: select: expected a list of strings"]


async def test_files_of_other_kinds_are_left_alone(project: Path) -> None:
    async with editor(project) as user:
        item = types.TextDocumentItem("untitled:Untitled-1", "python", 1, IDLE)
        user.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        uri = user.open(project / "new.py", IDLE)
        assert len(await user.diagnostics(uri)) == 1
    assert {each.uri for each in user.published} == {uri}


@pytest.mark.parametrize("name", ["build/new.py", "other/new.py"])
async def test_excluded_files_have_no_findings(project: Path, name: str) -> None:
    (project / "fsdplint.toml").write_text('exclude = ["other"]\n')
    async with editor(project) as user:
        uri = user.open(project / name, IDLE)
        assert await user.diagnostics(uri) == []
        uri = user.open(project / "new.py", IDLE)
        assert len(await user.diagnostics(uri)) == 1


async def test_a_file_of_which_the_editor_says_too_much_is_known(project: Path) -> None:
    """Lines that Python does not know, and places that are not in the text."""
    async with editor(project) as user:
        uri = user.open(project / "new.py", "a = 1\u2028\n")
        place = types.Range(types.Position(7, 9), types.Position(8, 0))
        user.texts[uri] = f"a = 1\u2028\n{IDLE}"
        user.change(uri, types.TextDocumentContentChangePartial(place, IDLE))
        user.replace(uri, "a = 1\u2028", "a = 1")
        (found,) = await user.diagnostics(uri)
        assert user.under(uri, found.range) == COMMENT
