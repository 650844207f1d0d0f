"""One verification from its request to its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from fsdplint.verify import lifeline
from fsdplint.verify.evidence import Run, gather
from fsdplint.verify.judge import judge
from fsdplint.verify.launch import Elastic, Launcher
from fsdplint.verify.reference import compared
from fsdplint.verify.request import RELEASE, SCRATCH, Request
from fsdplint.verify.stage import stage
from fsdplint.verify.verdict import Verification
from fsdplint.verify.watch import watch


class VerifyError(Exception):
    """Nothing was run; the message is one sentence for the user."""


def verify(
    request: Request,
    directory: Path,
    *,
    overlay: Mapping[str, bytes] = MappingProxyType({}),
    launcher: Launcher = Elastic,
    tell: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Runs the request's script in a scratch copy of `directory` and judges what it did.

    Args:
        overlay: files that stand in for those of the directory, by their path in it.

    Raises:
        VerifyError: torch is missing or the script is.
        StageError: the directory cannot be copied.
    """
    if find_spec("torch") is None:
        raise VerifyError(
            "verify runs the script and needs PyTorch: pip install 'fsdplint[verify]'"
        )
    if not (directory / request.script).is_file():
        raise VerifyError(f"{request.script}: no such file under {directory}")

    def run(wanted: Request) -> Run:
        return observe(wanted, directory, overlay, launcher, tell)

    if not request.reference:
        return judge(request, run(request))
    sharded, verdict = compared(request, run)
    return judge(request, sharded, (verdict,))


def observe(
    request: Request,
    directory: Path,
    overlay: Mapping[str, bytes],
    launcher: Launcher,
    tell: Callable[[str], None],
) -> Run:
    """Runs the script and returns what its ranks left behind; nothing else stays."""
    with TemporaryDirectory(prefix="fsdplint-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        stage(directory, folder / SCRATCH)
        for path, content in overlay.items():
            (folder / SCRATCH / path).unlink(missing_ok=True)
            (folder / SCRATCH / path).write_bytes(content)
        request.write(folder)
        began = time.monotonic()
        with lifeline.held(folder):
            launched = launcher(request, folder)
            try:
                stall = watch(launched, folder, request.ranks, request.timeout, tell)
                if stall is None:
                    (folder / RELEASE).touch()
                    launched.wait()
            finally:
                launched.stop()
        return gather(folder, stall, launched.output(), time.monotonic() - began)
