"""The tools on the Model Context Protocol, through its official SDK."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from inspect import getdoc
from typing import Any

from mcp.server import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from fsdplint import __version__
from fsdplint.cli.main import explained
from fsdplint.mcp import tools

_INSTRUCTIONS = """\
fsdplint finds mistakes in PyTorch FSDP training code. Call `check` first. Read `explain` for each \
rule that you do not know. Call `fix`, or edit the code by hand where a finding has no fix, and \
call `check` again. `verify` runs a script on several ranks and shows what it really does; it \
needs no GPU.\
"""
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
_EXECUTES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
_TOOLS = (
    (tools.check, _READS),
    (tools.explain, _READS),
    (tools.inspect, _READS),
    (tools.verify, _EXECUTES),
    (tools.fix, _WRITES),
)


def serve() -> None:
    """Serve the tools on standard input and output until the input ends."""
    server = MCPServer(
        "fsdplint", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    for tool, hints in _TOOLS:
        server.add_tool(_guarded(tool), description=getdoc(tool), annotations=hints)
    server.run("stdio")


def _guarded(tool: Callable[..., tools.Object]) -> Callable[..., CallToolResult]:
    """Return ``tool`` as one that fails with one sentence."""

    @wraps(tool)
    def run(**arguments: Any) -> CallToolResult:
        try:
            found = tool(**arguments)
        except Exception as error:  # whatever it is, the agent reads one line
            return CallToolResult(content=[_text(explained(error))], is_error=True)
        # Without this text the SDK would add one of its own, which indentation makes longer.
        return CallToolResult(content=[_text(json.dumps(found))], structured_content=found)

    return run


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)
