"""What some editors do: they hold settings, cancel requests, and escape addresses in other ways."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from editor import capabilities, editor, uri_of
from lsprotocol import types

PROJECTS = Path(__file__).parents[1] / "fixtures" / "projects"
IDLE = "x = 1  # fsdplint: ignore[direct-forward]\n"

pytestmark = pytest.mark.asyncio


async def test_settings_are_requested_from_an_editor_that_has_some(tmp_path: Path) -> None:
    client = capabilities()
    assert client.workspace is not None
    client.workspace.configuration = True
    settings: dict[str, Any] = {"ignore": ["unused-suppression"]}
    async with editor(tmp_path, client=client) as user:
        user.client.set_configuration({"fsdplint": settings})
        user.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(None))
        await asyncio.sleep(0.1)
        uri = user.open(tmp_path / "new.py", IDLE)
        while user.client.diagnostics.get(uri) != ():
            await asyncio.sleep(0.01)
        user.client.set_configuration({"fsdplint": {}})
        user.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(None))
        while not user.client.diagnostics[uri]:
            await asyncio.sleep(0.01)


async def test_a_cancelled_request_leaves_the_server_working(tmp_path: Path) -> None:
    shutil.copytree(PROJECTS / "helper_module", tmp_path / "p")
    (tmp_path / "p" / "pyproject.toml").touch()
    async with editor(tmp_path / "p", client=capabilities(pull=True)) as user:
        uri = user.open(tmp_path / "p" / "train.py")
        document = types.TextDocumentIdentifier(uri)
        parameters = types.DocumentDiagnosticParams(document)
        requests = [
            user.client.protocol.send_request_async(
                types.TEXT_DOCUMENT_DIAGNOSTIC, parameters, msg_id=f"mine-{index}"
            )
            for index in range(3)
        ]
        tasks = [asyncio.ensure_future(each) for each in requests]
        await asyncio.sleep(0.25)
        for index in range(3):
            user.client.cancel_request(types.CancelParams(f"mine-{index}"))
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(ended) == 3
        report = await user.client.text_document_diagnostic_async(parameters)
        assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
        assert [each.code for each in report.items if each.code == "FSD301"] == ["FSD301"]


async def test_jupyterlab_sends_a_notebook_as_python(tmp_path: Path) -> None:
    folder = tmp_path / ".virtual_documents"
    async with editor(tmp_path) as user:
        uri = user.open(folder / "train.ipynb", IDLE)
        (found,) = await user.diagnostics(uri)
        assert user.under(uri, found.range) == IDLE[7:-1]


async def test_an_address_may_have_blanks_and_other_letters(tmp_path: Path) -> None:
    folder = tmp_path / "été 🔥"
    folder.mkdir()
    async with editor(folder) as user:
        uri = user.open(folder / "new.py", IDLE)
        assert "%20" in uri
        assert len(await user.diagnostics(uri)) == 1
        # Editors escape more, or less, than others do.
        other = uri_of(folder / "other.py").replace("new", "other").replace("%20", " ")
        user.texts[other], user.versions[other] = IDLE, 1
        item = types.TextDocumentItem(other, "python", 1, IDLE)
        user.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        assert len(await user.diagnostics(other)) == 1
