"""Every rule's page is true: its examples are found and fixed as shown (proofs: test_proofs)."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from pages import FILES, INTRODUCTION, Example, Page, Proof, ids, read_pages

from fsdplint.check import check_text
from fsdplint.finding import Finding, Severity
from fsdplint.fixes.edits import apply, select
from fsdplint.knowledge.torch_range import TorchRange
from fsdplint.pages import messages
from fsdplint.pages import page as text_of
from fsdplint.pages.diagnosis import LEAST, diagnose, literals
from fsdplint.rule import Rule
from fsdplint.rules import RULES

PAGES = read_pages()
EXAMPLES = [(page, example) for page in PAGES for example in page.examples]
FIXES = [(page, example) for page, example in EXAMPLES if example.fixed is not None]
MESSAGES = [(page, message) for page in PAGES for message in messages(text_of(page.name))]
UNPROVED = {
    "ValueError: When using FSDP2, a model and optimizer must be passed together to "
    "`Accelerator.prepare()` as the optimizer needs to have its parameters modified after the "
    "model is converted.": "accelerate 1.15.0, accelerator.py, prepare: takes accelerate",
    "Duplicate GPU detected : rank … and rank … both on CUDA device …": "NCCL: takes two ranks "
    "that have one GPU",
    "Warning: WARNING: destroy_process_group() was not called before program exit, which can leak "
    "resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown"
    "": "ProcessGroupNCCL.cpp: takes a GPU",
    "CUDA error: invalid device ordinal": "driver_types.h, cudaErrorInvalidDevice: takes CUDA",
    "Watchdog caught collective operation timeout: WorkNCCL(…) ran for … milliseconds before "
    "timing out.": "ProcessGroupNCCL.cpp: takes two GPUs",
    "Timeout at NCCL work: …, last enqueued NCCL work: …, last completed NCCL work: "
    "…": "ProcessGroupNCCL.cpp: takes two GPUs",
    "Received a dump signal due to a collective timeout from …": "ProcessGroupNCCL.cpp: takes two "
    "GPUs",
    "RuntimeError: expected mat1 and mat2 to have the same dtype, but got: … != "
    "…": "potamides/AutomaTikZ#8: takes a GPU",
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
    "cuda:… and cuda:…": "TensorIterator.cpp: takes two GPUs",
    "ValueError: `FlatParameter` requires uniform `requires_grad`": "mosaicml/llm-foundry#414: "
    "takes a release before 2.1",
    "ImportError: cannot import name '…' from 'torch.distributed.fsdp…": "torch 2.5, "
    "distributed/fsdp/__init__.py: takes a release before 2.6",
    "ImportError: cannot import name '…' from 'torch.distributed.tensor…": "torch 2.4, "
    "distributed/tensor/__init__.py: takes a release before 2.5",
    "Unsupported global: GLOBAL torch.distributed.….DTensor was not an allowed global by default. "
    "…": "pytorch/pytorch#139949: takes a release before 2.6",
    "ValueError: The optimizer does not seem to reference any FSDP parameters. HINT: "
    "…": "lightning 2.5.0, pytorch/strategies/fsdp.py: takes lightning",
    "error: unrecognized arguments: --local_rank=…": "FudanNLP/CPT#65: takes a release before 2.0",
}
"""Messages that no two ranks on CPUs can be made to say, each with its source."""


@cache
def found(
    text: str, torch: TorchRange, file: str, rule: str, beside: tuple[tuple[str, str], ...]
) -> list[Finding]:
    """Returns the findings in a text, of a config file without the notes of other rules.

    Each file for FSDP1 has one.
    """
    every = check_text(text, file, torch, beside)
    if file == FILES["python"]:
        return every
    return [f for f in every if f.rule == rule or f.severity is not Severity.NOTE]


def findings(page: Page, example: Example) -> list[tuple[int, str]]:
    """Returns line and rule of each finding in an example."""
    text = example.text
    every = found(text, example.torch, example.file, page.name, example.beside)
    return sorted((text.count("\n", 0, f.span.start) + 1, f.rule) for f in every)


def fixed(page: Page, example: Example) -> str:
    """Returns an example with every fix applied, pass by pass."""
    text = example.text
    for _ in range(10):
        every = found(text, example.torch, example.file, page.name, example.beside)
        chosen = select([f for f in every if f.fix])
        if not chosen:
            return text
        text = apply(text, [edit for f in chosen if f.fix for edit in f.fix.edits])
    raise AssertionError(f"fixes do not come to an end:\n{text}")


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert sorted((rule.name, rule.code) for rule in RULES) == [(p.name, p.code) for p in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_a_finding_and_a_clean_program(page: Page) -> None:
    assert any(example.errors for example in page.examples)
    assert any(
        not example.errors and not example.missed and example.text not in _fixes(page)
        for example in page.examples
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_page_begins_with_the_summary_and_a_broken_example(rule: Rule) -> None:
    (page,) = (page for page in PAGES if page.name == rule.name)
    summary, *_, block = page.sections[INTRODUCTION].split("\n\n")
    assert (summary, block) == (f"{rule.summary[0].upper()}{rule.summary[1:]}.", "```")
    first_heading = page.path.read_text("utf-8").splitlines().index("## Why is this bad?")
    assert page.examples[0].line <= first_heading
    assert page.examples[0].errors


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_fix_is_shown_where_the_rule_has_one(rule: Rule) -> None:
    (page,) = (page for page in PAGES if page.name == rule.name)
    assert bool(_fixes(page)) == (rule.fix is not None)


@pytest.mark.parametrize(("page", "example"), EXAMPLES, ids=ids(EXAMPLES))
def test_findings_are_exactly_the_markers(page: Page, example: Example) -> None:
    assert findings(page, example) == [(line, page.name) for line in example.errors]


@pytest.mark.parametrize(("page", "example"), FIXES, ids=ids(FIXES))
def test_the_fix_makes_what_is_shown(page: Page, example: Example) -> None:
    assert fixed(page, example) == example.fixed


@pytest.mark.parametrize("page", [page for page in PAGES if page.proofs], ids=lambda p: p.name)
def test_a_page_says_which_torch_its_proofs_ran_on(page: Page) -> None:
    assert re.search(r"torch \d+\.\d+\.\d+", page.sections["Proof"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_page_says_whether_its_rule_is_in_preview(rule: Rule) -> None:
    (page,) = (page for page in PAGES if page.name == rule.name)
    notes = re.findall(r"^> Preview: .*$", page.path.read_text("utf-8"), re.MULTILINE)
    assert notes == [f"> Preview: {rule.preview}"] * bool(rule.preview)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_pytorch_says_or_that_it_says_nothing(page: Page) -> None:
    said = page.sections["What PyTorch says"]
    assert bool(messages(text_of(page.name))) == ("```" in said)
    assert said.startswith(("Nothing", "```"))


@pytest.mark.parametrize(("page", "message"), MESSAGES, ids=[message for _, message in MESSAGES])
def test_an_error_is_known_for_its_rule(page: Page, message: str) -> None:
    assert sum(map(len, literals(message))) >= LEAST, "too short to know an error by"
    error = message.replace("…", " anything ")
    assert page.name in [match.rule.name for match in diagnose(error, RULES)]


@pytest.mark.parametrize(("page", "message"), MESSAGES, ids=[message for _, message in MESSAGES])
def test_a_message_is_asserted_by_a_proof(page: Page, message: str) -> None:
    strings = {text for proof in page.proofs for text in _strings(proof)}
    assert message in UNPROVED or any(
        part in string or (len(string) >= LEAST and string in part)
        for part in literals(message)
        if len(part) >= LEAST
        for string in strings
    )


def _strings(proof: Proof) -> list[str]:
    """The texts in a proof, as errors are compared; those of `match=` are patterns."""
    nodes = (node for node in ast.walk(ast.parse(proof.text)) if isinstance(node, ast.Constant))
    texts = (node.value for node in nodes if isinstance(node.value, str))
    return ["".join(literals(re.sub(r"\\(.)", r"\1", text))) for text in texts]


def _fixes(page: Page) -> set[str]:
    return {example.fixed for example in page.examples if example.fixed is not None}
