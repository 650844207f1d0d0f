"""The reader of rule pages finds every block, and refuses a page that would hide one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import HEADINGS, INTRODUCTION, Example, PageError, Proof, read

from fsdplint.knowledge.torch_range import TorchRange

FIRST = "```python\nx = 1\nbad()  # error\n```\n"
DIFF = "```diff\n x = 1\n-bad()  # error\n+good()\n```\n"
MISSED = "```python\nhidden()  # missed\n```\n"
PROOF = "```python ranks=2\nassert True\n```\n"


def page(**bodies: str) -> str:
    """Returns a page of one-line sections, with `bodies` in place of those they name."""
    sections = (f"## {h}\n\n{bodies.get(h.split()[0].lower(), 'Prose.')}\n" for h in HEADINGS)
    return "# some-rule (FSD301)\n\nA summary.\n\n" + "\n".join(sections)


def write(folder: Path, text: str) -> Path:
    path = folder / "some-rule.md"
    path.write_text(text)
    return path


def test_blocks_and_their_lines(tmp_path: Path) -> None:
    text = page(examples=f"{FIRST}\n{DIFF}\nLegal:\n\n```python\nfine()\n```", known=MISSED)
    read_page = read(write(tmp_path, text.replace("## Proof\n\nProse.", f"## Proof\n\n{PROOF}")))
    lines = text.splitlines()
    assert (read_page.name, read_page.code) == ("some-rule", "FSD301")
    first, *others = read_page.examples
    assert first == Example("x = 1\nbad()\n", lines.index("x = 1") + 1, (2,), ())
    assert [(e.text, e.errors, e.missed, e.fixed) for e in others] == [
        ("x = 1\nbad()\n", (2,), (), "x = 1\ngood()\n"),
        ("x = 1\ngood()\n", (), (), None),
        ("fine()\n", (), (), None),
        ("hidden()\n", (), (1,), None),
    ]
    assert [e.line for e in others[:2]] == [lines.index(" x = 1") + 1] * 2
    assert read_page.proofs == (Proof("assert True\n", lines.index("## Proof") + 4, 2),)


def test_a_diff_has_all_lines_of_both_sides(tmp_path: Path) -> None:
    diff = "```diff\n def f():\n     bad()  # error\n\n-    x = 1\n \n+    set_epoch()\n```\n"
    broken, fixed = read(write(tmp_path, page(examples=diff))).examples
    assert broken.fixed == fixed.text == "def f():\n    bad()\n\n\n    set_epoch()\n"
    assert broken.text == "def f():\n    bad()\n\n    x = 1\n\n"
    assert (broken.errors, fixed.errors) == ((2,), ())


def test_an_example_says_for_which_torch_it_is(tmp_path: Path) -> None:
    python = FIRST.replace("```python", "```python torch>=2.6,<2.9")
    diff = DIFF.replace("```diff", "```diff torch>=2.6,<2.9")
    examples = read(write(tmp_path, page(examples=f"{python}\n{diff}\n{DIFF}"))).examples
    narrow = TorchRange((2, 6, 0), (2, 9, 0))
    assert [example.torch for example in examples] == [narrow] * 3 + [TorchRange()] * 2


def test_a_proof_says_for_which_torch_it_is(tmp_path: Path) -> None:
    proof = PROOF.replace("ranks=2", "ranks=4 torch>=2.15")
    text = page().replace("## Proof\n\nProse.", f"## Proof\n\n{PROOF}\n{proof}")
    every, newer = read(write(tmp_path, text)).proofs
    assert (every.ranks, every.torch) == (2, TorchRange())
    assert (newer.ranks, newer.torch) == (4, TorchRange((2, 15, 0)))


def test_sections_are_prose_around_blocks(tmp_path: Path) -> None:
    read_page = read(write(tmp_path, page(examples=f"Before.\n\n{FIRST}\nAfter.")))
    assert tuple(read_page.sections) == (INTRODUCTION, *HEADINGS)
    assert read_page.sections[INTRODUCTION] == "A summary."
    assert read_page.sections["Examples"].split() == ["Before.", "```", "After."]


def test_the_first_example_is_above_the_first_heading(tmp_path: Path) -> None:
    text = page().replace("A summary.\n", f"A summary.\n\n{DIFF}")
    read_page = read(write(tmp_path, text))
    assert read_page.sections[INTRODUCTION].split() == ["A", "summary.", "```"]
    assert len(read_page.examples) == 2


def test_fences_for_people_are_no_tests(tmp_path: Path) -> None:
    read_page = read(write(tmp_path, page(why="```text\nRuntimeError  # error\n```\nProse.")))
    assert (read_page.examples, read_page.proofs) == ((), ())


def test_headings_inside_blocks_are_comments(tmp_path: Path) -> None:
    read_page = read(write(tmp_path, page(examples="```python\n## Proof\n# more\n```\n.")))
    assert read_page.examples[0].text == "## Proof\n# more\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (page().replace("some-rule", "other-rule"), "the title is not"),
        (page().replace("FSD301", "F301"), "the title is not"),
        (page().replace("## Proof", "## Proofs"), "the headings are"),
        (page().replace("## References\n\nProse.\n\n", ""), "the headings are"),
        (page() + "\n## More\n\nProse.\n", "the headings are"),
        (page() + "\n### Deeper\n\nProse.\n", "the headings are"),
        (page(fix=""), "nothing is said under ['Fix safety']"),
        (page(examples="```python\nx = 1\n"), "never closed"),
        (page(references="Prose.\n\n```python\nx = 1\n"), "never closed"),
        (page(examples=f"Text.\n\n  {FIRST}"), "an indented fence"),
        (page(examples="```py\nx = 1\n```"), "a fence of `py`"),
        (page(examples="```\nx = 1\n```"), "a fence of ``"),
        (page(examples=PROOF), "a proof stands under Proof"),
        (page(proof=FIRST), "a proof stands under Proof"),
        (page(proof=PROOF.replace("=2", "=two")), "a proof stands under Proof"),
        (page(examples=MISSED), "`# missed` outside of Known limitations"),
        (page(examples=FIRST.replace("# error", "# errors")), "a marker misspelt"),
        (page(examples=FIRST.replace("# error", "# Error:")), "a marker misspelt"),
        (page(examples=FIRST.replace("# error", "#error")), "a marker misspelt"),
        (page(examples=DIFF.replace("  # error", "")), "a diff of an example without an error"),
        (page(examples=DIFF.replace("good()", "good()  # error")), "in a line that the fix adds"),
        (page(examples=DIFF.replace(" x = 1", "x = 1")), "a line of a diff that begins with 'x'"),
        (page(examples=DIFF.replace("```diff", "```diff ranks=2")), "a fence of `diff ranks=2`"),
    ],
)
def test_a_malformed_page_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PageError) as refusal:
        read(write(tmp_path, text))
    assert message in str(refusal.value)
