"""Which decorators may keep what they decorate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsdplint.engine.project.project import Project

IMPORTS = "import functools\nimport inspect\nfrom functools import wraps\nTABLE = {}\n"
NOTHING = {
    "sets an attribute": """
def requires(*, backends=()):
    known = [each for each in backends if each in TABLE]
    def decorate(function):
        function.parameters = list(inspect.signature(function).parameters)
        function.backends = known
        return function
    return decorate
""",
    "wraps": """
def logged(function):
    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        log(function.__name__)
        return function(self, *args, **kwargs)
    return wrapper
""",
    "wraps, with arguments": """
def logged(level):
    def decorate(function):
        @wraps(function)
        def wrapper(*args):
            with at(level):
                return function(*args)
        return wrapper
    return decorate
""",
    "adds to a text": """
def documented(*texts):
    def decorate(function):
        function.__doc__ = "".join(texts) + function.__doc__
        return function
    return decorate
""",
    "checks": """
def checked(cls):
    if not isinstance(cls, type) or cls is None:
        raise TypeError(f"{cls.__name__} is no class")
    return cls
""",
}
SOMETHING = {
    "a table": """
def register(function):
    TABLE[function.__name__] = function
    return function
""",
    "a table, with a name": """
def register(name):
    def decorate(function):
        TABLE[name] = function
        return function
    return decorate
""",
    "the wrapper": """
def register(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    TABLE.append(wrapper)
    return wrapper
""",
    "a call": """
def register(function):
    return add(function)
""",
    "a method of its own": """
def register(cls):
    cls.register()
    return cls
""",
    "an alias": """
def register(function):
    kept = function
    TABLE.append(kept)
    return function
""",
    "a method that is called like a function of the library": """
def register(function):
    TABLE.signature(function)
    return function
""",
    "a function that is called like a builtin": """
def callable(function):
    TABLE.append(function)
def register(function):
    callable(function)
    return function
""",
    "a method of something else": """
def register(name):
    if name is None:
        return TABLE.add
    def decorate(function):
        return function
    return decorate
""",
    "a method that is called like the function inside": """
def register(name):
    def decorate(function):
        return function
    return TABLE.decorate
""",
    "a lambda": """
def register(function):
    TABLE.append(lambda: function())
    return function
""",
    "another decorator": """
def register(function):
    @add
    def wrapper(*args):
        return function(*args)
    return wrapper
""",
    "a global": """
def register(function):
    global last
    def last():
        function()
    return function
""",
    "an attribute of something else": """
def register(function):
    setattr(TABLE, "last", function)
    return function
""",
    "a variable argument": """
def register(*functions):
    TABLE.extend(functions)
    return functions[0]
""",
}


@pytest.mark.parametrize("code", NOTHING.values(), ids=NOTHING.keys())
def test_a_decorator_that_keeps_nothing(code: str, tmp_path: Path) -> None:
    assert not keeps(tmp_path, code)


@pytest.mark.parametrize("code", SOMETHING.values(), ids=SOMETHING.keys())
def test_a_decorator_that_may_keep_something(code: str, tmp_path: Path) -> None:
    assert keeps(tmp_path, code)


@pytest.mark.parametrize(
    ("kind", "decorator", "kept"),
    [
        ("wraps, with arguments", "@logged(1)", False),
        ("wraps, with arguments", "@logged", True),
        ("wraps, with arguments", "@logged(1)\ndef other(): ...\n@logged", True),
        ("wraps", "@logged", False),
        ("wraps", "@logged.register", True),
    ],
)
def test_how_it_decorates(kind: str, decorator: str, kept: bool, tmp_path: Path) -> None:
    assert keeps(tmp_path, NOTHING[kind], decorator) is kept


def test_a_decorator_that_is_decorated_itself_may_keep_something(tmp_path: Path) -> None:
    code = NOTHING["wraps"].replace("def logged", "@functools.singledispatch\ndef logged")
    assert keeps(tmp_path, code)


def keeps(folder: Path, code: str, decorator: str = "") -> bool:
    """True if the last function of ``code`` may keep what it decorates."""
    name = re.findall(r"^def (\w+)", code, re.MULTILINE)[-1]
    decorator = decorator or (f"@{name}(1)" if "def decorate" in code else f"@{name}")
    text = f"{IMPORTS}{code}{decorator}\ndef shard(model): ...\n"
    (folder / "decorators.py").write_text(text)
    project = Project(folder, lambda path: path.read_text())
    unit = project.sketch(folder / "decorators.py")
    assert unit is not None
    return project.keeps(unit, name)
