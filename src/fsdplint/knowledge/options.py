"""How programs take options: parsers by the functions and methods that read the command line."""

from __future__ import annotations

# Methods that read the options which `add_argument` and the like declared.
PARSES = frozenset({"parse_args", "parse_known_args", "parse_args_into_dataclasses"})

# Functions and classes whose options are the fields of dataclasses: where they take them.
FROM_DATACLASSES: dict[str, tuple[int, str]] = {
    "draccus.parse": (0, "config_class"),
    "pyrallis.parse": (0, "config_class"),
    "simple_parsing.parse": (0, "config_class"),
    "transformers.HfArgumentParser": (0, "dataclass_types"),
    "transformers.hf_argparser.HfArgumentParser": (0, "dataclass_types"),
    "tyro.cli": (0, "f"),
}

# Functions that run the function they are given, with options for its parameters.
RUNS_FUNCTION: dict[str, str] = {
    "absl.app.run": "main",
    "fire.Fire": "component",
    "typer.run": "function",
    "tyro.cli": "f",
}

# Decorators that declare an option of the function below them.
DECLARES = frozenset({"click.option", "rich_click.option"})
FLAGS = "absl.flags"
DEFINES = f"{FLAGS}.DEFINE_integer"

CALLS = frozenset({*FROM_DATACLASSES, *DECLARES, DEFINES, *RUNS_FUNCTION})
METHODS = frozenset({"add_argument", *PARSES})
