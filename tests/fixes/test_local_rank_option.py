from __future__ import annotations

from typing import Any

import pytest
from snippets import Snippet

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.rules.local_rank_argument import (
    default_from_environment,
    own_default_from_environment,
)

SAFE, UNSAFE = Safety.SAFE, Safety.UNSAFE


def program(option: str) -> Snippet:
    return Snippet(
        "import argparse\n\nparser = argparse.ArgumentParser()\n"
        f"<n:parser.add_argument({option}):n>\nargs = parser.parse_args(argv)\n"
    )


def fixed(option: str) -> tuple[str, Safety]:
    at = program(option)
    fix = default_from_environment(at.code, at["n"])
    assert isinstance(fix, Fix)
    return at.fixed(fix), fix.safety


def parsed(text: str, *argv: str) -> object:
    """What the options are, or the exit that argparse ends with."""
    names: dict[str, Any] = {"argv": argv}
    try:
        exec(compile(text, "train.py", "exec"), names)
    except SystemExit as exit_:
        return exit_
    return vars(names["args"])


@pytest.mark.parametrize(
    ("option", "passed", "kept"),
    [
        ('"--local_rank", type=int, default=0', 1, 0),
        ('"--local_rank", type=int, default=-1', 1, -1),
        ('"--local_rank", type=int', 1, None),
        ('"--local_rank", type=int, default=None', 1, None),
        ('"--local_rank", type=int, default="0"', 1, 0),
        ('"--local_rank", default="0"', "1", "0"),
        ('"--local_rank", default=0', 1, 0),
        ('"--local_rank", type=int, required=False', 1, None),
        ('"-r", "--local_rank", type=int, default=0, help="of %(default)s"', 1, 0),
    ],
)
def test_the_default_is_the_one_of_the_environment(
    option: str, passed: object, kept: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, safety = fixed(option)
    assert safety is SAFE
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert parsed(text) == {"local_rank": kept}
    for given in ([], ["--local_rank=3"], ["--local=3"]):
        assert parsed(text, *given) == parsed(program(option).code.text, *given)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert parsed(text) == {"local_rank": passed}
    assert parsed(text, "--local_rank=3") in ({"local_rank": 3}, {"local_rank": "3"})


def test_what_is_required_is_required_without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    text, safety = fixed('"--local_rank", type=int, required=True')
    assert safety is SAFE
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert parsed(text) == {"local_rank": 1}
    monkeypatch.delenv("LOCAL_RANK")
    assert isinstance(parsed(text), SystemExit)
    assert parsed(text, "--local_rank=3") == {"local_rank": 3}


@pytest.mark.parametrize(
    "option",
    [
        '"--local_rank"',  # a text, which no device is named by
        '"--local_rank", type=int, nargs="?", const=3, default=0',
        '"--local_rank", type=int, choices=[0], default=0',
        '"--local_rank", type=float, default=0',
        '"--local_rank", action="append", default=0',
        '"--local_rank", type=int, default=argparse.SUPPRESS',
        '"--local_rank", type=int, default=False',
    ],
)
def test_what_argparse_may_take_otherwise_is_not_safe(option: str) -> None:
    assert fixed(option)[1] is UNSAFE


@pytest.mark.parametrize(
    ("default", "expected", "safety"),
    [
        ("0", 'int(os.environ.get("LOCAL_RANK", 0))', SAFE),
        (
            "None",
            'int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else None',
            UNSAFE,
        ),
    ],
)
def test_the_default_of_a_field(default: str, expected: str, safety: Safety) -> None:
    at = Snippet(f"import os\nclass Options:\n    <n:local_rank:n>: int = <d:{default}:d>\n")
    node = at["d"]
    assert isinstance(node, ir.Constant)
    fix = own_default_from_environment(at.code, node, node)
    assert at.fixed(fix) == f"import os\nclass Options:\n    local_rank: int = {expected}\n"
    assert isinstance(fix, Fix) and fix.safety is safety
