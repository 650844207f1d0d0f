"""`check --fix --verify` writes what runs on ranks have proved, and nothing else."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from fsdplint.cli.main import main
from fsdplint.verify.warm_launcher import Warm

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = "only_root_sharded.py"
RARE = """
    if os.environ.get("EVALUATE"):
        model.forward(tokens)
"""


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["check", *arguments])
    return end.value.code, *capsys.readouterr()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A broken script in a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(EXAMPLES / "broken" / SCRIPT, tmp_path))


@pytest.fixture
def shared_ranks(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test shows, that the gate starts ranks of its own, the others need not wait for."""
    monkeypatch.setattr("fsdplint.verify.gate.Warm", lambda: nullcontext(warm))


def test_a_proved_fix_is_written(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--fix", "--unsafe-fixes", "--verify", "--verify-args", "--steps 2")
    code, out, err = check(capsys, *options, SCRIPT)

    assert (code, out) == (0, "No findings in 1 file.\n")
    executing, verdict, fixed = err.splitlines()
    assert executing.startswith(
        f"fsdplint: running {SCRIPT} on 2 ranks without and with the fix, in "
    )
    assert verdict.startswith("blocks: violated → confirmed (`blocks`: 4 blocks (")
    assert fixed == "Fixed 1 finding."
    assert script.read_text() == (EXAMPLES / "correct" / SCRIPT).read_text()


@pytest.mark.usefixtures("shared_ranks")
def test_what_was_proved_together_is_written_together(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path("other.py")
    other.write_text("import os  # fsdplint: ignore[direct-forward]\n")
    before = script.read_bytes(), other.read_bytes()
    other.chmod(0o444)
    options = ("--fix", "--unsafe-fixes", "--verify", "--verify-args", "--steps 2")
    code, _, err = check(capsys, *options, SCRIPT, str(other))

    assert code == 2
    assert err.splitlines()[2:] == [
        "No clause covers unused-suppression: the runs prove only that the fixed script still "
        "takes its first 3 steps and violates no clause.",
        "fsdplint: other.py: not written: the file is read-only",
        f"fsdplint: {SCRIPT}: not written, because other.py could not be written along with it",
    ]
    assert (script.read_bytes(), other.read_bytes()) == before


@pytest.mark.usefixtures("shared_ranks")
def test_a_fix_that_no_run_shows_is_not_written(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    correct = (EXAMPLES / "correct" / SCRIPT).read_text()
    script.write_text(correct.replace("\n    logits =", f"{RARE}\n    logits ="))
    before = script.read_bytes()
    options = ("--fix", "--verify", "--verify-args", "--steps 2", "--output-format", "concise")
    code, out, err = check(capsys, *options, SCRIPT)

    assert code == 1
    assert out.startswith(f"{SCRIPT}:") and "direct-forward" in out
    assert err.splitlines()[1:] == [
        "forward: confirmed → confirmed (`GPT` called through the hooks)",
        "No fix was written: `forward` is not violated without the fix "
        "(`GPT` called through the hooks).",
    ]
    assert script.read_bytes() == before


@pytest.mark.usefixtures("shared_ranks")
def test_a_fix_without_a_clause_is_written_and_said_to_be_unproved(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    correct = (EXAMPLES / "correct" / SCRIPT).read_text()
    script.write_text(correct.replace("\ndist.destroy_process_group()\n", ""))
    options = ("--fix", "--pedantic", "--unsafe-fixes", "--verify", "--verify-args", "--steps 2")
    code, _, err = check(capsys, *options, SCRIPT)

    assert code == 0
    assert err.splitlines()[1:] == [
        "No clause covers process-group-not-destroyed: the runs prove only that the fixed script "
        "still takes its first 3 steps and violates no clause.",
        "Fixed 1 finding.",
    ]
    assert "destroy_process_group()" in script.read_text()


@pytest.mark.usefixtures("shared_ranks")
def test_a_script_that_cannot_run_is_left_alone(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text(f"import no_such_module\n{script.read_text()}")
    before = script.read_bytes()
    code, _, err = check(capsys, "--fix", "--unsafe-fixes", "--verify", SCRIPT)

    assert code == 1
    assert err.splitlines()[-1] == (
        "No fix was written: the script fails without the fix: rank 0 failed with "
        "ModuleNotFoundError: No module named 'no_such_module'."
    )
    assert script.read_bytes() == before


CRASHING = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
policy = size_based_auto_wrap_policy(min_num_params=100)
model = FSDP(nn.Linear(32, 32), auto_wrap_policy=policy, device_id=torch.cuda.current_device())
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.randn(4, 32, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("shared_ranks")
def test_a_fix_of_a_crash_is_proved_by_its_end(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text(CRASHING)
    code, _, err = check(capsys, "--fix", "--unsafe-fixes", "--verify", SCRIPT)

    assert err.splitlines()[1:] == [
        "Without the fix: rank 0 failed with TypeError: size_based_auto_wrap_policy() missing 3 "
        "required positional arguments: 'module', 'recurse', and 'nonwrapped_numel'. With it: no "
        "error.",
        "Fixed 1 finding.",
    ]
    assert code == 0
    assert "partial(size_based_auto_wrap_policy, min_num_params=100)" in script.read_text()


@pytest.mark.parametrize("arguments", [("--verify", SCRIPT), ("--fix", "--verify", ".")])
def test_it_needs_fixes_and_a_script(
    arguments: tuple[str, ...], script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.exists()
    assert check(capsys, *arguments) == (
        2,
        "",
        "fsdplint: --verify requires --fix, and a script as the first path\n",
    )


def test_arguments_that_no_shell_reads_are_wrong_usage(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = check(
        capsys, "--fix", "--unsafe-fixes", "--verify", "--verify-args", "--name 'a", SCRIPT
    )

    assert (code, out) == (2, "")
    assert err == "fsdplint: cannot parse --verify-args: No closing quotation\n"
    assert script.exists()


@pytest.mark.usefixtures("shared_ranks")
@pytest.mark.parametrize("steps", [(), ("--steps", "1")], ids=["by itself", "too few"])
def test_a_hang_behind_the_last_step_is_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    steps: tuple[str, ...],
) -> None:
    """Three steps end before it; the run goes on to the end, unless it is told how far."""
    monkeypatch.chdir(tmp_path)
    name = "collective_under_rank_guard.py"
    script = Path(name)
    script.write_text(
        "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
        "from torch.distributed.fsdp import fully_shard\n\n\n"
        "def report(loss):\n    if dist.get_rank() == 0:\n        dist.all_reduce(loss)\n"
        "        print(loss)\n\n\n"
        "dist.init_process_group('gloo')\nmodel = fully_shard(nn.Linear(4, 4))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(4):\n    loss = model(torch.randn(2, 4)).square().mean()\n"
        "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
        "report(loss.detach())\ndist.destroy_process_group()\n"
    )
    before = script.read_bytes()
    code, _, err = check(
        capsys,
        "--select",
        "collective-under-rank-guard",
        "--fix",
        "--unsafe-fixes",
        "--verify",
        "--timeout",
        "120",
        *steps,
        name,
    )

    if steps:
        assert (code, script.read_bytes()) == (1, before)
        assert "No fix was written: `collectives` is not violated without the fix" in err
    else:
        assert code == 0, err
        assert "collectives: violated → confirmed" in err


def test_a_number_of_steps_is_a_number(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = check(capsys, "--fix", "--verify", "--steps", "few", SCRIPT)

    assert code == 2
    assert "'few' is neither a number of steps nor 'all'" in err
    assert script.exists()
