"""What is known of verl's settings is what the release does that `.ci/settings` installs."""

from __future__ import annotations

from measuring import expect_as_measured, installed

from fsdplint.knowledge.verl_settings import settings


def test_the_table_is_what_the_installed_release_does() -> None:
    newest = installed("verl", settings())
    assert newest is settings()[-1]
    expect_as_measured("verl", newest)
