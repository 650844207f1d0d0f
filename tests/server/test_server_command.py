"""The command `server` itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
from editor import COMMAND

MISSING = (
    "fsdplint: the language server requires pygls; install it with: "
    "pip install 'fsdplint[server]'\n"
)


@pytest.mark.parametrize("module", ["pygls", "lsprotocol"])
def test_without_pygls_it_says_what_to_install(module: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from fsdplint.cli.main import main; main()"
    command = [sys.executable, "-c", code, "server"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", MISSING)


def test_a_check_imports_nothing_of_it() -> None:
    code = (
        "import sys, fsdplint.cli.main as cli\n"
        "try: cli.main(['check', '--isolated', '--exit-zero', sys.argv[1]])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pygls', 'lsprotocol', 'asyncio')])\n"
    )
    command = [sys.executable, "-c", code, __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "sent", [b"", b"Content-Length: 2\r\n\r\n{}", b"Content-Length: x\r\n\r\n"]
)
def test_no_input_gives_a_traceback(sent: bytes) -> None:
    done = subprocess.run(COMMAND, input=sent, capture_output=True, check=False, timeout=300)
    assert b"Traceback" not in done.stderr + done.stdout
