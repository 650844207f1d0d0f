"""The reader of rule pages finds every block, and refuses a page that would hide one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import HEADINGS, Example, PageError, Proof, read

from fsdplint.knowledge.torch_range import TorchRange

FIRST = "```python\nx = 1\nbad()  # error\n```\n"
FIXED = "\nUse instead:\n\n```python\nx = 1\ngood()\n```\n"
MISSED = "```python\nhidden()  # missed\n```\n"
PROOF = "```python ranks=2\nassert True\n```\n"


def page(**bodies: str) -> str:
    """Returns a page of one-line sections, with `bodies` in place of those they name."""
    sections = (f"## {h}\n\n{bodies.get(h.split()[0].lower(), 'Prose.')}\n" for h in HEADINGS)
    return "# some-rule (FSD301)\n\n" + "\n".join(sections)


def write(folder: Path, text: str) -> Path:
    path = folder / "some-rule.md"
    path.write_text(text)
    return path


def test_blocks_and_their_lines(tmp_path: Path) -> None:
    text = page(example=FIRST + FIXED + "\nLegal:\n\n```python\nfine()\n```", known=MISSED)
    read_page = read(write(tmp_path, text.replace("## Proof\n\nProse.", f"## Proof\n\n{PROOF}")))
    lines = text.splitlines()
    assert (read_page.name, read_page.code) == ("some-rule", "FSD301")
    first, *others = read_page.examples
    assert first == Example("x = 1\nbad()\n", lines.index("x = 1") + 1, (2,), (), "x = 1\ngood()\n")
    assert [(e.text, e.errors, e.missed, e.fixed) for e in others] == [
        ("x = 1\ngood()\n", (), (), None),
        ("fine()\n", (), (), None),
        ("hidden()\n", (), (1,), None),
    ]
    assert read_page.proofs == (Proof("assert True\n", lines.index("## Proof") + 4, 2),)


def test_an_example_says_for_which_torch_it_is(tmp_path: Path) -> None:
    text = page(example=FIRST.replace("```python", "```python torch>=2.6,<2.9") + FIXED)
    first, second = read(write(tmp_path, text)).examples
    assert first.torch == TorchRange((2, 6, 0), (2, 9, 0))
    assert (first.fixed, second.torch) == ("x = 1\ngood()\n", TorchRange())


def test_a_proof_says_for_which_torch_it_is(tmp_path: Path) -> None:
    proof = PROOF.replace("ranks=2", "ranks=4 torch>=2.15")
    text = page().replace("## Proof\n\nProse.", f"## Proof\n\n{PROOF}\n{proof}")
    every, newer = read(write(tmp_path, text)).proofs
    assert (every.ranks, every.torch) == (2, TorchRange())
    assert (newer.ranks, newer.torch) == (4, TorchRange((2, 15, 0)))


def test_sections_are_prose_around_blocks(tmp_path: Path) -> None:
    read_page = read(write(tmp_path, page(example=f"Before.\n\n{FIRST}\nAfter.")))
    assert tuple(read_page.sections) == HEADINGS
    assert read_page.sections["Example"].split() == ["Before.", "```", "After."]


def test_fences_for_people_are_no_tests(tmp_path: Path) -> None:
    read_page = read(write(tmp_path, page(why="```text\nRuntimeError  # error\n```\nProse.")))
    assert (read_page.examples, read_page.proofs) == ((), ())


def test_headings_inside_blocks_are_comments(tmp_path: Path) -> None:
    read_page = read(write(tmp_path, page(example="```python\n## Proof\n# use instead\n```\n.")))
    assert read_page.examples[0].text == "## Proof\n# use instead\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (page().replace("some-rule", "other-rule"), "the title is not"),
        (page().replace("FSD301", "F301"), "the title is not"),
        (page().replace("## Proof", "## Proofs"), "the headings are"),
        (page().replace("## Proof\n\nProse.\n\n", ""), "the headings are"),
        (page() + "\n## More\n\nProse.\n", "the headings are"),
        (page() + "\n### Deeper\n\nProse.\n", "the headings are"),
        (page(fix=""), "nothing is said under ['Fix safety']"),
        (page(example="```python\nx = 1\n"), "never closed"),
        (page(references="Prose.\n\n```python\nx = 1\n"), "never closed"),
        (page(example=f"Text.\n\n  {FIRST}"), "an indented fence"),
        (page(example="```py\nx = 1\n```"), "a fence of `py`"),
        (page(example="```\nx = 1\n```"), "a fence of ``"),
        (page(example=PROOF), "a proof stands under Proof"),
        (page(proof=FIRST), "a proof stands under Proof"),
        (page(proof=PROOF.replace("=2", "=two")), "a proof stands under Proof"),
        (page(example=MISSED), "`# missed` outside of Known limitations"),
        (page(example=FIRST.replace("# error", "# errors")), "a marker misspelt"),
        (page(example=FIRST.replace("# error", "# Error:")), "a marker misspelt"),
        (page(example=FIRST.replace("# error", "#error")), "a marker misspelt"),
        (page(example=FIXED), "without an example to fix"),
        (page(example="```python\nx = 1\n```\n" + FIXED), "without an example to fix"),
        (page(example=FIRST + FIXED + FIXED), "without an example to fix"),
        (page(example=FIRST + FIXED.replace("good()", "good()  # error")), "in a fixed block"),
        (page(example=FIRST + FIXED.replace("instead:", "instead")), "reads like"),
        (page(example=FIRST + FIXED.replace("Use", "Better use")), "reads like"),
    ],
)
def test_a_malformed_page_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PageError) as refusal:
        read(write(tmp_path, text))
    assert message in str(refusal.value)
