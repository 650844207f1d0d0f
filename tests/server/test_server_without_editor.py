"""What the server does where no editor can be made to ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lsprotocol import types

from fsdplint.finding import Edit, Fix, Safety
from fsdplint.outcome import Outcome, OutdatedError
from fsdplint.server import action_requests, pull
from fsdplint.server.analysis import Analysis, Choices
from fsdplint.server.documents import opened
from fsdplint.server.language_server import Server
from fsdplint.server.runs import Runs
from fsdplint.server.session import Session, Snapshot, uri_of

SCRIPT = Path(__file__).parents[1] / "fixtures/scripts/direct-forward/bound_before_sharding.py"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server with one open file, whose finding has a fix that breaks the code."""
    (tmp_path / "pyproject.toml").touch()
    made = Server()
    path = (tmp_path / "train.py").as_posix()
    made.session.documents[path] = opened(uri_of(path), path, 1, SCRIPT.read_text("utf-8"))
    check = Analysis.check

    def broken(*args: Any) -> Outcome:
        outcome = check(*args)
        fixes = (Fix("break it", Safety.SAFE, (Edit(f.span, "(("),)) for f in outcome.findings)
        findings = (replace(f, fix=fix) for f, fix in zip(outcome.findings, fixes, strict=True))
        return replace(outcome, findings=tuple(findings))

    monkeypatch.setattr(Analysis, "check", broken)
    return made


def test_a_fix_that_is_rolled_back_is_not_offered_and_says_why(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(server, "show", said.append)
    ((path, document),) = server.session.documents.items()
    whole = types.Range(types.Position(0, 0), types.Position(1000, 0))
    parameters = types.CodeActionParams(
        types.TextDocumentIdentifier(uri_of(path)), whole, types.CodeActionContext([])
    )
    found = asyncio.run(action_requests._quick_fixes(server, document, parameters))
    assert [action.title.split()[0] for action in found] == ["Suppress", "Explain"]
    reason = "a fix of direct-forward was rolled back: the fixed code is not valid Python"
    assert said == [f"fsdplint: {reason}"]


def test_a_workspace_that_changes_meanwhile_is_asked_for_again() -> None:
    handlers: dict[str, Callable[..., Any]] = {}

    def feature(name: str, *_: object) -> Callable[[Callable[..., Any]], None]:
        return lambda handler: handlers.update({name: handler})

    async def outdated(*_: object) -> Outcome:
        raise OutdatedError

    folders = SimpleNamespace(folders=["file:///project"])
    server: Any = SimpleNamespace(
        feature=feature, workspace=folders, outcome=outdated, session=Session()
    )
    pull.register(server)
    known = [types.PreviousResultId("file:///project/a.py", "1")]
    request = handlers[types.WORKSPACE_DIAGNOSTIC](types.WorkspaceDiagnosticParams(known))
    with pytest.raises(pull._Retrigger) as raised:
        asyncio.run(request)
    assert raised.value.data == types.DiagnosticServerCancellationData(retrigger_request=True)


def test_results_for_earlier_texts_are_forgotten(server: Server) -> None:
    ((path, document),) = server.session.documents.items()
    runs = Runs()

    async def checked(snapshot: Snapshot) -> None:
        await runs.outcome(snapshot, lambda: snapshot)
        await runs.changes(path, snapshot, lambda: snapshot)

    async def all_of_them() -> None:
        root = Path(path).parent.as_posix()
        old = Snapshot(root, (path,), {path: document.source}, Choices(), disk=0)
        folder = replace(old, paths=(root,), buffers={})
        await runs.outcome(folder, lambda: folder)
        await checked(old)
        assert len(runs._known) == 3
        new = replace(old, disk=1)
        await runs.outcome(new, lambda: new)

    asyncio.run(all_of_them())
    assert sorted(what for _, what in runs._known) == ["files", "folder"]
