"""`fsdplint mcp`: the SDK's own client talks to the real process.

The SDK is imported by what talks: collecting the tests takes a second less.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from schemas import expect
from test_cli import BAD, FIXED, IDLE, Ran, run

from fsdplint import __version__
from fsdplint.pages import page

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ListToolsResult

ROOT = Path(__file__).parents[1]
BROKEN = ROOT / "examples" / "broken"
DIRECT = (BROKEN / "direct_forward.py").read_text("utf-8")

PAGE = (ROOT / "docs" / "agents.md").read_text("utf-8")

Call = tuple[str, dict[str, object]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def served(folder: Path, root: str = ".") -> Client:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    arguments = ["-m", "fsdplint", "mcp", "--root", root]
    return Client(StdioServerParameters(command=sys.executable, args=arguments, cwd=folder))


def called(folder: Path, *calls: Call, root: str = ".") -> list[CallToolResult]:
    """The results of calls, one after the other, of a server that is started in ``folder``."""

    async def session() -> list[CallToolResult]:
        async with served(folder, root) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(session)


def document(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result
    (content,) = result.content
    assert content.type == "text"
    assert json.loads(content.text) == result.structured_content
    assert result.structured_content is not None
    return result.structured_content


def sentence(result: CallToolResult) -> str:
    assert result.is_error and result.structured_content is None, result
    (content,) = result.content
    assert content.type == "text"
    return content.text


def test_tools_say_what_they_do(root: Path) -> None:
    async def session() -> tuple[ListToolsResult, str, str | None]:
        async with served(root) as client:
            assert client.server_info is not None
            return await client.list_tools(), client.server_info.version, client.instructions

    listed, version, instructions = anyio.run(session)
    assert version == __version__
    assert instructions is not None and instructions.startswith("fsdplint finds mistakes")
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [t.name for t in listed.tools]
    hints = {tool.name: tool.annotations for tool in listed.tools}
    assert {name: (h.read_only_hint, h.open_world_hint) for name, h in hints.items() if h} == {
        "check": (True, False),
        "explain": (True, False),
        "inspect": (True, False),
        "verify": (False, True),
        "fix": (False, False),
    }
    (verify,) = (tool for tool in listed.tools if tool.name == "verify")
    assert verify.description is not None
    first, _, rest = verify.description.partition("\n\n")
    assert first.endswith("This executes the code.")
    # Each argument has its line.
    named = {line.split(":")[0] for line in rest.splitlines() if line.startswith("    ")}
    assert set(verify.input_schema["properties"]) == {name.strip() for name in named}


def test_the_page_shows_the_settings_and_a_finding(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding, settings = map(json.loads, re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
    (name, server), *others = settings["mcpServers"].items()
    assert (name, others) == ("fsdplint", [])
    assert server == {"command": "fsdplint", "args": ["mcp"]}
    (root / "direct_forward.py").write_text(DIRECT)
    monkeypatch.chdir(root)
    ran = run("check", "direct_forward.py", "--output-format=compact")
    assert finding in json.loads(ran.out)["findings"]


def test_check_explain_and_inspect_say_what_the_commands_do(root: Path) -> None:
    (root / "train.py").write_text(DIRECT)
    (root / "idle.py").write_text(IDLE)
    command = [sys.executable, "-m", "fsdplint"]

    def printed(*arguments: str) -> Any:
        shown = subprocess.run([*command, *arguments], cwd=root, capture_output=True, text=True)
        return json.loads(shown.stdout)

    log = "AttributeError: 'FSDPGPT' object has no attribute 'no_sync'"
    (root / "log.txt").write_text(log)
    results = called(
        root,
        ("check", {}),
        ("check", {"paths": ["train.py"], "select": ["FSD8"]}),
        ("explain", {"rule": "FSD302"}),
        ("explain", {"error": log, "paths": ["train.py"]}),
        ("inspect", {"script": "train.py"}),
    )
    whole, selected, rule, error, inspection = map(document, results)
    assert whole == printed("check", "--output-format=compact")
    assert [each["rule"] for each in whole["findings"]] == [
        *("unused-suppression", "direct-forward", "direct-forward")
    ]
    assert selected["findings"] == []
    expect(whole, "compact")
    assert rule == printed("explain", "direct-forward", "--output-format=json")
    assert rule["page"] == page("direct-forward")
    assert error == printed("explain", "--error=log.txt", "train.py", "--output-format=json")
    assert error["rules"][0]["rule"] == "no-sync-under-fsdp2"
    assert inspection == printed("inspect", "train.py", "--output-format=json")
    expect(inspection, "inspect")


def test_fix_writes_only_safe_fixes_unless_it_is_told_to(root: Path) -> None:
    shutil.copytree(BROKEN / "optimizer_before_sharding", root, dirs_exist_ok=True)
    before = (root / "trainer.py").read_text()
    (root / "idle.py").write_text(IDLE)
    results = called(root, ("fix", {}), ("check", {}), ("fix", {"unsafe": True}), ("check", {}))
    safe, between, unsafe, after = map(document, results)
    expect(safe, "fix")
    assert safe["fixed"] == ["unused-suppression"]
    assert safe["diff"] == f"--- idle.py\n+++ idle.py\n@@ -1 +1 @@\n-{IDLE}+{FIXED}"
    assert safe["left"] == between
    assert (root / "idle.py").read_text() == FIXED
    assert [each["rule"] for each in between["findings"]] == ["optimizer-before-sharding"]
    assert unsafe["fixed"] == ["optimizer-before-sharding"]
    assert unsafe["diff"].startswith("--- trainer.py\n+++ trainer.py\n")
    assert unsafe["left"] == after
    assert after["findings"] == []
    assert (root / "trainer.py").read_text() != before


def test_a_file_that_cannot_be_written_is_a_failure(root: Path) -> None:
    (root / "idle.py").write_text(IDLE)
    (root / "other.py").write_text(IDLE)
    (root / "idle.py").chmod(0o444)
    (result,) = called(root, ("fix", {}))
    found = document(result)
    assert found["fixed"] == ["unused-suppression"]
    assert found["diff"].splitlines()[0] == "--- other.py"
    assert "--- idle.py" not in found["diff"]
    assert found["left"]["failures"] == ["idle.py: not written: the file is read-only"]
    assert (root / "idle.py").read_text() == IDLE
    assert (root / "other.py").read_text() == FIXED


def test_nothing_outside_the_root_is_read_or_written(root: Path) -> None:
    beside = root.parent / "beside.py"
    beside.write_text(IDLE)
    (root.parent / ".git").mkdir()  # one project, of which the root is a part
    (root / "link.py").symlink_to(beside)
    (root / "folder").symlink_to(root.parent)
    outside = f"is outside {root}, the root of this server"
    paths = ("../beside.py", str(beside), "link.py", "folder/beside.py", "..", "a\0b")
    calls = [("check", {"paths": [path]}) for path in paths]
    calls += [("inspect", {"script": "../beside.py"}), ("verify", {"script": "../beside.py"})]
    calls += [("explain", {"error": "x", "paths": [".."]}), ("fix", {"paths": ["../beside.py"]})]
    *refused, fixed = called(root, *calls, ("fix", {}))
    named = [*paths, "../beside.py", "../beside.py", "..", "../beside.py"]
    assert list(map(sentence, refused)) == [f"{name!r} {outside}" for name in named]
    # A folder is searched, and what a link in it leads to is not written.
    assert sentence(fixed).endswith(outside)
    assert beside.read_text() == IDLE


def test_errors_are_one_sentence(root: Path) -> None:
    (root / "bad.py").write_text("def f(:\n")
    (root / "a.py").write_text(FIXED)
    expected = {
        ("check", "select", ("direct-forwad",)): (
            "unknown rule 'direct-forwad'; did you mean 'direct-forward'?"
        ),
        ("explain", "paths", ()): "explain requires either a rule or an error",
        ("inspect", "script", "no.py"): "no.py: No such file or directory",
        ("inspect", "script", "bad.py"): "bad.py: line 1: invalid syntax",
        ("verify", "script", "no.py"): f"no.py: no such file under {root}",
    }
    calls: list[Call] = [(name, {key: value}) for name, key, value in expected]
    calls.append(("verify", {"script": "a.py", "nproc": 0}))
    *results, number = called(root, *calls)
    assert list(map(sentence, results)) == list(expected.values())
    assert sentence(number) == "nproc, steps and timeout must be above 0"


def test_wrong_arguments_do_not_end_the_server(root: Path) -> None:
    (root / "a.py").write_text(IDLE)
    wrong, settings, right = called(
        root, ("check", {"paths": 3}), ("check", {"paths": ["sub"]}), ("check", {})
    )
    assert wrong.is_error and "Traceback" not in str(wrong.content)
    assert document(settings)["failures"] == ["sub: no such file or folder"]
    assert document(right)["summary"].startswith("Found 1 finding in 1 file")


def test_settings_and_baseline_of_the_project_hold(root: Path) -> None:
    (root / "a.py").write_text(BAD)
    (root / "b.py").write_text(IDLE)
    (root / "fsdplint.toml").write_text('baseline = "known.json"\nignore = ["FSD002"]\n')
    command = [sys.executable, "-m", "fsdplint", "baseline", "write"]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (known,) = called(root.parent, ("check", {}), root="root")
    assert document(known)["findings"] == []
    assert "2 more in the baseline" in document(known)["summary"]


def test_verify_runs_the_script_while_others_check(root: Path) -> None:
    (root / "train.py").write_text(DIRECT)
    ended: dict[str, CallToolResult] = {}

    async def session() -> None:
        async with served(root) as client, anyio.create_task_group() as group:

            async def call(name: str, arguments: dict[str, object]) -> None:
                ended[name] = await client.call_tool(name, arguments)

            group.start_soon(call, "verify", {"script": "train.py", "steps": 1})
            await anyio.sleep(0.2)
            group.start_soon(call, "check", {})

    anyio.run(session)
    assert list(ended) == ["check", "verify"]
    assert document(ended["check"])["summary"].startswith("Found 2 findings in 1 file")
    found = document(ended["verify"])
    expect(found, "verify-compact")
    assert found["exit_code"] == 1
    (violation,) = found["violations"]
    assert (violation["clause"], violation["at"][0]) == ("forward", "train.py:64")
    assert violation["rule"].startswith("direct-forward at train.py:")
    assert [path.name for path in root.iterdir()] == ["train.py"]


MODULES: Sequence[str] = ("mcp", "mcp.server", "mcp.types")


def test_without_the_extra_it_says_how_to_install_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.delitem(sys.modules, "fsdplint.mcp.server", raising=False)
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    message = "fsdplint: the MCP server needs the package mcp 2: pip install 'fsdplint[mcp]'\n"
    assert run("mcp") == Ran(2, "", message)
    assert run("mcp", "--root=none").code == 2
