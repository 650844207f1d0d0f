"""Notebooks: a document for each cell, and one program of them all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from editor import Editor, capabilities, editor, uri_of
from lsprotocol import types
from test_cli import run

CELLS = (
    ("markdown", "# Train"),
    ("python", "%pip install torch\nimport torch\nfrom torch.distributed.fsdp import fully_shard"),
    ("python", "# 🔥\nmodel = torch.nn.Linear(8, 8)\nfully_shard(model)"),
    ("python", ""),
    ("python", "for batch in torch.ones(4, 8):\n    model.forward(batch).sum().backward()\n"),
)

pytestmark = pytest.mark.asyncio


def client(*, pull: bool = False) -> types.ClientCapabilities:
    able = capabilities(pull=pull)
    sync = types.NotebookDocumentSyncClientCapabilities()
    able.notebook_document = types.NotebookDocumentClientCapabilities(sync)
    return able


def saved(file: Path) -> list[str]:
    """The sources of the cells in a notebook on disk."""
    return ["".join(cell["source"]) for cell in json.loads(file.read_text("utf-8"))["cells"]]


def written(file: Path) -> Path:
    cells = [
        {"cell_type": "markdown" if kind == "markdown" else "code", "source": source}
        for kind, source in CELLS
    ]
    file.write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}), "utf-8")
    return file


def opened(user: Editor, file: Path) -> list[str]:
    """Open the notebook in its first state, and return the addresses of its cells."""
    documents = [
        types.TextDocumentItem(f"vscode-notebook-cell:{file}#{index}", kind, 1, source)
        for index, (kind, source) in enumerate(CELLS)
    ]
    cells = [
        types.NotebookCell(
            types.NotebookCellKind.Code
            if each.language_id == "python"
            else types.NotebookCellKind.Markup,
            each.uri,
        )
        for each in documents
    ]
    for each in documents:
        user.texts[each.uri], user.versions[each.uri] = each.text, 1
    notebook = types.NotebookDocument(uri_of(file), "jupyter-notebook", 1, cells)
    user.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, documents))
    return [each.uri for each in documents]


def changed(user: Editor, file: Path, change: types.NotebookDocumentCellChanges) -> None:
    identifier = types.VersionedNotebookDocumentIdentifier(2, uri_of(file))
    event = types.NotebookDocumentChangeEvent(cells=change)
    user.client.notebook_document_did_change(
        types.DidChangeNotebookDocumentParams(identifier, event)
    )


async def findings(user: Editor, uris: list[str]) -> list[tuple[int, str]]:
    """The cell of each finding, and the code under it."""
    found = []
    for index, uri in enumerate(uris):
        found += [(index, user.under(uri, each.range)) for each in await user.diagnostics(uri)]
    return found


async def test_findings_are_in_cells(tmp_path: Path) -> None:
    async with editor(tmp_path, client=client()) as user:
        uris = opened(user, written(tmp_path / "train.ipynb"))
        assert await findings(user, uris) == [(4, "model.forward")]
        (found,) = await user.diagnostics(uris[4])
        related = [each.location for each in found.related_information or ()]
        assert [(each.uri, user.under(each.uri, each.range)) for each in related] == [
            (uris[2], "fully_shard(model)"),
        ]


async def test_an_editor_that_requests_diagnostics_is_sent_those_of_cells(tmp_path: Path) -> None:
    # VS Code requests those of files, and none of a notebook's cells.
    async with editor(tmp_path, client=client(pull=True)) as user:
        uris = opened(user, written(tmp_path / "train.ipynb"))
        assert await findings(user, uris) == [(4, "model.forward")]
        identifier = types.TextDocumentIdentifier(uris[4])
        report = await user.client.text_document_diagnostic_async(
            types.DocumentDiagnosticParams(identifier)
        )
        assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
        assert list(report.items) == []


async def test_a_notebook_has_its_findings_in_the_workspace_until_it_is_open(
    tmp_path: Path,
) -> None:
    file = written(tmp_path / "train.ipynb")
    async with editor(tmp_path, client=client(pull=True)) as user:
        before: list[types.PreviousResultId] = []
        counts = []
        for step in (opened, None):
            asked = types.WorkspaceDiagnosticParams(before)
            report = await user.client.workspace_diagnostic_async(asked)
            (only,) = report.items
            assert isinstance(only, types.WorkspaceFullDocumentDiagnosticReport)
            assert only.uri == uri_of(file)
            counts.append(len(only.items))
            before = [types.PreviousResultId(only.uri, only.result_id or "")]
            if step is not None:
                await findings(user, step(user, file))
        assert counts == [1, 0]


async def test_a_fix_in_a_cell_is_that_of_the_command_line(tmp_path: Path) -> None:
    file = written(tmp_path / "train.ipynb")
    async with editor(tmp_path, client=client()) as user:
        uris = opened(user, file)
        (found,) = await user.diagnostics(uris[4])
        actions = []
        for only in ([types.CodeActionKind.QuickFix], ["source.fixAll.fsdplint"]):
            identifier = types.TextDocumentIdentifier(uris[4])
            context = types.CodeActionContext([], only=only)
            parameters = types.CodeActionParams(identifier, found.range, context)
            actions.append(await user.client.text_document_code_action_async(parameters) or ())
    run("check", "--fix", file)
    fixed = saved(file)
    for action, *_ in actions:
        assert isinstance(action, types.CodeAction)
        assert action.edit is not None
        assert user.edited(action.edit) == {uris[4]: fixed[4]}
    assert fixed[4] != CELLS[4][1]
    assert fixed[:4] == [source for _, source in CELLS[:4]]


async def test_cells_change_and_move(tmp_path: Path) -> None:
    file = written(tmp_path / "train.ipynb")
    async with editor(tmp_path, client=client()) as user:
        uris = opened(user, file)
        assert await findings(user, uris) == [(4, "model.forward")]
        # The last cell is put before the others, where the model is not sharded yet.
        last = types.NotebookCell(types.NotebookCellKind.Code, uris[4])
        array = types.NotebookCellArrayChange(4, 1, [])
        structure = types.NotebookDocumentCellChangeStructure(array)
        changed(user, file, types.NotebookDocumentCellChanges(structure))
        while (
            uris[4] in {each.uri for each in user.published if each.diagnostics}
            and (user.client.diagnostics[uris[4]])
        ):
            await asyncio.sleep(0.01)
        new = types.TextDocumentItem(uris[4], "python", 1, CELLS[4][1])
        array = types.NotebookCellArrayChange(3, 0, [last])
        structure = types.NotebookDocumentCellChangeStructure(array, did_open=[new])
        changed(user, file, types.NotebookDocumentCellChanges(structure))
        while not user.client.diagnostics[uris[4]]:
            await asyncio.sleep(0.01)
        user.versions[uris[4]] = 2
        text = user.texts[uris[4]] = CELLS[4][1].replace(".forward", "")
        whole = types.TextDocumentContentChangeWholeDocument(text)
        document = types.VersionedTextDocumentIdentifier(2, uris[4])
        content = types.NotebookDocumentCellContentChanges(document, [whole])
        changed(user, file, types.NotebookDocumentCellChanges(text_content=[content]))
        assert await findings(user, uris) == []


async def test_a_closed_notebook_has_no_diagnostics(tmp_path: Path) -> None:
    file = written(tmp_path / "train.ipynb")
    async with editor(tmp_path, client=client()) as user:
        uris = opened(user, file)
        assert await findings(user, uris) == [(4, "model.forward")]
        user.client.notebook_document_did_close(
            types.DidCloseNotebookDocumentParams(
                types.NotebookDocumentIdentifier(uri_of(file)),
                [types.TextDocumentIdentifier(uri) for uri in uris],
            )
        )
        while user.client.diagnostics[uris[4]]:
            await asyncio.sleep(0.01)


async def test_a_cell_has_hovers(tmp_path: Path) -> None:
    async with editor(tmp_path, client=client()) as user:
        uris = opened(user, written(tmp_path / "train.ipynb"))
        place = user.position(uris[2], CELLS[2][1].index("torch.nn.Linear"))
        parameters = types.HoverParams(types.TextDocumentIdentifier(uris[2]), place)
        found = await user.client.text_document_hover_async(parameters)
    assert found is not None
    assert isinstance(found.contents, types.MarkupContent)
    assert found.contents.value == (
        "Model `Linear`\n- the model itself: FSDP2, line 3 of cell 3 of train.ipynb"
    )
