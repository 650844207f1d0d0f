"""Standard output and error: colour, width, safe text, reports, and progress of long work."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

_PATIENCE = 1.0  # seconds before work counts as long
_PIPED_WIDTH = 100
_NARROWEST, _WIDEST = 40, 120
_WITH_LINKS = {
    "TERM_PROGRAM": ("Hyper", "WezTerm", "ghostty", "iTerm.app", "vscode"),
    "TERM": ("alacritty", "xterm-ghostty", "xterm-kitty"),
}
_FORCING = ("FORCE_COLOR", "CLICOLOR_FORCE")
_TERMINALS = ("DOMTERM", "KONSOLE_VERSION", "VTE_VERSION", "WT_SESSION")
"""Terminals that show hyperlinks: by values of common variables, and by unique variables."""
COMMAND = re.compile(r"#(?=#\w*\[)")
"""Matches what CI runners take for a command, anywhere in a line."""


_COLOURS = {"auto": None, "always": True, "never": False}


def _set_colour(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.color = _COLOURS[value]


color_option = click.option(
    "--color",
    type=click.Choice(tuple(_COLOURS)),
    callback=_set_colour,
    expose_value=False,
    help="Color the output. The default is auto: on a terminal, unless NO_COLOR is set, or if "
    "FORCE_COLOR or CLICOLOR_FORCE is.",
)


def wants_colour(stream: TextIO | None) -> bool:
    """Return whether to colour what goes to ``stream``, which is None if it was closed."""
    chosen = _chosen_colour()
    if chosen is not None:
        return chosen
    if os.environ.get("NO_COLOR"):
        return False
    forced = any(os.environ.get(name, "") not in ("", "0") for name in _FORCING)
    return forced or (stream is not None and stream.isatty())


def _chosen_colour() -> bool | None:
    """Return what --color says, None for auto."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.color


def wants_links(stream: TextIO | None) -> bool:
    """Return whether the terminal behind ``stream`` shows hyperlinks (OSC 8).

    FORCE_HYPERLINK decides if it is set. Terminals that do not say what they are get none.
    """
    forced = os.environ.get("FORCE_HYPERLINK")
    if forced is not None:
        return forced not in ("", "0")
    if stream is None or not stream.isatty() or os.environ.get("NO_COLOR"):
        return False
    if _chosen_colour() is False:
        return False
    return any(os.environ.get(name, "") in values for name, values in _WITH_LINKS.items()) or any(
        os.environ.get(name) for name in _TERMINALS
    )


def columns(stream: TextIO | None) -> int:
    """Return how many columns of ``stream`` a text may fill."""
    on_terminal = stream is not None and stream.isatty()
    fallback = 80 if on_terminal else _PIPED_WIDTH
    found = shutil.get_terminal_size((fallback, 24)).columns
    return max(_NARROWEST, min(found, _WIDEST))


def printable(text: str, kept: str = "") -> str:
    """Return ``text`` without anything that a terminal, or a runner that keeps a log, would obey.

    Args:
        kept: control characters that may stay, such as line ends.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)
    return COMMAND.sub(r"\\x23", text) if "##" in text else text


def shown_path(path: str) -> str:
    """Return ``path`` safe to print at the start of a line, where GitHub looks for commands."""
    text = printable(path)
    return f"./{text}" if text.lstrip().startswith("::") else text


def show(text: str, color: bool = False, aside: bool = False) -> None:
    """Print ``text`` as it is, on standard error if it goes aside."""
    click.echo(text, nl=False, err=aside, color=color)


def deliver(text: str, output_file: str | None, color: bool = False, aside: bool = False) -> None:
    """Print a report, or write it to a file.

    Raises:
        click.ClickException: the file cannot be written.
    """
    if output_file is None:
        show(text, color, aside)
        return
    from fsdplint.files import writing
    from fsdplint.files.file import absolute
    from fsdplint.files.links import DECLINED, leaves

    if leaves(absolute(output_file)):
        raise click.ClickException(f"{output_file}: {DECLINED.format('it')}")
    data = text.encode("utf-8", "backslashreplace")
    file = Path(output_file)
    try:
        if file.exists() and not file.is_file():  # a pipe or a device, which nothing may replace
            file.write_bytes(data)
        else:
            writing.replace(file.resolve(), data)
    except OSError as error:
        raise click.ClickException(f"{output_file}: {error.strerror}") from error


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show ``message`` once the body has taken a second, if standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    shown = threading.Event()

    def show() -> None:
        shown.set()
        print(message, end="", file=sys.stderr, flush=True)

    timer = threading.Timer(_PATIENCE, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if shown.is_set():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Provide a function that shows a line instead of the last one, on a terminal."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield lambda _: None
        return
    began, last = time.monotonic(), ""

    def show(text: str) -> None:
        nonlocal last
        line = f"fsdplint: {text} ({time.monotonic() - began:.0f} s)"
        if line != last:
            last = line
            room = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:room]}", end="", file=stream, flush=True)

    try:
        yield show
    finally:
        if last:
            print("\r\x1b[K", end="", file=stream, flush=True)
