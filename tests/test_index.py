"""The index of the pages."""

from __future__ import annotations

import dataclasses

from fsdplint.index import index
from fsdplint.rules import RULES


def test_each_rule_stands_under_its_topic() -> None:
    by_code = {rule.code: rule for rule in RULES}
    listed = [
        by_code["FSD001"],
        dataclasses.replace(by_code["FSD201"], preview="too new", summary="a | b"),
        by_code["FSD302"],
    ]
    _, *sections = index(listed).split("\n## ")
    head = "| Code | Name | What is wrong | Severity | Fix | Since |\n|---|---|---|---|---|---|\n"
    assert sections == [
        f"The tool: FSD0\n\n{head}"
        "| FSD001 | [invalid-syntax](invalid-syntax.md) | a file is not valid Python"
        " | error | none | 0.1.0 |\n",
        f"Sharding: FSD2\n\n{head}"
        "| FSD201 | [only-root-sharded](only-root-sharded.md) (preview) | a \\| b"
        " | warning | unsafe | 0.1.0 |\n",
        f"The training step: FSD3\n\n{head}"
        "| FSD302 | [direct-forward](direct-forward.md) | `.forward` of a sharded module"
        " is called past its hooks | error | safe where certain | 0.1.0 |\n",
    ]
