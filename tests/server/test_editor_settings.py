"""What an editor's settings mean."""

from __future__ import annotations

import pytest

from fsdplint.server.analysis import Choices
from fsdplint.server.editor_settings import EditorSettings, EditorSettingsError, read


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, EditorSettings()),
        ({"fsdplint": {"preview": None, "other": 1}}, EditorSettings()),
        ({"preview": True}, EditorSettings(Choices(preview=True))),
        ({"fsdplint": {"pedantic": True}}, EditorSettings(Choices(pedantic=True))),
        ({"select": ["FSD3"]}, EditorSettings(Choices(select=("FSD3",)))),
        ({"ignore": ["FSD3"]}, EditorSettings(Choices(ignore=("FSD3",)))),
        ({"extendSelect": ["FSD3"]}, EditorSettings(Choices(extend_select=("FSD3",)))),
        ({"config": "own.toml"}, EditorSettings(Choices(config="own.toml"))),
        ({"run": "onSave", "codeLens": False}, EditorSettings(run="onSave", code_lens=False)),
        ({"inlayHints": True}, EditorSettings(inlay_hints=True)),
        ({"ignoreReason": " as\nmeant "}, EditorSettings(ignore_reason="as meant")),
    ],
)
def test_settings(given: object, expected: EditorSettings) -> None:
    assert read(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"run": "never"}, 'fsdplint.run: expected "onType" or "onSave"'),
        ({"preview": 1}, "fsdplint.preview: expected true or false"),
        ({"select": "FSD3"}, "fsdplint.select: expected a list of strings"),
        ({"config": 1}, "fsdplint.config: expected a string"),
    ],
)
def test_a_setting_of_another_type(given: object, message: str) -> None:
    with pytest.raises(EditorSettingsError) as raised:
        read(given)
    assert str(raised.value) == message
