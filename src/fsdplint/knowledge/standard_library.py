"""What functions of Python's standard library do with a function or class that they are given.

Source: their documentation, Python 3.10 to 3.14.
"""

from __future__ import annotations

# They look at their first argument or set an attribute of it, and keep nothing that can call it.
ONLY_LOOK = frozenset(
    {
        *("callable", "hasattr", "isinstance", "issubclass", "repr", "setattr", "str"),
        *(
            f"inspect.{name}"
            for name in (
                *("isasyncgenfunction", "isclass", "iscoroutinefunction", "isfunction"),
                *("isgeneratorfunction", "ismethod", "signature"),
            )
        ),
        "asyncio.iscoroutinefunction",
    }
)
# They copy the name and the documentation of their first argument or of another one to a wrapper.
COPY_NAME = frozenset({"functools.update_wrapper", "functools.wraps"})

# True for type checkers, false in a program.
TYPE_CHECKING = "typing.TYPE_CHECKING"
