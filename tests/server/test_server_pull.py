"""Diagnostics that editors request, and the changes after which they differ."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from editor import Editor, capabilities, editor, uri_of
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from waiting import LONG

IDLE = "x = 1  # fsdplint: ignore[direct-forward]\n"
OFF = 'ignore = ["unused-suppression"]\n'

pytestmark = pytest.mark.asyncio


def project(folder: Path, settings: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "fsdplint.toml").write_text(settings)
    (folder / "idle.py").write_text(IDLE)
    return folder


async def pulled(
    user: Editor, uri: str, before: str | None = None
) -> types.DocumentDiagnosticReport:
    document = types.TextDocumentIdentifier(uri)
    parameters = types.DocumentDiagnosticParams(document, previous_result_id=before)
    return await user.client.text_document_diagnostic_async(parameters)


async def codes(user: Editor, uri: str) -> list[Any]:
    report = await pulled(user, uri)
    assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
    return [each.code for each in report.items]


async def everywhere(
    user: Editor, *before: types.PreviousResultId
) -> Sequence[types.WorkspaceDocumentDiagnosticReport]:
    parameters = types.WorkspaceDiagnosticParams(list(before))
    return (await user.client.workspace_diagnostic_async(parameters)).items


def changed(user: Editor, *files: Path) -> None:
    events = [types.FileEvent(uri_of(file), types.FileChangeType.Changed) for file in files]
    user.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(events))


async def comes(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def last(user: Editor) -> list[Any]:
    """The codes of the last diagnostics; how often they are sent is up to the server."""
    return [each.code for each in user.published[-1].diagnostics]


async def test_an_editor_that_requests_diagnostics_is_sent_none(tmp_path: Path) -> None:
    project(tmp_path)
    async with editor(tmp_path, client=capabilities(pull=True)) as user:
        uri = user.open(tmp_path / "idle.py")
        assert await codes(user, uri) == ["FSD002"]
        user.replace(uri, "  # fsdplint: ignore[direct-forward]", "")
        assert await codes(user, uri) == []
        assert user.published == []


async def test_what_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    project(tmp_path)
    async with editor(tmp_path, client=capabilities(pull=True)) as user:
        uri = user.open(tmp_path / "idle.py")
        first = await pulled(user, uri)
        assert first.result_id
        again = await pulled(user, uri, first.result_id)
        assert again == types.RelatedUnchangedDocumentDiagnosticReport(first.result_id)
        user.replace(uri, "x = 1", "x = 10")
        later = await pulled(user, uri, first.result_id)
        assert isinstance(later, types.RelatedFullDocumentDiagnosticReport)
        assert later.result_id != first.result_id


async def test_a_request_that_a_change_overtakes_is_to_be_repeated(tmp_path: Path) -> None:
    project(tmp_path)
    async with editor(tmp_path, client=capabilities(pull=True)) as user:
        uri = user.open(tmp_path / "idle.py")
        request = asyncio.ensure_future(pulled(user, uri))
        await asyncio.sleep(0)
        user.replace(uri, "x = 1", "x = 10")
        with pytest.raises(JsonRpcException) as refused:
            await request
        assert refused.value.code == -32802
        assert await codes(user, uri) == ["FSD002"]


async def test_all_files_of_all_folders_are_reported(tmp_path: Path) -> None:
    one, two = project(tmp_path / "one"), project(tmp_path / "two")
    (two / "clean.py").write_text("x = 1\n")
    off = project(tmp_path / "off", OFF)
    async with editor(one, two, off, client=capabilities(pull=True)) as user:
        found = await everywhere(user)
        assert [(each.uri, each.version) for each in found] == [
            (uri_of(one / "idle.py"), None),
            (uri_of(two / "idle.py"), None),
        ]
        before = [types.PreviousResultId(each.uri, each.result_id or "") for each in found]
        kinds = [each.kind for each in await everywhere(user, *before)]
        assert kinds == ["unchanged", "unchanged"]
        (one / "idle.py").write_text("x = 1\n")
        changed(user, one / "idle.py")
        first, second = await everywhere(user, *before)
        assert isinstance(first, types.WorkspaceFullDocumentDiagnosticReport)
        assert (first.uri, list(first.items)) == (uri_of(one / "idle.py"), [])
        assert second.kind == "unchanged"


async def test_folders_have_settings_of_their_own(tmp_path: Path) -> None:
    one, off = project(tmp_path / "one"), project(tmp_path / "off", OFF)
    async with editor(one, off) as user:
        first, second = user.open(one / "idle.py"), user.open(off / "idle.py")
        assert [each.code for each in await user.diagnostics(first)] == ["FSD002"]
        assert await user.diagnostics(second) == []


@pytest.mark.parametrize("pull", [True, False])
async def test_changed_settings_files_count_at_once(tmp_path: Path, pull: bool) -> None:
    project(tmp_path)
    async with editor(tmp_path, client=capabilities(pull=pull)) as user:
        uri = user.open(tmp_path / "idle.py")

        async def shown() -> list[Any]:
            if pull:
                return await codes(user, uri)
            return [each.code for each in await user.diagnostics(uri)]

        assert await shown() == ["FSD002"]
        (tmp_path / "fsdplint.toml").write_text(OFF)
        changed(user, tmp_path / "fsdplint.toml")
        if pull:
            await comes(lambda: user.client.diagnostic_refresh_count == 1)
        else:
            await comes(lambda: last(user) == [])
        assert await shown() == []


async def test_files_that_change_on_disk_are_read_again(tmp_path: Path) -> None:
    files = Path(__file__).parents[1] / "fixtures" / "projects" / "helper_module"
    shutil.copytree(files, tmp_path / "p")
    (tmp_path / "p" / "pyproject.toml").touch()
    helper = tmp_path / "p" / "parallel.py"
    text = helper.read_text()
    helper.write_text("def apply_fsdp(model, reshard_after_forward=True): ...\n")
    async with editor(tmp_path / "p") as user:
        uri = user.open(tmp_path / "p" / "train.py")
        assert await user.diagnostics(uri) == []
        helper.write_text(text)
        changed(user, helper)
        await comes(lambda: last(user))


async def test_the_editor_watches_what_findings_depend_on(tmp_path: Path) -> None:
    registered: list[types.Registration] = []
    project(tmp_path)
    async with editor(tmp_path, client=capabilities(watch=True)) as user:
        user.client.protocol.fm.features[types.CLIENT_REGISTER_CAPABILITY] = lambda parameters: (
            registered.extend(parameters.registrations)
        )
        await comes(lambda: registered)
    # The editor does not say that it reports changed settings.
    assert [each.method for each in registered] == ["workspace/didChangeWatchedFiles"]


async def test_settings_of_the_editor_are_options_of_a_check(tmp_path: Path) -> None:
    project(tmp_path)
    async with editor(tmp_path, options={"ignore": ["unused-suppression"]}) as user:
        uri = user.open(tmp_path / "idle.py")
        assert await user.diagnostics(uri) == []
        settings: dict[str, Any] = {"fsdplint": {"ignore": []}}
        parameters = types.DidChangeConfigurationParams(settings)
        user.client.workspace_did_change_configuration(parameters)
        await comes(lambda: last(user) == ["FSD002"])
        settings = {"fsdplint": {"ignore": ["no-such-rule"]}}
        parameters = types.DidChangeConfigurationParams(settings)
        user.client.workspace_did_change_configuration(parameters)
        await comes(lambda: last(user) == [])
        settings = {"fsdplint": {"run": "sometimes"}}
        parameters = types.DidChangeConfigurationParams(settings)
        user.client.workspace_did_change_configuration(parameters)
        await comes(lambda: len(user.client.messages) == 2)
        first, second = [each.message for each in user.client.messages]
    assert first.startswith("fsdplint: unknown rule 'no-such-rule'")
    assert second == 'fsdplint: fsdplint.run: expected "onType" or "onSave"'


async def test_an_editor_may_have_buffers_checked_on_saving(tmp_path: Path) -> None:
    project(tmp_path)
    async with editor(tmp_path, options={"run": "onSave"}) as user:
        uri = user.open(tmp_path / "idle.py")
        (found,) = await user.diagnostics(uri)
        user.replace(uri, "x = 1", f"y = 1\n{IDLE}x = 1")
        (moved,) = await user.diagnostics(uri)
        assert moved.range.start.line == found.range.start.line + 2
        user.save(uri)
        await comes(lambda: len(last(user)) == 2)


async def test_a_closed_folder_is_not_reported(tmp_path: Path) -> None:
    one, two = project(tmp_path / "one"), project(tmp_path / "two")
    async with editor(one, two, client=capabilities(pull=True)) as user:
        assert len(await everywhere(user)) == 2
        folder = types.WorkspaceFolder(uri_of(two), "two")
        event = types.WorkspaceFoldersChangeEvent([], [folder])
        parameters = types.DidChangeWorkspaceFoldersParams(event)
        user.client.workspace_did_change_workspace_folders(parameters)
        assert [each.uri for each in await everywhere(user)] == [uri_of(one / "idle.py")]
