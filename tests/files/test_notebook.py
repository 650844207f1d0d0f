from __future__ import annotations

import json

import pytest

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile, from_bytes
from fsdplint.files.notebook import mask


def notebook(*cells: object, indent: int = 1, **metadata: object) -> bytes:
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": c}
        if not isinstance(c, dict)
        else c
        for c in cells
    ]
    document = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(document, indent=indent, ensure_ascii=False) + "\n").encode()


MARKDOWN = {"cell_type": "markdown", "metadata": {}, "source": ["# caf\u00e9\n", "{not: code}"]}


def read(data: bytes) -> SourceFile:
    return from_bytes(data, "a.ipynb")


def test_code_cells_are_joined_and_located() -> None:
    source = read(notebook(["a = 1\n", "b = 2"], MARKDOWN, [], "c = 3\n", ["d"]))
    assert source.text == "a = 1\nb = 2\n\nc = 3\nd\n", "an empty cell is an empty line"
    assert [source.cell(line) for line in (1, 2, 4, 5)] == [(1, 1), (1, 2), (4, 1), (5, 1)]


def test_a_line_is_named_by_its_cell() -> None:
    source = read(notebook(["a = 1\n", "b = 2"], MARKDOWN, "c = 3\n"))
    assert [source.line_name(n) for n in (2, 3)] == ["line 2 of cell 1", "line 1 of cell 3"]
    assert from_bytes(b"a = 1\n", "a.py").line_name(1) == "line 1"


def test_unedited_text_gives_the_same_bytes() -> None:
    data = notebook(["%time x\n", "b"], MARKDOWN, "c\u00e9\n", indent=3)
    source = read(data)
    assert source.encode(source.text) == data


def test_only_the_edited_strings_change() -> None:
    data = notebook(["a = 1\n", "b = 2"], MARKDOWN, ["!ls\n", "c = 3\n", "d"], "e")
    source = read(data)
    assert source.encode(source.text.replace("c = 3", "c = 4")) == data.replace(b"c = 3", b"c = 4")
    assert source.encode(source.text.replace("\ne\n", "\nf\n")) == data.replace(b'"e"', b'"f"')


def test_a_line_moved_between_cells_leaves_the_cells_apart() -> None:
    source = read(notebook(["a\n", "m"], ["%pip install x\n", "b\n", "c"], ["d"]))
    assert source.text == "a\nm\n#pip install x\nb\nc\nd\n"
    moved = json.loads(source.encode("a\n#pip install x\nb\nm\nc\nd\n"))
    sources = [cell["source"] for cell in moved["cells"]]
    assert sources == [["a"], ["%pip install x\n", "b\n", "m\n", "c"], ["d"]]


def test_written_form_of_escapes_is_kept() -> None:
    data = notebook(["s = '\u00e9'\n", "b"]).replace("é".encode(), b"\\u00e9")
    edited = read(data).encode("s = '\u00e9'\nb = '\u00e8'\n")
    assert edited == data.replace(b'"b"', b"\"b = '\\u00e8'\"")


@pytest.mark.parametrize(
    ("cell", "masked"),
    [
        ("%matplotlib inline\nx", "#matplotlib inline\nx"),
        ("!pip install 'x\ny = '''\n!no\n'''", "#pip install 'x\ny = '''\n!no\n'''"),
        ("!a \\\n  b\nc", "#a #\n# b\nc"),
        ("if x:\n    !ls -l\ny", "if x:\n    0#s -l\ny"),
        ("x = (a\n  % b)\n", "x = (a\n  % b)\n"),
        ("x = a \\\n  % b\n", "x = a \\\n  % b\n"),
        ("files = !ls\n", "#iles = !ls\n"),
        ("x %= 3\nx != 4\n", "x %= 3\nx != 4\n"),
        ("model?\n?model\n", "#odel?\n#model\n"),
        ("%%bash\nls 'it\n\n  cd\n", "#%bash\n#s 'it\n\n# cd\n"),
        ("\n%%time\nx = 1\n%load y\n", "\n#%time\nx = 1\n#load y\n"),
    ],
)
def test_magics_become_comments_of_their_length(cell: str, masked: str) -> None:
    assert mask(cell) == masked
    assert len(cell) == len(masked)


def test_a_notebook_in_another_language_has_no_python() -> None:
    source = read(notebook(["x <- 1"], language_info={"name": "R"}))
    assert source.text == ""
    assert source.cell(1) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x = 1",
        b"[]",
        b"{}",
        b'{"cells": {}}',
        b'{"cells": [{}]}',
        b'{"cells": [',
        b"[" * 9999,
    ],
)
def test_what_is_no_notebook_is_a_source_error(data: bytes) -> None:
    with pytest.raises(SourceError, match="not a Jupyter notebook"):
        read(data)


def test_half_a_surrogate_pair_is_a_source_error() -> None:
    with pytest.raises(SourceError, match="surrogate"):
        read(notebook(["s = '@'"]).replace(b"@", b"\\ud800"))


def test_code_is_found_where_it_is_written() -> None:
    document = (
        '{"cells": [{"cell_type": "code", "source": "a = \\"\\ud83d\\ude80\\"; b\\n"},'
        ' {"cell_type": "code", "source": []},'
        ' {"cell_type": "code", "source": ["c\\n", "d"]}]}'
    )
    source = read(document.encode())
    assert source.notebook is not None
    for code, written in (("\U0001f680", "\\ud83d\\ude80"), ("b", "b"), ("c\nd", 'c\\n", "d')):
        start = source.text.index(code)
        first, last = source.notebook.in_document(start, start + len(code))
        assert document[first:last] == written
    end = len(source.text)
    assert source.notebook.in_document(end, end) == (document.index('"]}]}'),) * 2
