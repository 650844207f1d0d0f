"""Pasted errors are told apart by what the rules' pages say that PyTorch says."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fsdplint.finding import Severity
from fsdplint.outcome import Outcome
from fsdplint.pages import diagnosis, harm, page, unmarked
from fsdplint.pages.diagnosis import Frame, diagnose, frames, known_errors
from fsdplint.report.diagnosis import diagnosis_as_json, diagnosis_as_text
from fsdplint.report.style import plain
from fsdplint.rule import Rule
from fsdplint.rules import RULES

MIXED = (
    "RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor, need to convert all "
    "torch.Tensor to DTensor before calling distributed operators!"
)
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 7, in main
    loss = model.forward(x)
           ^^^^^^^^^^^^^^^^
  File "/venv/lib/torch/nn/modules/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
{MIXED}
"""
NO_SYNC = "AttributeError: 'FSDPGPT' object has no attribute 'no_sync'"


def each_line(text: str, before: str) -> str:
    return "".join(f"{before}{line}\n" for line in text.splitlines())


def names(error: str) -> list[str]:
    return [match.rule.name for match in diagnose(error, RULES)]


@pytest.mark.parametrize(
    "error",
    [
        TRACEBACK,
        MIXED,
        MIXED.removeprefix("RuntimeError: "),
        each_line(TRACEBACK, "[rank1]: "),
        each_line(TRACEBACK, "[default0]:[rank0]: "),
        each_line(TRACEBACK, "2026-11-21 22:33:11,123 ERROR "),
        each_line(TRACEBACK, "[2026-11-21T22:33:11.123Z] [rank0]: "),
        each_line(TRACEBACK, "[rank0]:[E1121 22:33:11.027000 12235 api.py:1002] "),
        each_line(TRACEBACK, "(TrainWorker pid=123, ip=10.0.0.1) "),
        each_line(TRACEBACK, "3: "),
        each_line(TRACEBACK, "  | "),
        "\n".join(MIXED[at : at + 40] for at in range(0, len(MIXED), 40)),
        each_line("\n".join(MIXED.replace(" ", "\n").split("\n")), "[rank0]: "),
        MIXED.replace("mixed", "\x1b[1;31mmixed\x1b[0m"),
        TRACEBACK.replace("\n", "\r\n"),
        json.dumps({"message": {"message": MIXED, "extraInfo": {"py_callstack": TRACEBACK}}}),
    ],
)
def test_an_error_is_known_as_it_is_pasted(error: str) -> None:
    assert names(error) == [
        "direct-forward",
        "custom-method-bypasses-hooks",
        "parameter-used-outside-its-unit",
    ]


GATHER = """\
  File "/venv/lib/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", line 407, in unshard
    self._all_gather_result = foreach_all_gather(
                              ^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/torch/utils/_contextlib.py", line 124, in decorate_context
    return func(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", line 351, in \
foreach_all_gather
    all_gather_output = all_gather_comm.allocate(
                        ^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", line 59, in allocate
    return torch.empty(*size, dtype=dtype, device=device)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (f"{GATHER}{FULL}", "only-root-sharded"),
        ("RuntimeError: 'weight' must be 2-D", "custom-method-bypasses-hooks"),
        (MIXED.replace("addmm.default", "_foreach_add_.List:"), "foreach-with-mixed-parameters"),
        (
            '\tWhile copying the parameter named "0.weight", whose dimensions in the model are '
            "torch.Size([8, 8]) and whose dimensions in the checkpoint are torch.Size([8, 8]), an "
            f"exception occurred : ('{MIXED.replace('addmm.default', 'copy_.default:')[14:]}',).",
            "sharded-state-saved",
        ),
        (
            "size mismatch for 0.bias: copying a param with shape torch.Size([0]) from checkpoint, "
            "the shape in current model is torch.Size([4]).",
            "save-without-gathered-state",
        ),
        (
            "train.py: error: the following arguments are required: --steps, --local_rank",
            "local-rank-argument",
        ),
    ],
)
def test_the_likeliest_rule_of_an_error(error: str, rule: str) -> None:
    assert names(error)[0] == rule


@pytest.mark.parametrize(
    "error",
    [
        NO_SYNC,
        NO_SYNC.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}"),
        NO_SYNC.replace("'", "`"),
        repr(repr(NO_SYNC)),
    ],
)
def test_quotes_do_not_matter(error: str) -> None:
    assert names(error) == ["no-sync-under-fsdp2"]


@pytest.mark.parametrize(
    "error",
    [
        "",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        f"loss.backward()\n{FULL}",
        "RuntimeError: The size of tensor a (4) must match the size of tensor b (3) at "
        "non-singleton dimension 1",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two "
        "devices, cuda:0 and cpu!",
        "AttributeError: 'GPT' object has no attribute 'sync'",
        "got mixed" + "x" * 500 + "torch.Tensor and DTensor",
        "AttributeError: 'FSDPGPT' object has no attribute 'head'\n" + "x" * 500 + "'no_sync'",
    ],
)
def test_an_error_that_no_rule_knows(error: str) -> None:
    assert names(error) == []


PAGES = {
    "shared": "RuntimeError: … got mixed torch.Tensor and DTensor, …",
    "special": (
        "RuntimeError: … copying … got mixed torch.Tensor and DTensor, …\n"
        "RuntimeError: … got mixed torch.Tensor and DTensor, …"
    ),
    "other": (
        "KeyError: 0\nRuntimeError: another error entirely\n"
        "Watchdog caught collective operation timeout: WorkNCCL(…) ran for … milliseconds before "
        "timing out.\nRuntimeError: […] Timed out waiting …ms for recv operation to complete"
    ),
}
NAMED = [Rule(name, "FSD301", name, Severity.ERROR, None, "0.1.0", "collectives") for name in PAGES]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def page(name: str) -> str:
        return f"# {name}\n\n## What PyTorch says\n\n```text\n{PAGES[name]}\n```\n\n## Example\n"

    monkeypatch.setattr(diagnosis, "page", page)


def known(error: str) -> list[tuple[str, str]]:
    return [(match.rule.name, match.message) for match in diagnose(error, NAMED)]


@pytest.mark.usefixtures("pages")
def test_the_rule_that_says_more_of_the_error_comes_first() -> None:
    special, general = PAGES["special"].splitlines()
    assert known(MIXED) == [("shared", general), ("special", general)]
    copying = f"While copying the parameter: {MIXED}"
    assert known(copying) == [("special", special), ("shared", general)]


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize(
    "error",
    [
        "[rank0]:[E1121 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=1, OpType=_ALLGATHER_BASE, NumelIn=8, "
        "NumelOut=16, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n",
        "[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78]"
        " Timed out waiting 1800000ms for recv operation to complete\n",
    ],
)
def test_the_end_of_a_hang_is_known(error: str) -> None:
    assert [name for name, _ in known(error)] == ["other"]


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize(
    "error",
    [
        "\x1b[31m✗\x1b[0m collectives  rank 1 waits for good in all_gather\n",
        '{"clause": "optimizer", "contract": "…", "status": "confirmed"},\n'
        '{"clause": "collectives", "contract": "…", "status": "violated"}',
    ],
)
def test_a_violated_clause_names_the_rules_behind_it(error: str) -> None:
    said = "verify: collectives violated"
    assert known(error) == [(name, said) for name in PAGES]
    assert known(f"{error}\nRuntimeError: another error entirely")[0][0] == "other"


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize(
    "error",
    [
        "✓ collectives  all ranks issued the same\n",
        "- collectives  no rank issued a collective\n",
        '{"clause": "collectives", "status": "confirmed"}, {"clause": "x", "status": "violated"}',
        "",
    ],
)
def test_a_clause_that_is_not_violated_speaks_for_no_rule(error: str) -> None:
    assert known(error) == []


def test_frames_of_the_given_files(tmp_path: Path) -> None:
    train, deep = tmp_path / "train.py", tmp_path / "src/pkg/parallel.py"
    deep.parent.mkdir(parents=True)
    for file in train, deep:
        file.write_text("")
    error = each_line(TRACEBACK, "[rank0]: ") + (
        '[rank1]:   File "/other/src/pkg/parallel.py", line 3, in shard\n'
        "✗ optimizer at pkg/parallel.py:9\n"
        '  File "/home/me/train.py", line 7, in main\n'
    )
    assert frames(error, [train]) == [Frame(train, 7)]
    assert frames(error, [deep]) == [Frame(deep, 3), Frame(deep, 9)]
    assert frames(error, [tmp_path]) == [Frame(train, 7), Frame(deep, 3)]
    assert frames(error, [tmp_path / "src"]) == [Frame(deep, 3), Frame(deep, 9)]
    assert frames(error, [tmp_path / "another.py"]) == []


@pytest.mark.parametrize("named", [".", "/", "..", "a/" * 2_000 + "a.py", "a.py"])
def test_no_name_of_a_file_is_a_fault(tmp_path: Path, named: str) -> None:
    (tmp_path / "a.py").write_text("")
    found = [Frame(tmp_path / "a.py", 3)] if named.endswith("a.py") else []
    error = f'  File "{named}", line 3\n  File "{named}", line {"3" * 5_000}\n'
    assert frames(error, [tmp_path]) == found


@pytest.mark.parametrize("word", ["a", "/", "\x1b]", ".py", 'File "'])
def test_a_log_of_one_word_is_read_in_no_time(tmp_path: Path, word: str) -> None:
    began = time.process_time()
    assert frames(word * 200_000, [tmp_path]) == []
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        ("KeyError: 'LOCAL_RANK'", "torchrun"),
        ("Exception: Could not find the transformer layer class to wrap in the model.", "print"),
        ("ValueError: Could not find the transformer layer class Block in the model.", "print"),
        (
            "ValueError: Must flatten tensors with uniform dtype but got torch.float32 and "
            "torch.bfloat16",
            "one dtype",
        ),
        (
            "AssertionError: FSDP expects uniform original parameter dtype but got "
            "{torch.float32, torch.bfloat16}",
            "one dtype",
        ),
    ],
)
def test_an_error_without_a_rule_has_its_cure(error: str, cure: str) -> None:
    for text in (error, each_line(error, "[rank1]: ")):
        assert [cure in known.error.cure for known in known_errors(text)] == [True]
    assert names(error) == []


def test_the_end_of_a_sentence_may_be_left_out() -> None:
    error = "Exception: Could not find the transformer layer class to wrap in the model"
    assert ["print" in known.error.cure for known in known_errors(error)] == [True]


def test_the_error_that_says_most_comes_first() -> None:
    error = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        "Failed to clone() tensor with name head.weight on rank 1. This may mean that this entry\n"
    )
    assert [known.error.message[:6] for known in known_errors(error)] == ["Failed", "CUDA o"]


def test_another_key_is_not_the_local_rank() -> None:
    assert known_errors("KeyError: 'LOCAL'") == []


def test_more_than_a_rule_speaks_for_a_cause_of_the_same_message_or_with_a_text_near_it() -> None:
    timeout = "WorkNCCL(SeqNum=42) ran for 600000 milliseconds before timing out."
    hang = f"Watchdog caught collective operation timeout: {timeout}"
    mixed = "aten.mm.default got mixed torch.Tensor and DTensor, need to convert all torch.Tensor"
    both = f"RuntimeError: {mixed} to DTensor before calling distributed operators!"
    for log, leads in {
        hang: True,
        f"clip_grad_norm_\n{both}": True,
        f"{both}\nCUDA out of memory.": False,
    }.items():
        matches, (first, *_) = diagnose(log, RULES), known_errors(log)
        assert (bool(matches), first.leads(matches)) == (True, leads)
    (alone,) = known_errors("CUDA out of memory.")
    assert alone.leads([])


def test_a_rule_is_explained_by_its_harm() -> None:
    (match,) = diagnose("AttributeError: 'FSDPGPT' object has no attribute 'no_sync'", RULES)
    text = page(match.rule.name)
    expected = text.partition("## Why is this bad?\n\n")[2].partition("\n\n")[0]
    assert harm(text) == expected != ""
    outcome = Outcome((), {}, base="/")
    told = diagnosis_as_text([match], [], outcome, [], plain, 10_000)
    assert f"  {unmarked(expected)}\n" in told
    (described,) = json.loads(diagnosis_as_json([match], [], outcome, []))["rules"]
    assert described["harm"] == expected
