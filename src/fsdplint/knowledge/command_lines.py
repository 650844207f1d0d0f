"""How argparse reads a command line. Source: Python 3.10 to 3.14, `argparse`."""

from __future__ import annotations

from collections.abc import Mapping

PARSER = "argparse.ArgumentParser"
ADD = "add_argument"
PARSE = "parse_args"
# Methods of a parser that add no options but by `ADD`.
ASKS = frozenset(
    {ADD, PARSE, "error", "exit", "format_help", "format_usage", "get_default", "print_help"}
    | {"print_usage", "set_defaults"}
)
# Names that a file has whose options are not all in calls of `ADD` of one parser.
OPENS = ("add_argument_group", "add_subparsers", "argv", "parse_known_args", "parents=")
# Its arguments that change no option, or how much of one is enough.
TAKES = frozenset(
    {"add_help", "allow_abbrev", "description", "epilog", "formatter_class", "prog", "usage"}
)
# Values of arguments of `ADD` that neither add options nor take those of others.
LITERAL: Mapping[str, frozenset[str]] = {
    "action": frozenset(
        {"append", "append_const", "count", "extend", "store", "store_const", "store_false"}
        | {"store_true"}
    ),
    "nargs": frozenset("?*+"),
}
HELP = frozenset({"-h", "--help"})
