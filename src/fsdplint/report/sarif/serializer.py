"""Objects of sarif-om to JSON.

Its own serializer leaves out every value that equals a default, levels among them, which readers
then take from the rule instead.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

# What is written even where it is what the schema takes it to be.
_EXPLICIT = frozenset({"level", "kind"})


def serialize(log: object) -> str:
    """The JSON document of ``log``, ending with a line end; the same for equal logs."""
    members = _members(log)
    # What tells a reader the format stands first.
    ordered = {name: members.pop(name) for name in ("$schema", "version")} | members
    return json.dumps(ordered, separators=(",", ":"), default=_members) + "\n"


def _members(value: Any) -> dict[str, Any]:
    """The members of an object of sarif-om that say something."""
    members = {}
    type_: Any = type(value)
    for attribute, name, default in _fields(type_):
        member = getattr(value, attribute)
        if member is not None and member != default:
            members[name] = member
    return members


@cache
def _fields(type_: Any) -> list[tuple[str, str, object]]:
    """The attributes of a class, their names in the schema, and the values to leave out."""
    fields = []
    for field in type_.__attrs_attrs__:
        name = field.metadata["schema_property_name"]
        factory = getattr(field.default, "factory", None)
        default = field.default if factory is None else factory()
        fields.append((field.name, name, None if name in _EXPLICIT else default))
    return fields
