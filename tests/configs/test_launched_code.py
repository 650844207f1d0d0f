"""What is known of the Python file that a launch line runs: its command line and its mesh."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from fsdplint.check import check, check_text
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

REFUSED, MESH = "unknown-script-option", "mesh-larger-than-world"
PLAIN = """\
import argparse
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", "-b", type=int)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("data", nargs="?")
    args = parser.parse_args()
if __name__ == "__main__":
    main()
"""


def found(line: str, code: str) -> list[str]:
    return [each.rule for each in check_text(line + "\n", "train.sh", beside=[("train.py", code)])]


def refuses(code: str, line: str) -> bool:
    """Whether a run of the code ends by what argparse says of the line."""
    said = io.StringIO()
    with (
        patch.object(sys, "argv", ["train.py", *line.split()]),
        contextlib.redirect_stderr(said),
        contextlib.suppress(SystemExit),
    ):
        exec(compile(code, "train.py", "exec"), {"__name__": "__main__"})
    return "unrecognized arguments" in said.getvalue()


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("--batch_size 4 --lr=3 --resume x", 0),
        ("--batch-size 4", 1),
        ("--batchsize=4 --learning_rate 3", 2),
        ("--batch 4 --re", 0),
        ("--help-me", 1),
        ("x --epochs", 1),
        ("-- --epochs", 0),
    ],
)
def test_options_are_refused_as_argparse_refuses_them(line: str, refused: int) -> None:
    assert found(f"torchrun --nproc_per_node 2 train.py {line}", PLAIN) == [REFUSED] * refused
    assert refuses(PLAIN, line) is bool(refused)


@pytest.mark.parametrize(
    "line",
    [
        'torchrun train.py "$@" --epochs 3',
        "torchrun train.py $ARGS",
        'torchrun train.py "--epochs 3"',
        "torchrun $ARGS train.py --epochs 3",
        "torchrun other.py --epochs 3",
        "torchrun -m train --epochs 3",
        "python -m torch.distributed.launch --nproc_per_node 2 train.py --epochs 3",
        "torchrun train.py -e 3",
    ],
)
def test_other_lines_are_left_alone(line: str) -> None:
    assert REFUSED not in found(line, PLAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("parse_args()", "parse_known_args()[0]"),
        ("parse_args()", "parse_args(words)"),
        ('"--lr"', "name"),
        ('"--lr"', "*names"),
        ('nargs="?"', 'nargs="..."'),
        ('nargs="?"', "nargs=argparse.REMAINDER"),
        ('action="store_true"', "action=argparse.BooleanOptionalAction"),
        ("ArgumentParser()", "ArgumentParser(parents=[other])"),
        ("ArgumentParser()", 'ArgumentParser(prefix_chars="+")'),
        ("ArgumentParser()", "ArgumentParser(**settings)"),
        ("    args =", "    add(parser)\n    args ="),
        ("    args =", "    group = parser.add_argument_group()\n    args ="),
        ("    args =", "    parser = other(parser)\n    args ="),
        ("    args =", "    sys.argv[1:] = []\n    args ="),
        ("    args =", "    if x:\n        return\n    args ="),
        ("    args =", "    if x:\n        usage()\n    args ="),
        ("    args =", "    if x: args ="),
        (
            "    args = parser.parse_args()",
            "    try:\n        parser.parse_args()\n    except: ...",
        ),
        ("    main()", "    run(main)"),
        ("def main", "@wrapped\ndef main"),
        ("import argparse", "from ours import argparse"),
        ("if __name__", "main = other(main)\nif __name__"),
    ],
)
def test_code_that_may_take_any_option_is_left_alone(old: str, new: str) -> None:
    code = PLAIN.replace(old, new)
    if "usage()" in new:
        code = "def usage():\n    raise SystemExit\n" + code
    assert code != PLAIN
    assert found("torchrun train.py --epochs 3", code) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    args =", "    if x:\n        print(3)\n    args ="),
        ("    args =", "    for x in y: print(3)\n    args ="),
        ("    args = parser.parse_args()", "    run(parser.parse_args())"),
        ("    args = parser", "    return parser"),
        ("argparse.ArgumentParser", "argparse.ArgumentParser"),
        ("import argparse\n", "import sys\nimport argparse\n"),
        ("    main()", "    sys.exit(main())"),
    ],
)
def test_code_that_surely_parses_is_known(old: str, new: str) -> None:
    code = PLAIN.replace(old, new)
    assert found("torchrun train.py --epochs 3", code) == [REFUSED]


MESHES = """\
from torch.distributed import init_device_mesh
def main():
    {}
main()
"""


@pytest.mark.parametrize(
    ("body", "line", "expected"),
    [
        ('init_device_mesh("cuda", (2, 4))', "torchrun --nproc_per_node 4", [MESH]),
        ('init_device_mesh("cuda", (2, 4))', "torchrun --nproc_per_node 8", []),
        ('init_device_mesh("cuda", (2, 4))', "torchrun --nproc_per_node 16", []),
        ('init_device_mesh("cuda", (2, 4))', "torchrun --nnodes 2 --nproc_per_node 4", []),
        ('init_device_mesh("cuda", (2, 4))', "torchrun --nnodes 1:2 --nproc_per_node 4", []),
        ('init_device_mesh("cuda", (2, 4))', "torchrun --nproc_per_node gpu", []),
        ('init_device_mesh("cuda", (2, 4))', "torchrun", []),
        ('init_device_mesh("cuda", (2, 4))', "accelerate launch --num_processes 2", [MESH]),
        ('init_device_mesh("cuda", (2, 4))', "PET_NNODES=2 torchrun --nproc_per_node 4", []),
        ('init_device_mesh("cuda", mesh_shape=[8])', "torchrun --nproc_per_node 4", [MESH]),
        ('n = 4\n    init_device_mesh("cuda", (2, n))', "torchrun --nproc_per_node 4", [MESH]),
        ('init_device_mesh("cuda", (2, n))', "torchrun --nproc_per_node 1", []),
        ('init_device_mesh("cuda", (2, -1))', "torchrun --nproc_per_node 1", []),
        ('if x: init_device_mesh("cuda", (2, 4))', "torchrun --nproc_per_node 4", []),
        ('with x: init_device_mesh("cuda", (2, 4))', "torchrun --nproc_per_node 4", []),
        ('x and init_device_mesh("cuda", (2, 4))', "torchrun --nproc_per_node 4", []),
        (
            'init(world_size=8)\n    init_device_mesh("cuda", (8,))',
            "torchrun --nproc_per_node 4",
            [],
        ),
    ],
)
def test_meshes(body: str, line: str, expected: list[str]) -> None:
    assert found(f"{line} train.py", MESHES.format(body)) == expected


def test_files_of_a_project_are_read_from_the_disk(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "train.py").write_text(PLAIN)
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts/a.sh"
    script.write_text("torchrun train.py --epochs 3\n")
    for text, expected in ((PLAIN, [REFUSED]), ("def f(:\n", []), ("\0", []), ("", [])):
        (tmp_path / "train.py").write_text(text)
        outcome = check([script], defaults(EVERYTHING))
        assert [each.rule for each in outcome.findings] == expected
