"""Shell scripts as commands whose words know their place in the text. Nothing is executed.

The reader knows as much of Bash as scripts that launch training use: quotes, expansions, comments,
here-documents and compound commands. Syntax that it does not know makes a word unknown, or the
whole script not understood.
"""

from __future__ import annotations

from fsdplint.configs.shell.grammar import Command, Parser, Scope, assignment
from fsdplint.configs.shell.variables import Script, Write, with_variables
from fsdplint.configs.shell.words import MANY, Many, NotUnderstoodError, Reader, Variable, Word

__all__ = (
    "MANY",
    "Command",
    "Many",
    "NotUnderstoodError",
    "Scope",
    "Script",
    "Variable",
    "Word",
    "Write",
    "assignment",
    "parse",
)


def parse(text: str, *, in_one_shell: bool = True) -> Script:
    """Return a text as a script.

    Args:
        in_one_shell: whether its commands run one after another in one shell; otherwise a variable
            that one of them sets is unknown in the others.

    Raises:
        NotUnderstoodError: it is not a script, or not one that this reader knows.
    """
    return with_variables(text, Parser(Reader(text), in_one_shell).parse())
