"""Code actions: their edits leave the bytes that the command line would write."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from editor import Editor, capabilities, editor, uri_of
from lsprotocol import types
from test_cli import run

from fsdplint.server.editor_settings import REASON
from fsdplint.urls import rule_url

SCRIPTS = Path(__file__).parents[1] / "fixtures" / "scripts"
# One with a finding each, whose fix is safe or not.
SAFE = (
    "custom-method-bypasses-hooks/encode_before_forward.py",
    "direct-forward/bound_before_sharding.py",
    "epoch-not-set/flat.py",
    "wrap-policy-called/policy_in_variable.py",
)
UNSAFE = (
    "device-not-set/asked_first.py",
    "direct-forward/loop_variable.py",
    "optimizer-before-sharding/between_blocks_and_root.py",
    "save-without-gathered-state/accelerate_by_the_main_process.py",
)
SEVERAL = ("direct-forward/loops_over_batches.py", "old-import-path/lazy_and_grouped.py")
QUICK, FIX_ALL = types.CodeActionKind.QuickFix, "source.fixAll.fsdplint"

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=["\n", "\r\n"], ids=["lf", "crlf"])
def newline(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


def copied(parent: Path, script: str, newline: str) -> Path:
    """A new project with the script, which has a character of two units in a string."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    (folder / "pyproject.toml").touch()
    file = folder / "train.py"
    text = (SCRIPTS / script).read_text("utf-8") + 'print("🔥")\n'
    file.write_bytes(text.replace("\n", newline).encode())
    return file


def written(file: Path, *options: str) -> str:
    """What the command line makes of the file, in a copy of its project."""
    copy = file.parent.with_name(f"{file.parent.name}-copy")
    shutil.copytree(file.parent, copy)
    run("check", *options, copy / file.name)
    text = (copy / file.name).read_bytes().decode()
    shutil.rmtree(copy)
    assert text != file.read_bytes().decode()
    return text


async def requested(
    user: Editor, uri: str, place: types.Range, *only: str
) -> list[types.CodeAction]:
    """The actions that edit; see `asked` for the others."""
    found = await asked(user, uri, place, *only)
    return [each for each in found if isinstance(each, types.CodeAction)]


async def asked(
    user: Editor, uri: str, place: types.Range, *only: str
) -> Sequence[types.CodeAction | types.Command]:
    context = types.CodeActionContext([], only=list(only) or None)
    parameters = types.CodeActionParams(types.TextDocumentIdentifier(uri), place, context)
    return await user.client.text_document_code_action_async(parameters) or ()


def after(user: Editor, uri: str, action: types.CodeAction) -> str:
    assert action.edit is not None
    texts = user.edited(action.edit)
    assert texts.keys() == {uri}
    return texts[uri]


async def test_a_fix_writes_what_the_command_line_does(tmp_path: Path, newline: str) -> None:
    async with editor(tmp_path) as user:  # one for all, since each takes a second to start
        for script in (*SAFE, *UNSAFE):
            await _fixes_as_the_command_line(user, copied(tmp_path, script, newline), script)


async def _fixes_as_the_command_line(user: Editor, file: Path, script: str) -> None:
    rule, safe = Path(script).parent.name, script in SAFE
    uri = user.open(file)
    (found,) = await user.diagnostics(uri)
    fix, suppress, explain = await asked(user, uri, found.range)
    assert isinstance(fix, types.CodeAction)
    assert isinstance(suppress, types.CodeAction)
    options = ["--fix"] if safe else ["--fix", "--unsafe-fixes"]
    assert after(user, uri, fix) == written(file, *options)
    assert after(user, uri, suppress) == written(file, f"--add-ignore={REASON}")
    assert fix.title.endswith(" (unsafe fix)") == (not safe)
    assert fix.is_preferred == (safe or None)
    assert (fix.kind, list(fix.diagnostics or ())) == (QUICK, [found])
    assert suppress.title == f"Suppress {rule} with a comment"
    assert suppress.is_preferred is None
    title = f"Explain {rule} ({found.code})"
    command = {"title": title, "command": "fsdplint.explain", "arguments": [rule]}
    # The client's converter takes an action that has a command for a command.
    assert explain == types.Command(title, str(command))


@pytest.mark.parametrize("script", [SAFE[0], UNSAFE[0]])
async def test_an_editor_asks_for_the_edit_of_the_action_that_is_chosen(
    tmp_path: Path, script: str
) -> None:
    file = copied(tmp_path, script, "\n")
    async with editor(file.parent, client=capabilities(resolve=True)) as user:
        uri = user.open(file)
        (found,) = await user.diagnostics(uri)
        fix, suppress = await requested(user, uri, found.range)
        assert (fix.edit, suppress.edit) == (None, None)
        fix, suppress = [
            await user.client.code_action_resolve_async(each) for each in (fix, suppress)
        ]
        assert after(user, uri, fix) == written(file, "--fix", "--unsafe-fixes")
        assert after(user, uri, suppress) == written(file, f"--add-ignore={REASON}")
        user.replace(uri, 'print("🔥")\n', 'print("🔥"\n')
        fix.edit = None
        assert (await user.client.code_action_resolve_async(fix)).edit is None


async def test_fix_all_writes_what_the_command_line_does(tmp_path: Path, newline: str) -> None:
    whole = types.Range(types.Position(0, 0), types.Position(0, 0))
    several = ((script, FIX_ALL) for script in SEVERAL)
    kinds = ((SAFE[0], kind) for kind in (FIX_ALL, "source.fixAll", "source"))
    async with editor(tmp_path) as user:
        for script, only in (*several, *kinds):
            file = copied(tmp_path, script, newline)
            uri = user.open(file)
            (action,) = await requested(user, uri, whole, only)
            assert after(user, uri, action) == written(file, "--fix")
            assert action.kind == FIX_ALL


async def test_fix_all_leaves_unsafe_fixes_alone(tmp_path: Path) -> None:
    file = copied(tmp_path, UNSAFE[0], "\n")
    async with editor(tmp_path) as user:
        uri = user.open(file)
        (found,) = await user.diagnostics(uri)
        assert await requested(user, uri, found.range, FIX_ALL) == []


async def test_fix_all_is_computed_where_it_is_requested_alone(tmp_path: Path) -> None:
    file = copied(tmp_path, SAFE[0], "\n")
    async with editor(tmp_path) as user:
        uri = user.open(file)
        (found,) = await user.diagnostics(uri)
        kinds = {each.kind for each in await requested(user, uri, found.range)}
        assert kinds == {QUICK}
        assert await requested(user, uri, found.range, "refactor") == []
        elsewhere = types.Range(types.Position(0, 0), types.Position(0, 1))
        assert await requested(user, uri, elsewhere) == []


async def test_a_buffer_that_is_not_saved_is_what_is_fixed(tmp_path: Path) -> None:
    file = copied(tmp_path, SAFE[1], "\n")
    fixed = written(file, "--fix")
    async with editor(tmp_path) as user:
        uri = user.open(file)
        user.replace(uri, 'print("🔥")\n', 'print("🔥🔥")\n')
        (found,) = await user.diagnostics(uri)
        fix = (await requested(user, uri, found.range))[0]
        assert after(user, uri, fix) == fixed.replace("🔥", "🔥🔥")


async def test_nothing_is_offered_while_the_code_is_invalid(tmp_path: Path) -> None:
    file = copied(tmp_path, SAFE[1], "\n")
    async with editor(tmp_path) as user:
        uri = user.open(file)
        user.replace(uri, 'print("🔥")\n', 'print("🔥"\n')
        (found,) = await user.diagnostics(uri)
        assert await requested(user, uri, found.range) == []
        assert await requested(user, uri, found.range, FIX_ALL) == []


async def test_the_reason_of_a_comment_is_a_setting(tmp_path: Path) -> None:
    file = copied(tmp_path, SAFE[1], "\n")
    async with editor(tmp_path, options={"fsdplint": {"ignoreReason": "a known bug"}}) as user:
        uri = user.open(file)
        (found,) = await user.diagnostics(uri)
        _, suppress = await requested(user, uri, found.range)
        assert after(user, uri, suppress) == written(file, "--add-ignore=a known bug")


async def test_explain_opens_the_page_of_the_rule(tmp_path: Path) -> None:
    client = capabilities(show_document=types.ShowDocumentClientCapabilities(True))
    parameters = types.ExecuteCommandParams("fsdplint.explain", arguments=["direct-forward"])
    async with editor(tmp_path, client=client) as user:
        await user.client.workspace_execute_command_async(parameters)
        (shown,) = user.client.shown_documents
    assert (shown.uri, shown.external) == (rule_url("direct-forward"), True)
    async with editor(tmp_path) as user:
        await user.client.workspace_execute_command_async(parameters)
        (message,) = user.client.messages
    assert message.message == rule_url("direct-forward")


async def test_an_editor_without_versions_gets_plain_edits(tmp_path: Path) -> None:
    file = copied(tmp_path, SAFE[1], "\n")
    client = capabilities()
    client.workspace = None
    async with editor(tmp_path, client=client) as user:
        uri = user.open(file)
        (found,) = await user.diagnostics(uri)
        fix, *_ = await requested(user, uri, found.range)
    assert fix.edit is not None
    assert fix.edit.document_changes is None
    assert set(fix.edit.changes or ()) == {uri}


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_fix_may_change_another_file(tmp_path: Path, is_open: bool) -> None:
    files = SCRIPTS.parent / "projects" / "two_entries_one_wrong"
    project = tmp_path / "p"
    shutil.copytree(files, project)
    (project / "pyproject.toml").touch()
    shutil.copytree(project, tmp_path / "copy")
    run("check", "--fix", "--unsafe-fixes", tmp_path / "copy")
    async with editor(project) as user:
        uri, other = user.open(project / "common.py"), uri_of(project / "finetune.py")
        user.texts[other] = (project / "finetune.py").read_text()
        if is_open:
            user.open(project / "finetune.py")
        (found,) = await user.diagnostics(uri)
        fix, _ = await requested(user, uri, found.range)
        assert fix.edit is not None
        assert user.edited(fix.edit) == {other: (tmp_path / "copy" / "finetune.py").read_text()}


async def test_an_invalid_file_is_not_changed_by_the_fix_of_another(tmp_path: Path) -> None:
    project = tmp_path / "p"
    shutil.copytree(SCRIPTS.parent / "projects" / "two_entries_one_wrong", project)
    (project / "pyproject.toml").touch()
    async with editor(project) as user:
        uri, other = (user.open(project / name) for name in ("common.py", "finetune.py"))
        (before,) = await user.diagnostics(uri)
        assert before.data["fix"] == "unsafe"
        user.texts[other] = f"import (\n{user.texts[other]}"
        start = types.Range(types.Position(0, 0), types.Position(0, 0))
        user.change(other, types.TextDocumentContentChangePartial(start, "import (\n"))
        await user.diagnostics(other)
        (found,) = await user.diagnostics(uri)
        assert (found.data["rule"], found.data["fix"]) == (before.data["rule"], None)
        (suppress,) = await requested(user, uri, found.range)
        assert suppress.title == "Suppress optimizer-before-sharding with a comment"
