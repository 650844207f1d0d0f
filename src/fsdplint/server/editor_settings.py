"""The settings of an editor, under the key `fsdplint`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fsdplint.server.analysis import Choices

REASON = "add a reason"
_SECTION = "fsdplint"


class EditorSettingsError(ValueError):
    """Settings that cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class EditorSettings:
    """What an editor can set.

    Attributes:
        run: when buffers are checked: "onType" or "onSave".
        ignore_reason: what the comments say that suppress a finding.
    """

    choices: Choices = field(default_factory=Choices)
    run: str = "onType"
    ignore_reason: str = REASON
    code_lens: bool = True
    inlay_hints: bool = False


def read(value: object) -> EditorSettings:
    """Return the settings in ``value``, which may be nested under our key.

    Raises:
        EditorSettingsError: a value is not one that its key takes. Unknown keys are ignored, since
            editors send their own.
    """
    found = value if isinstance(value, Mapping) else {}
    own = found.get(_SECTION, found)
    table = _Table(own if isinstance(own, Mapping) else {})
    choices = Choices(
        config=table.text("config", "") or None,
        preview=table.flag("preview", False),
        pedantic=table.flag("pedantic", False),
        select=table.words("select"),
        ignore=table.words("ignore"),
        extend_select=table.words("extendSelect"),
    )
    run = table.text("run", "onType")
    if run not in ("onType", "onSave"):
        raise EditorSettingsError(f'{_SECTION}.run: expected "onType" or "onSave"')
    reason = " ".join(table.text("ignoreReason", REASON).split())
    return EditorSettings(
        choices,
        run,
        reason or REASON,
        table.flag("codeLens", True),
        table.flag("inlayHints", False),
    )


class _Table:
    """Values of the types that keys take; null stands for the default."""

    def __init__(self, table: Mapping[str, object]) -> None:
        self.table = table

    def text(self, key: str, default: str) -> str:
        value = self.table.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise EditorSettingsError(f"{_SECTION}.{key}: expected a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.table.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise EditorSettingsError(f"{_SECTION}.{key}: expected true or false")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        value = self.table.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise EditorSettingsError(f"{_SECTION}.{key}: expected a list of strings")
        return tuple(value)
