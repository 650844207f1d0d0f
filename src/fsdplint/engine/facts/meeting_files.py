"""Files of a fixed name that processes meet by, and that nothing removes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Call
from fsdplint.engine.program import Program
from fsdplint.engine.written import argument
from fsdplint.knowledge.launch import INIT

_REMOVES = re.compile(r"unlink|remove\(|rmtree|\brm\b|temp|mkd?st?emp", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MeetingFile:
    """A process group by ``file://``; ``method`` is the argument that says so."""

    init: Call
    method: ir.Constant


def meeting_files(program: Program) -> Iterator[MeetingFile]:
    """Process groups whose processes find what an earlier run has left."""
    for trace in program.traces:
        for init in trace.calls(INIT):
            written = argument(init.site.node, 1, "init_method")
            method = None if written is None else written.value
            if not isinstance(method, ir.Constant) or not isinstance(method.value, str):
                continue
            texts = [program.tree(path).text for path in {trace.path, init.site.path}]
            kept = not any(_REMOVES.search(text) for text in texts)
            if method.value.startswith("file://") and kept:
                yield MeetingFile(init, method)
