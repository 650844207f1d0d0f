"""Code lenses, inlay hints, and the commands that run programs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from editor import Editor, capabilities, editor, uri_of
from lsprotocol import types

PROJECT = Path(__file__).parents[1] / "fixtures" / "projects" / "helper_module"
SCRIPT = 'import torch\n\nif __name__ == "__main__":\n    print("🔥")\n'
ENDLESS = "import time\nopen({!r}, 'a').close()\nwhile True:\n    time.sleep(0.1)\n"

pytestmark = pytest.mark.asyncio


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(PROJECT, tmp_path / "p")
    (tmp_path / "p" / "pyproject.toml").touch()
    return tmp_path / "p"


def showing() -> types.ClientCapabilities:
    shows = types.ShowDocumentClientCapabilities(True)
    return capabilities(work_done_progress=True, show_document=shows)


async def lenses(user: Editor, uri: str) -> list[tuple[int, str, str, list[Any]]]:
    parameters = types.CodeLensParams(types.TextDocumentIdentifier(uri))
    found = await user.client.text_document_code_lens_async(parameters) or ()
    return [
        (
            each.range.start.line,
            each.command.title,
            each.command.command,
            list(each.command.arguments or ()),
        )
        for each in found
        if each.command is not None
    ]


async def hints(user: Editor, uri: str) -> list[tuple[str, str]]:
    """The code before each hint on its line, and its label."""
    whole = types.Range(types.Position(0, 0), types.Position(1000, 0))
    parameters = types.InlayHintParams(types.TextDocumentIdentifier(uri), whole)
    found = await user.client.text_document_inlay_hint_async(parameters) or ()
    lines = user.texts[uri].split("\n")
    return [(lines[e.position.line][: e.position.character].strip(), str(e.label)) for e in found]


async def test_a_script_has_lenses_where_it_starts(tmp_path: Path) -> None:
    async with editor(tmp_path) as user:
        uri = user.open(tmp_path / "train.py", SCRIPT)
        assert await lenses(user, uri) == [
            (2, "Inspect", "fsdplint.inspect", [uri]),
            (2, "Verify on 2 ranks (runs this script)", "fsdplint.verify", [uri]),
        ]
        other = user.open(tmp_path / "helper.py", "x = 1\n")
        assert await lenses(user, other) == []
    async with editor(tmp_path, options={"codeLens": False}) as user:
        assert await lenses(user, user.open(tmp_path / "train.py", SCRIPT)) == []


async def test_hints_are_off_until_they_are_turned_on(project: Path) -> None:
    async with editor(project) as user:
        assert await hints(user, user.open(project / "parallel.py")) == []
    async with editor(project, options={"inlayHints": True}) as user:
        assert await hints(user, user.open(project / "parallel.py")) == [
            ("fully_shard(layer, **kwargs)", "FSDP2 unit: .layers[]"),
            ("fully_shard(model, **kwargs)", "FSDP2 unit: Transformer"),
        ]
        assert await hints(user, user.open(project / "utils.py")) == [
            ("if dist.get_rank() == 0", "only some ranks")
        ]


async def test_inspect_shows_what_the_command_prints(project: Path) -> None:
    async with editor(project, client=showing()) as user:
        parameters = types.ExecuteCommandParams(
            "fsdplint.inspect", arguments=[uri_of(project / "train.py")]
        )
        text = await user.client.workspace_execute_command_async(parameters)
        (shown,) = user.client.shown_documents
        (reports,) = user.client.progress_reports.values()
    assert text.startswith("train.py: top level\n  models\n")
    file = Path(shown.uri.removeprefix("file://").replace("%20", " "))
    assert file.read_text("utf-8") == text
    assert file.name == "fsdplint inspect train.py.txt"
    shutil.rmtree(file.parent)
    assert [each.kind for each in reports] == ["begin", "end"]  # type: ignore[attr-defined]


async def test_opening_a_script_runs_nothing_and_cancel_ends_it(tmp_path: Path) -> None:
    # What is in the script's own folder, verify makes in a copy.
    (tmp_path / "p").mkdir()
    file, ran = tmp_path / "p" / "train.py", tmp_path / "ran"
    (tmp_path / "p" / "pyproject.toml").touch()
    file.write_text(ENDLESS.format(str(ran)))
    async with editor(tmp_path / "p", client=showing()) as user:
        uri = user.open(file)
        await user.diagnostics(uri)
        await lenses(user, uri)
        assert not ran.exists()
        parameters = types.ExecuteCommandParams("fsdplint.verify", arguments=[uri])
        run = asyncio.ensure_future(user.client.workspace_execute_command_async(parameters))
        while not user.client.progress_reports:
            await asyncio.sleep(0.01)
        (token,) = user.client.progress_reports
        while not ran.exists():
            await asyncio.sleep(0.01)
        user.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
        assert await run is None
        assert user.client.shown_documents == []


async def test_a_command_needs_a_file(tmp_path: Path) -> None:
    async with editor(tmp_path) as user:
        parameters = types.ExecuteCommandParams("fsdplint.inspect", arguments=["untitled:1"])
        assert await user.client.workspace_execute_command_async(parameters) is None
        (message,) = user.client.messages
    assert message.message == "fsdplint: untitled:1 is not a file"
