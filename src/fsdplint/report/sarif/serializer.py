"""Objects of sarif-om to JSON.

Its own serializer leaves out every value that equals a default, levels among them, which readers
then take from the rule instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# What is written even where it is what the schema takes it to be.
_EXPLICIT = frozenset({"level", "kind"})


def serialize(log: object) -> str:
    """The JSON document of ``log``, ending with a line end; the same for equal logs."""
    return json.dumps(plain(log), separators=(",", ":")) + "\n"


def plain(value: Any) -> Any:
    """``value`` as JSON's own types, its objects without members that say nothing."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    fields = getattr(value, "__attrs_attrs__", None)
    return value if fields is None else _members(value, fields)


def _members(value: object, fields: tuple[Any, ...]) -> dict[str, Any]:
    members = {}
    for field in fields:
        name, member = field.metadata["schema_property_name"], getattr(value, field.name)
        if member is None or (member == field.default and name not in _EXPLICIT):
            continue
        members[name] = plain(member)
    return members
