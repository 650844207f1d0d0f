"""A rank from its first line to its end."""

from __future__ import annotations

import faulthandler
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from fsdplint.verify import stacks
from fsdplint.verify.events import FAILED, Ended, Frame
from fsdplint.verify.processes import follow_lifeline
from fsdplint.verify.rank import notebook
from fsdplint.verify.rank.recorder import Recorder
from fsdplint.verify.request import RELEASE, REQUEST_VARIABLE, SCRATCH, Request

if TYPE_CHECKING:
    from fsdplint.verify.rank.observer import Observer

_exit = os._exit


def live(began: float) -> NoReturn:
    """Run the request that the environment names; end the process without interpreter shutdown,
    where FSDP1 on the CPU may crash (torch 2.13)."""
    folder = Path(os.environ[REQUEST_VARIABLE])
    rank = int(os.environ["RANK"])
    _settle(folder, rank)
    request = Request.read(folder)
    recorder = Recorder(folder, folder / SCRATCH, rank, request)
    _end(recorder, _run(recorder, request, began))


def _end(recorder: Recorder, ended: Ended) -> NoReturn:
    recorder.write(ended)
    _flush()
    _await_release(recorder.folder)
    _exit(ended.how in FAILED)  # from which the launcher informs other nodes


def _take_exit_for_end(recorder: Recorder, observer: Observer) -> None:
    """Make ``os._exit(0)`` the script's end, as it is where nothing is to be cleaned up."""
    rank = os.getpid()

    def leave(status: int) -> NoReturn:
        if status == 0 and os.getpid() == rank and current_thread() is main_thread():
            now = time.monotonic()
            observer.finish()
            _end(recorder, Ended("script", observer.steps, time=now))
        _exit(status)

    os._exit = leave


def _settle(folder: Path, rank: int) -> None:
    """Send output to the records and stacks to another file, and end with the parent."""
    output = os.open(folder / f"{rank}.output", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    trace = (folder / f"{rank}.stacks").open("w")
    faulthandler.enable(trace)
    _keep_asking(partial(faulthandler.register, stacks.SIGNAL, trace))
    follow_lifeline(folder)
    (folder / f"{rank}.pid").write_text(str(os.getpid()))


def _keep_asking(register: Callable[..., None]) -> None:
    """Answer the parent's signal, also where a script or a library sets or restores what is done
    about it: the default is to die. A handler of the script's runs as well."""
    set_handler = signal.signal

    def keep(signalnum: Any, handler: Any) -> Any:
        if signalnum != stacks.SIGNAL:
            return set_handler(signalnum, handler)
        faulthandler.unregister(stacks.SIGNAL)  # it takes what is there for what it is chained to
        before = set_handler(signalnum, handler)
        register(chain=callable(handler))
        return before

    signal.signal = keep
    register()


def _run(recorder: Recorder, request: Request, began: float) -> Ended:
    """Run the script under the observer, and return how it ended."""
    from fsdplint.verify.rank.observer import Finished, Observer
    from fsdplint.verify.rank.shim import Unmappable

    os.chdir(recorder.root)
    observer = Observer(recorder, began)
    script = recorder.root / request.script
    sys.argv = [str(script), *request.arguments]
    sys.path[:] = [_copied(entry, Path(request.directory), recorder.root) for entry in sys.path]
    sys.path.insert(0, str(script.resolve().parent))  # as Python does where the script is a link
    how: str = "script"
    error: BaseException | None = None
    try:
        observer.start()
        _take_exit_for_end(recorder, observer)
        if script.suffix == notebook.SUFFIX:
            notebook.run(script)
        else:
            runpy.run_path(str(script), run_name="__main__")
    except Finished:
        how = "steps"
    except SystemExit as exit_:
        error = exit_ if exit_.code not in (None, 0) else None
        how = "exit" if error else "script"
    except Unmappable as refusal:
        how, error = "unmappable", refusal
    except BaseException as crash:  # whatever ends the script is to be reported
        how, error = "crash", crash
    now = time.monotonic()
    observer.finish()
    return replace(_ended(recorder, how, observer.steps, error), time=now)


def _copied(entry: str, directory: Path, root: Path) -> str:
    """Return a folder of ``sys.path`` as it is in the scratch copy, if it has been copied.

    ``PYTHONPATH`` and packages that are installed to be edited lead to the original.
    """
    path = Path(entry)
    if not entry or not path.is_absolute() or not path.is_relative_to(directory):
        return entry
    copy = root / path.relative_to(directory)
    return str(copy) if copy.is_dir() and not copy.is_symlink() else entry


def _ended(recorder: Recorder, how: str, steps: int, error: BaseException | None) -> Ended:
    if error is None:
        return Ended(how, steps)
    frames = tuple(_frames(recorder, error.__traceback__))
    text = "".join(_refusal(recorder, error) if how == "unmappable" else _formatted(error))
    text = text.replace(f"{recorder.root}{os.sep}", "")
    return Ended(how, steps, type(error).__name__, str(error), text, frames)


def _formatted(error: BaseException) -> list[str]:
    return traceback.format_exception(_without_ours(error))


def _refusal(recorder: Recorder, error: BaseException) -> list[str]:
    """Return the user's own lines that lead to what verify cannot run, and why it cannot."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if recorder.owns(frame.filename)]
    return ["Traceback (most recent call last):\n", *traceback.format_list(own), str(error)]


def _without_ours(error: BaseException) -> BaseException:
    """Remove the frames of fsdplint and runpy from the top of a traceback."""
    trace = error.__traceback__
    runners = (__file__, notebook.__file__, runpy.__file__)
    while trace is not None and trace.tb_frame.f_code.co_filename in runners:
        trace = trace.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename == "<frozen runpy>":
        trace = trace.tb_next
    return error.with_traceback(trace) if trace is not None else error


def _frames(recorder: Recorder, trace: TracebackType | None) -> list[Frame]:
    """Return the frames of a traceback, with the class of each method's receiver."""
    found: list[Frame] = []
    while trace is not None:
        code, names = trace.tb_frame.f_code, trace.tb_frame.f_locals
        receiver = names.get("self")
        found.append(
            Frame(
                recorder.line(code.co_filename, trace.tb_lineno, code.co_name),
                recorder.owns(code.co_filename),
                type(receiver).__name__ if receiver is not None else "",
                "FSDPModule" in {base.__name__ for base in type(receiver).__mro__},
            )
        )
        trace = trace.tb_next
    return found


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def _await_release(folder: Path) -> None:
    while folder.exists() and not (folder / RELEASE).exists():
        time.sleep(0.02)
