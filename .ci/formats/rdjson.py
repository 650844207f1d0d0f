"""The Reviewdog Diagnostic Format, read as Protocol Buffers' JSON, as reviewdog does.

Source: the fields of ``proto/rdf/reviewdog.proto`` in https://github.com/reviewdog/reviewdog.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from finds import FAILED, Break, Found, Refused, expect_line
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

SEVERITIES = ("UNKNOWN_SEVERITY", "ERROR", "WARNING", "INFO")
# Of each message the fields by number and type; a star is for several.
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "DiagnosticResult": {
        "diagnostics": (1, "Diagnostic*"),
        "source": (2, "Source"),
        "severity": (3, "Severity"),
    },
    "Diagnostic": {
        "message": (1, "string"),
        "location": (2, "Location"),
        "severity": (3, "Severity"),
        "source": (4, "Source"),
        "code": (5, "Code"),
        "suggestions": (6, "Suggestion*"),
        "original_output": (7, "string"),
    },
    "Location": {"path": (2, "string"), "range": (3, "Range")},
    "Range": {"start": (1, "Position"), "end": (2, "Position")},
    "Position": {"line": (1, "int32"), "column": (2, "int32")},
    "Suggestion": {"range": (1, "Range"), "text": (2, "string")},
    "Source": {"name": (1, "string"), "url": (2, "string")},
    "Code": {"value": (1, "string"), "url": (2, "string")},
}
CANARIES: dict[str, Break] = {
    "a field that there is not": lambda text: text.replace('"location"', '"place"', 1),
    "a severity that there is not": lambda text: text.replace('"ERROR"', '"FATAL"', 1),
    "a line that is none": lambda text: text.replace('"line": ', '"line": 0.', 1),
    "a line that there is not": lambda text: text.replace('"line": ', '"line": 99', 1),
    "a column beyond the line": lambda text: text.replace('"column": ', '"column": 9', 1),
    "a list of all": lambda text: f"[{text}]",
}
Field = descriptor_pb2.FieldDescriptorProto


class Suggestion(NamedTuple):
    """Bytes for what lies between two offsets of a file."""

    path: str
    start: int
    end: int
    text: bytes


def read(text: str, directory: Path) -> list[Found]:
    """The diagnostics, whose suggestions can all be made."""
    diagnostics = _parse(text).diagnostics
    for diagnostic in diagnostics:
        _suggestions(diagnostic, directory)
    return [_found(diagnostic, directory) for diagnostic in diagnostics]


def suggestions(text: str, directory: Path) -> list[Suggestion]:
    """All that is suggested."""
    return [each for item in _parse(text).diagnostics for each in _suggestions(item, directory)]


def _parse(text: str) -> Any:
    result = RESULT()
    try:
        return json_format.Parse(text, result)
    except json_format.ParseError as error:
        raise Refused(str(error)) from error


def _found(diagnostic: Any, directory: Path) -> Found:
    path = diagnostic.location.path
    if not diagnostic.message:
        raise Refused("no message")
    if not diagnostic.code.value:
        return Found(FAILED, path, None)
    _offsets(diagnostic.location.range, path, directory)
    return Found(diagnostic.code.value, path, diagnostic.location.range.start.line)


def _suggestions(diagnostic: Any, directory: Path) -> list[Suggestion]:
    path = diagnostic.location.path
    return [
        Suggestion(path, *_offsets(each.range, path, directory), each.text.encode())
        for each in diagnostic.suggestions
    ]


def _offsets(range_: Any, path: str, directory: Path) -> tuple[int, int]:
    """Where a range is in the bytes of its file."""
    start, end = (_offset(place, path, directory) for place in (range_.start, range_.end))
    if start > end:
        raise Refused(f"it ends before it starts: {range_}")
    return start, end


def _offset(place: Any, path: str, directory: Path) -> int:
    line, column = int(place.line), int(place.column)
    expect_line(directory, path, line)
    lines = (directory / path).read_bytes().split(b"\n")
    if not 1 <= column <= len(lines[line - 1]) + 1:
        raise Refused(f"no column {column} on line {line} of {path}")
    return sum(len(line) + 1 for line in lines[: line - 1]) + column - 1


def _result() -> Any:
    """The class of a whole report."""
    file = descriptor_pb2.FileDescriptorProto(
        name="rdf.proto", package="reviewdog.rdf", syntax="proto3"
    )
    severity = file.enum_type.add(name="Severity")
    for number, name in enumerate(SEVERITIES):
        severity.value.add(name=name, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, type_) in fields.items():
            _add(message, field, number, type_)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("reviewdog.rdf.DiagnosticResult")
    return message_factory.GetMessageClass(found)


def _add(message: Any, name: str, number: int, type_: str) -> None:
    field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
    if type_.endswith("*"):
        field.label = Field.LABEL_REPEATED
    plain = {"string": Field.TYPE_STRING, "int32": Field.TYPE_INT32}
    if type_ in plain:
        field.type = plain[type_]
        return
    field.type = Field.TYPE_ENUM if type_ == "Severity" else Field.TYPE_MESSAGE
    field.type_name = f".reviewdog.rdf.{type_.removesuffix('*')}"


RESULT = _result()
