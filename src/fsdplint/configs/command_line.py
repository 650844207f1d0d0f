"""The options of a Python file that parses its command line by argparse, if all are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fsdplint.configs.launched_code import LaunchedCode
from fsdplint.engine import ir
from fsdplint.knowledge.command_lines import ADD, ASKS, HELP, LITERAL, OPENS, PARSE, PARSER, TAKES

_PARSER = re.compile(rf"\b{PARSER.rpartition('.')[2]}\(")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line of a file.

    Attributes:
        options: as they are written, with the hyphens.
        abbreviates: whether the beginning of an option is enough.
    """

    options: frozenset[str]
    abbreviates: bool

    def takes(self, option: str) -> bool:
        """Return whether argparse knows an option, or may take it for the beginning of one."""
        if option in self.options:
            return True
        return self.abbreviates and any(each.startswith(option) for each in self.options)


def may_refuse(text: str, options: Iterable[str]) -> bool:
    """Return whether a file may be known to refuse one of these options, without parsing it."""
    if len(_PARSER.findall(text)) != 1 or any(word in text for word in OPENS):
        return False
    return any(f'"{option}"' not in text and f"'{option}'" not in text for option in options)


def command_line(code: LaunchedCode) -> CommandLine | None:
    """Return the command line that a file certainly parses, None if not all of it is known."""
    every = [node for node in code.nodes if isinstance(node, ir.Call)]
    made = [call for call in every if ir.last_name(call.func) == PARSER.rpartition(".")[2]]
    if any(word in code.tree.text for word in OPENS) or len(made) != 1:
        return None
    if code.name_of(made[0].func) != PARSER:
        return None
    name, keywords = _assigned_name(code, made[0]), _literal_keywords(made[0])
    if not name or keywords is None or not keywords.keys() <= TAKES:
        return None
    uses = list(_uses(code, name))
    calls = [call for call in every if _receiver(call) == name]
    if len(uses) != len(calls) or not {ir.last_name(call.func) for call in calls} <= ASKS:
        return None  # other code may add options
    parsed = [call for call in code.calls if _receiver(call) == name and _is(call, PARSE)]
    given = [_options(call) for call in calls if _is(call, ADD)]
    if len([c for c in calls if _is(c, PARSE)]) != 1 or not parsed or parsed[0].args:
        return None
    if any(each is None for each in given):
        return None
    names = {option for each in given for option in each or () if option.startswith("-")}
    own = HELP if keywords.get("add_help", True) else frozenset[str]()
    return CommandLine(frozenset(names) | own, keywords.get("allow_abbrev", True) is not False)


def _is(call: ir.Call, method: str) -> bool:
    return ir.last_name(call.func) == method


def _receiver(call: ir.Call) -> str:
    function = call.func
    name = function.value if isinstance(function, ir.Attribute) else None
    return name.id if isinstance(name, ir.Name) else ""


def _assigned_name(code: LaunchedCode, made: ir.Call) -> str:
    """Return the only variable of the file that a parser is assigned to, "" if there is none."""
    assigns = [node for node in code.nodes if isinstance(node, ir.Assign)]
    own = [node for node in assigns if node.value is made and len(node.targets) == 1]
    target = own[0].targets[0] if own else None
    if not isinstance(target, ir.Name):
        return ""
    same = [
        each
        for node in assigns
        for each in node.targets
        if isinstance(each, ir.Name) and each.id == target.id
    ]
    return target.id if len(same) == 1 else ""


def _uses(code: LaunchedCode, name: str) -> Iterator[ir.Node]:
    """Yield each mention of a variable but for its assignment."""
    for node in code.nodes:
        if isinstance(node, ir.Name) and node.id == name:
            statement = code.tree.statement(node)
            if not (isinstance(statement, ir.Assign) and node in statement.targets):
                yield node


def _literal_keywords(call: ir.Call) -> dict[str, object] | None:
    """Return the arguments of a call by name, None if one has no name or is no literal."""
    found: dict[str, object] = {}
    for argument in call.args:
        if argument.star or argument.keyword is None:
            return None
        value = argument.value
        found[argument.keyword] = value.value if isinstance(value, ir.Constant) else value
    return found


def _options(call: ir.Call) -> list[str] | None:
    """Return the names in a call of `add_argument`, None if one of them is unknown."""
    found: list[str] = []
    for argument in call.args:
        value = argument.value
        if argument.star:
            return None
        if argument.keyword is None:
            if not isinstance(value, ir.Constant) or not isinstance(value.value, str):
                return None
            found.append(value.value)
        elif argument.keyword in LITERAL:
            # Other actions have options of their own, and the rest of a line may be for any.
            known = value.value if isinstance(value, ir.Constant) else ""
            if not isinstance(known, int) and known not in LITERAL[argument.keyword]:
                return None
    return found
