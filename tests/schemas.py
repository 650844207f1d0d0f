"""Compares documents with the JSON schemas of the documentation, and allows nothing besides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "schemas"
SCHEMAS = {path.name: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")}


def closed(schema: Any) -> Any:
    """Returns a schema that allows no members but those that it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    return made | {"additionalProperties": False} if schema.get("type") == "object" else made


REGISTRY: Registry[Any] = Registry().with_resources(
    (name, Resource.from_contents(closed(schema))) for name, schema in SCHEMAS.items()
)


def expect(document: Any, name: str) -> None:
    """Returns if the schema called ``name`` has all that is in ``document``.

    Raises:
        ValidationError: it has not.
    """
    schema = closed(SCHEMAS[f"{name}.schema.json"])
    Draft202012Validator(schema, registry=REGISTRY).validate(document)
