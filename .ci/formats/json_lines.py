"""JSON lines as the package of that name reads them."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import jsonlines
from finds import Break, Found, Refused

CANARIES: dict[str, Break] = {
    "a line that is cut": lambda text: text.replace('", "', '",\n"', 1),
    "a list of all": lambda text: "[" + ",\n".join(text.splitlines()) + "]",
    "a line that is no object": lambda text: f"1\n{text}",
}


def read(text: str, directory: Path) -> list[Found]:  # noqa: ARG001 - it is a reader's
    """The findings; a notebook's lines are its cells'."""
    try:
        with jsonlines.Reader(StringIO(text)) as reader:
            objects = list(reader.iter(type=dict))
    except jsonlines.Error as error:
        raise Refused(str(error)) from error
    return [Found(each["code"], each["path"], None) for each in objects]
