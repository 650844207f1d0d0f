"""What is known of settings is what the installed releases do; `.ci/settings` runs this.

Measuring takes minutes, and its result changes with a table, a script or a pinned release only.
"""

from __future__ import annotations

import pytest
from measuring import expect_as_measured, installed

from fsdplint.knowledge import (
    accelerate_settings,
    accelerate_variables,
    lightning_settings,
    parallelism_settings,
    transformers_settings,
)


def test_accelerate() -> None:
    expect_as_measured("accelerate", installed("accelerate", accelerate_settings.settings()))


def test_accelerate_variables() -> None:
    own = installed("accelerate", accelerate_variables.variables())
    expect_as_measured("accelerate", own, "accelerate_variables")


def test_parallelism() -> None:
    own = installed("accelerate", parallelism_settings.settings())
    expect_as_measured("accelerate", own, "parallelism_settings")


@pytest.mark.parametrize(
    ("package", "module"),
    [("lightning", lightning_settings), ("transformers", transformers_settings)],
)
def test_others(package: str, module: object) -> None:
    every = module.settings()  # type: ignore[attr-defined]  # both have it
    expect_as_measured(package, installed(package, every))
