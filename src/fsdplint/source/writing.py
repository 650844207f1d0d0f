"""Replacing a file on disk by its new content, wholly or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from fsdplint.source.decoding import SourceError
from fsdplint.source.file import SourceFile


def write(source: SourceFile, edited: SourceFile) -> None:
    """Put ``edited`` in the place of ``source``, as it was read, on disk.

    The file keeps its mode; what a symbolic link leads to is replaced, and the link stays.

    Raises:
        SourceError: the file has changed since it was read, or cannot be written.
    """
    target = Path(os.path.realpath(source.path))
    try:
        if target.read_bytes() != source.encode():
            raise SourceError(source.path, "has changed since it was read; not written")
        replace(target, edited.encode())
    except OSError as error:
        raise SourceError(source.path, f"cannot be written: {error.strerror}") from error


def replace(target: Path, data: bytes) -> None:
    """Make ``data`` the content of ``target`` in one step.

    Raises:
        OSError: it cannot be done, and ``target`` is as it was.
    """
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if target.exists():
            Path(name).chmod(target.stat().st_mode)
        else:
            Path(name).chmod(0o666 & ~_umask())
        os.replace(name, target)  # noqa: PTH105 - reads better with a name that is a str
    except BaseException:  # an interrupt too leaves no half a file behind; it goes on from here
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
