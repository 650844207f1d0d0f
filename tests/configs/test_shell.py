"""The reader of shell scripts: words, variables, compound commands, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsdplint.configs.shell import MANY, Many, NotUnderstoodError, Scope, Script, parse

BASH = shutil.which("bash")


def words(text: str) -> list[list[str | Many | None]]:
    """The words of each command, as they are known."""
    script = parse(text)
    return [[script.text_of(word, c) for word in c.words] for c in script.commands]


def last(text: str) -> list[str | Many | None]:
    return words(text)[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c\n", [["a", "b", "c"]]),
        ("a b", [["a", "b"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a b\\\n  c\n", [["a", "b", "c"]]),
        ("a b\\\r\n  c\r\nd\r\n", [["a", "b", "c"], ["d"]]),
        ("a b\\\nc", [["a", "bc"]]),
        ("a # b 'c\nd", [["a"], ["d"]]),
        ("a#b c", [["a#b", "c"]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a > log 2>&1 b", [["a", "b"]]),
        ("a &> log < in", [["a"]]),
        ("a >'my log' b", [["a", "b"]]),
        ("a <<EOF b\nit's $( unread\nEOF\nc", [["a", "b"], ["c"]]),
        ("a <<-'E O'\n\tx\n\tE O\nb", [["a"], ["b"]]),
        ("a <<< 'b' c", [["a", "c"]]),
        ("(a; b)", [["a"], ["b"]]),
        ("if a; then b; else c; fi; d", [["a"], ["b"], ["c"], ["d"]]),
        ("while a; do b; done", [["a"], ["b"]]),
        ("for x in 1 '2 3'; do a; done", [["a"]]),
        ("for ((i=0; i<3; i++)); do a; done", [["a"]]),
        ('case "$1" in\n x|y) a ;;\n *) b;;\nesac\nc', None),
        ("f() { a; }\nb", [["a"], ["b"]]),
        ("function f { a\n}\nb", [["a"], ["b"]]),
        ("[[ $x == a* && -n ${y} ]] && b", [["b"]]),
        ("((x > 1)) && b", [["b"]]),
        ("a=$(b 'c )' \"d )\") e", [[None, "e"]]),
        ("a=(b 'c d' # e\n f)\ng", [[MANY], ["g"]]),
        ("a $'b\\'c' d", [["a", None, "d"]]),
        ('a "$(b "c")" d', [["a", None, "d"]]),
        ("a $(cat <<EOF\nit's ) \"\nEOF\n) b\nc", [["a", None, "b"], ["c"]]),
        ("a \"$(cat <<-'E' | b\n )\n\tE\n)\" d", [["a", None, "d"]]),
        ("a $(b <<< 'c )') d", [["a", None, "d"]]),
        ("a $((1 << 2)) d", [["a", None, "d"]]),
        ("a $((1 << N)) d", [["a", None, "d"]]),
        ("echo {a,b} done", [["echo", "{a,b}", "done"]]),
        ("! a; time b", [["a"], ["b"]]),
    ],
)
def test_commands_and_words(text: str, expected: list[list[str | None]] | None) -> None:
    found = words(text)
    assert found == expected if expected is not None else found[-1] == ["c"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("N=8\nrun $N", "8"),
        ('N=8\nrun "${N}"', "8"),
        ("N='8'; run $N", "8"),
        ("export N=8\nrun $N", "8"),
        ("N=8\nM=$N\nrun $M", "8"),
        ("N=8\nrun $N\nN=4", "8"),
        ("N=4\nN=8\nrun $N", "8"),
        ("N=8\nfor i in 1 2; do run $N; done", "8"),
        ("N=8\nf() { run $N; }\nf", "8"),
        ('N=8\necho "N is $N"\nrun $N', "8"),
        # Nothing is known of these.
        ("run $N", None),
        ("run $1", None),
        ("run ${N:-8}", None),
        ("run $(nproc)", None),
        ("run $N\nN=8", None),
        ("if a; then N=8; fi\nrun $N", None),
        ("N=8\nif a; then N=4; fi\nrun $N", None),
        ('[ -n "$N" ] || N=8\nrun $N', None),
        ("a && N=8\nrun $N", None),
        ("(N=8)\nrun $N", None),
        ("N=8 run $N", None),
        ("N=8 true\nrun $N", None),
        ("N=8\nread N\nrun $N", None),
        ("N=8\nread -r M N\nrun $N", None),
        ("N=8\nunset N\nrun $N", None),
        ("N=8\nN+=1\nrun $N", None),
        ("N=8\n((N++))\nrun $N", None),
        ("N=8\nM=$((N += 1))\nrun $N", None),
        ("N=8\n: ${N:=4}\nrun $N", None),
        ("N=8\nsource env.sh\nrun $N", None),
        ("N=8\n. ./env.sh\nrun $N", None),
        ('N=8\neval "$X"\nrun $N', None),
        ("N=8\nfor N in 1 2; do run $N; done", None),
        ("f() { N=4; }\nN=8\nf\nrun $N", None),
        ("f() { run $N; }\nN=8\nf\nN=4\nf", None),
        ("f() { run $N; }\nN=8\nf", None),
        ("N=8\nlocal N=4\nrun $N", None),
        ("declare -i N=8\nrun $N", None),
        ("N=(8)\nrun $N", None),
        ("N='8 4'\nrun $N", None),
        ("N=\nrun $N", None),
        ("N=8 &\nrun $N", None),
        ("N=$N\nrun $N", None),
    ],
)
def test_a_variable_is_known_if_a_literal_certainly_sets_it(text: str, value: str | None) -> None:
    script = parse(text)
    (run,) = (command for command in script.commands if command.name == "run")
    assert script.text_of(run.words[-1], run) == value


@pytest.mark.parametrize("word", ["$@", '"$@"', '"${A[@]}"', "${A[*]}", "$*", "${A:+b}"])
def test_what_may_be_several_words_is_said_to_be(word: str) -> None:
    assert last(f"run {word}") == ["run", MANY]


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("run", Scope.ALWAYS),
        ("a; run; b", Scope.ALWAYS),
        ("if a; then b; fi\nrun", Scope.ALWAYS),
        ("a || exit 1\nrun", Scope.ALWAYS),
        ("if a; then run; fi", Scope.MAYBE),
        ("while a; do run; done", Scope.MAYBE),
        ("a && run", Scope.MAYBE),
        ("a ||\n run", Scope.MAYBE),
        ("a | run", Scope.MAYBE),
        ("run | a", Scope.MAYBE),
        ("run &", Scope.MAYBE),
        ("(run)", Scope.MAYBE),
        ("f() { run; }", Scope.IN_FUNCTION),
        ("f() { if a; then run; fi; }", Scope.IN_FUNCTION),
    ],
)
def test_how_a_command_is_reached(text: str, scope: Scope) -> None:
    assert [c.scope for c in parse(text).commands if c.name == "run"] == [scope]


def test_places_are_those_of_the_text() -> None:
    text = "A=1 torchrun \\\r\n  --nnodes='2' \"x y\" # c\r\n"
    (command,) = parse(text).commands
    shown = [text[word.start : word.end] for word in command.words]
    assert shown == ["A=1", "torchrun", "--nnodes='2'", '"x y"']
    assert [text[start:end] for start, end in parse(text).comments] == ["# c"]


def test_logical_lines_are_commands_with_their_comments() -> None:
    text = "# a\ntorchrun \\\n  x.py  # b\necho ${X#y}  # c\n\ncat <<E\n# no\nE\nls"
    found = [(text[each.start : each.end], each.code) for each in parse(text).lines]
    assert found == [
        ("# a\n", False),
        ("torchrun \\\n  x.py  # b\n", True),
        ("echo ${X#y}  # c\n", True),
        ("\n", False),
        ("cat <<E\n# no\nE\n", True),
        ("ls", True),
    ]
    comments = [text[start:end] for each in parse(text).lines for start, end in each.comments]
    assert comments == ["# a", "# b", "# c"]


@pytest.mark.parametrize(
    "text",
    [
        "echo 'a",
        'echo "a',
        "echo `a",
        "echo $(a",
        "echo ${a",
        "a=(b",
        "if a; then b",
        "fi",
        "done",
        "a)",
        "(a",
        "[[ a",
        "((a",
        "cat <<EOF\na\n",
        "a\0b",
        "$'a",
        "for 1 in",
        "case a of",
        "x = <y>",
        'echo "${a:-it\'s}"',
        "echo " + "$(" * 100_000,
        "(" * 100_000,
        "f() { " * 1000,
        '"$(' * 10_000,
    ],
)
def test_what_does_not_add_up_is_not_understood(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "echo " + "a" * 100_000,
        "echo " + "$A" * 50_000,
        "echo " + "a " * 50_000,
        "echo '" + "\\" * 100_000 + "'",
        'echo "' + "$(a)" * 25_000 + '"',
        "a=1\n" * 20_000,
        "echo \\\n" * 20_000,
        "A=$A$A\n" * 5_000 + "run $A",
        "echo $((" + "1+" * 50_000 + "1))",
        "echo " + "((" * 20 + "))" * 20,
        "\\" * 100_001,
        "<<a " * 2_000,
    ],
)
def test_long_texts_take_no_long_time(text: str) -> None:
    start = time.process_time()
    try:
        script = parse(text)
        for command in script.commands[-3:]:
            [script.text_of(word, command) for word in command.words]
    except NotUnderstoodError:
        pass
    assert time.process_time() - start < 5


ALPHABET = "ab=\"'`$(){}[];&|<>\\#! \t\n\r1-*"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=ALPHABET, max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        script = parse(text)
    except NotUnderstoodError:
        return
    assert "".join(text[each.start : each.end] for each in script.lines) == text
    for command in script.commands:
        assert [w.start for w in command.words] == sorted({w.start for w in command.words})
        assert all(word.start < word.end <= len(text) for word in command.words)


SCRIPT = """\
N=2; M="$N"
for i in 1 2; do :; done
torchrun --nproc_per_node=$N \\
  --nnodes "$M" 'train it.py' a\\ b # c
if true; then torchrun "--x=$N" y; fi
"""


@pytest.mark.skipif(BASH is None, reason="takes bash")
def test_words_are_those_of_bash() -> None:
    shown = 'torchrun() { printf "<%s>" "$@"; echo; }\n' + SCRIPT
    run = subprocess.run([str(BASH), "-c", shown], capture_output=True, text=True, check=True)
    script: Script = parse(SCRIPT)
    of_torchrun = (c for c in script.commands if c.name == "torchrun")
    lines = [[script.text_of(word, c) for word in c.words[1:]] for c in of_torchrun]
    assert run.stdout.splitlines() == ["".join(f"<{word}>" for word in line) for line in lines]
