"""Every proof of every rule's page for the installed PyTorch holds on ranks of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from pages import Page, Proof, ids, read_pages
from ranks import PRELOADED, Ranks, report
from torch_release import INSTALLED

from fsdplint.rules import RULES

PAGES = read_pages()
# About the tool itself, and about verl, which the suite does not install: Bash judges its commands
# in the tests, and `.ci/settings` runs its code.
WITHOUT = ("FSD0", "FSD94")
PROOFS = [
    (page, proof)
    for page in PAGES
    for proof in page.proofs
    if proof.torch.overlaps(INSTALLED.lower, INSTALLED.upper)
]


@pytest.fixture(scope="module")
def trainers() -> Iterator[Ranks]:
    """Ranks that have transformers loaded, which the other proofs do without."""
    with Ranks((*PRELOADED, "transformers.trainer")) as pool:
        yield pool


@pytest.mark.parametrize(("page", "proof"), PROOFS, ids=ids(PROOFS))
def test_proof_holds(page: Page, proof: Proof, request: pytest.FixtureRequest) -> None:
    trains = re.search(r"^ *from transformers import ", proof.text, re.MULTILINE)
    ranks: Ranks = request.getfixturevalue("trainers" if trains else "ranks")
    code = "\n" * (proof.line - 1) + proof.text
    outcomes = ranks.run(code, path=str(page.path), world_size=proof.ranks)
    told = report(outcomes)
    assert not told, told


def test_no_proof_is_lost() -> None:
    """Counts the proofs in the raw text, which no mistake of the reader's can make fewer."""
    fences = {p.name: p.path.read_text(encoding="utf-8").count("\n```python ranks=") for p in PAGES}
    assert Counter(fences) == Counter(page.name for page in PAGES for _ in page.proofs)
    assert {name for name, count in fences.items() if count} == {
        rule.name for rule in RULES if not rule.code.startswith(WITHOUT)
    }
