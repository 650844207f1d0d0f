from __future__ import annotations

import pytest
from snippets import PATH, Snippet

from fsdplint.engine.frontend.lower import lower
from fsdplint.fixes.names import clash, effects, fresh, names_in


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("a = b.c", {"b.c"}, {"a"}),
        ("a.b, (c, *d) = e", {"e"}, {"a.b", "c", "d"}),
        ("a[i].b = c", {"a", "i", "c"}, set()),
        ("a.b[i] = c", {"a.b", "i", "c"}, {"a.b"}),
        ("a += b", {"a", "b"}, {"a"}),
        ("a.b.append(c)", {"a.b.append", "c"}, {"a.b"}),
        ("f(a, k=b, *c, **d)", {"f", "a", "b", "c", "d"}, set()),
        ("x = [y for y in z if y > w]", {"z", "w"}, {"x"}),
        ("x = lambda y=d: y + z", {"d", "z"}, {"x"}),
        ("for a in b: c(a)", {"b", "c"}, {"a"}),
        ("for a in b:\n    c = a.x\nelse:\n    a.y", {"b", "a.y"}, {"a", "c"}),
        ("with a as b, c: b.d", {"a", "c", "b.d"}, {"b"}),
        ("try: a\nexcept E as e: b", {"a", "E", "b"}, {"e"}),
        ("import a.b, c as d", set(), {"a", "d"}),
        ("from a import b, c as d", set(), {"b", "d"}),
        ("del a, b.c", set(), {"a", "b.c"}),
        ("def f(a, b=c): a.x; d = e; return d", {"c", "e"}, {"f"}),
        ("def f(): seen.append(1)", {"seen.append"}, {"f", "seen"}),
        ("def f():\n    global g\n    g = h", {"h"}, {"f", "g"}),
        ("class A(B):\n    x = y\n    z = x", {"B", "y"}, {"A"}),
        ("(a := b)", {"b"}, {"a"}),
        ("match a:\n    case [b, *c] if d: e", {"a", "d", "e"}, {"b", "c"}),
        ("f'{a.b} {c!r}'", {"a.b", "c"}, set()),
    ],
)
def test_names_of_a_statement(text: str, reads: set[str], writes: set[str]) -> None:
    (statement,) = lower(text + "\n", PATH).body
    names = names_in(statement)
    assert (names.reads, names.writes) == (reads, writes)


@pytest.mark.parametrize(
    ("names", "others", "found"),
    [
        (["a"], ["a"], "a"),
        (["a.b"], ["a"], "a.b"),
        (["a"], ["a.b"], "a"),
        (["a.b"], ["a.c"], None),
        (["ab"], ["a"], None),
        (["b", "a"], ["b", "a"], "a"),
    ],
)
def test_a_path_clashes_with_what_it_begins(
    names: list[str], others: list[str], found: str | None
) -> None:
    assert clash(names, others) == found


def test_the_effects_of_a_call_are_those_of_the_functions_it_reaches() -> None:
    at = Snippet(
        """\
class T:
    def run(self):
        <c:self.setup(a):c>

    def setup(this, x):
        this.y = x
        helper(this.z)
        this.setup(x)

def helper(v):
    global counter
    counter = v + step
"""
    )
    names = effects(at.code, at["c"])
    assert names.writes == {"self.y", "counter"}
    assert names.reads == {"self.setup", "a", "self.z", "helper", "step"}


@pytest.mark.parametrize(
    ("marked", "reads"),
    [
        ("def f(self): <c:self.g():c>\n", {"self.g", "self"}),
        ("def f(s): <c:s.m.g():c>\n", {"s.m.g", "s.m"}),
        ("<c:m.parameters():c>\n", {"m.parameters"}),
        ("def f(self): <c:super().g():c>\n", {"super", "self"}),
    ],
)
def test_a_method_that_is_not_found_may_read_all_of_its_receiver(
    marked: str, reads: set[str]
) -> None:
    at = Snippet(marked)
    assert effects(at.code, at["c"]).reads == reads


@pytest.mark.parametrize(
    ("marked", "name"),
    [
        ("<u:x:u>\n", "block"),
        ("block\n<u:x:u>\n", "block_"),
        ("def f(block):\n    block_ = 1\n    <u:x:u>\n", "block__"),
        ("block = 1\ndef f():\n    <u:x:u>\n", "block"),
        ("def f():\n    block = 1\n<u:x:u>\n", "block"),
        ("def f():\n    g(block)\n<u:x:u>\n", "block_"),
    ],
)
def test_a_fresh_name_is_new_where_it_is_used(marked: str, name: str) -> None:
    at = Snippet(marked)
    assert fresh(at.code, at["u"], "block") == name
