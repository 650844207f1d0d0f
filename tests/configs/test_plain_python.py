"""SLURM scripts that start a script by Python alone: what is known of its rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsdplint.check import check, check_text
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

RULE = "python-without-launcher"
CALL = "dist.init_process_group('gloo')"
CODE = f"import os\nimport torch.distributed as dist\n{CALL}\n"
HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:4\n"


def found(script: str, code: str = CODE, name: str = "job.slurm") -> list[str]:
    findings = check_text(script, name, beside=[("train.py", code)])
    return [each.rule for each in findings if each.rule == RULE]


def in_project(project: Path) -> list[str]:
    outcome = check([project], defaults(EVERYTHING))
    return [each.rule for each in outcome.findings if each.rule == RULE]


@pytest.mark.parametrize(
    "line",
    [
        "python train.py",
        "python3 -u train.py --lr 3",
        "/opt/conda/bin/python train.py",
        "OMP_NUM_THREADS=4 python train.py",
        "srun python train.py",
        "srun -N 2 --ntasks-per-node=4 python train.py",
        "time srun python train.py",
        "nohup python train.py > log &",
        "uv run python train.py",
        'source "$HOME/venv/bin/activate"\npython train.py',
        "source activate env\npython train.py",
        'eval "$(conda shell.bash hook)"\npython train.py',
        "cd $SLURM_SUBMIT_DIR\npython train.py",
        "if true; then\n  python train.py\nfi",
    ],
)
def test_a_call_of_python_has_no_rank(line: str) -> None:
    assert found(f"{HEAD}{line}\n") == [RULE]


@pytest.mark.parametrize(
    "line",
    [
        "RANK=0 WORLD_SIZE=1 python train.py",
        "export RANK=$SLURM_PROCID\npython train.py",
        "torchrun --standalone train.py",
        "mpirun -n 4 python train.py",
        "deepspeed train.py",
        "$LAUNCHER python train.py",
        "srun $ARGS python train.py",
        "srun --container-image=x.sqsh python train.py",
        "srun --environment=./x.toml python train.py",
        "srun --export=ALL,X=1 python train.py",
        "uv run --env-file .env python train.py",
        "singularity exec x.sif python train.py",
        "source env.sh\npython train.py",
        ". ./env.sh\npython train.py",
        'eval "$SETUP"\npython train.py',
        "cd other\npython train.py",
        "cd $WORK\npython train.py",
        "python -m train",
        "python other.py",
        "python -c 'import train' train.py",
        "echo python train.py",
        "# python train.py",
    ],
)
def test_other_lines_are_left_alone(line: str) -> None:
    assert found(f"{HEAD}{line}\n") == []


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("python train.py\n", "job.sh"),
        ("FROM x\nCMD python train.py\n", "Dockerfile"),
        (f"{HEAD}#SBATCH --container-image=x\npython train.py\n", "job.sh"),
    ],
)
def test_other_files_are_left_alone(script: str, name: str) -> None:
    assert found(script, name=name) == []


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "backend='nccl', init_method='env://', timeout=x",
        "'nccl', None",
        "'gloo', 'env://', device_id=x",
        "'cpu:gloo,cuda:nccl'",
    ],
)
def test_a_process_group_that_reads_its_rank(arguments: str) -> None:
    assert found(f"{HEAD}python train.py\n", CODE.replace("'gloo'", arguments)) == [RULE]


@pytest.mark.parametrize(
    "arguments",
    [
        "'nccl', rank=r, world_size=n",
        "'nccl', 'tcp://x:1'",
        "'nccl', init_method=args.url",
        "'gloo', store=s, rank=r, world_size=n",
        "'mpi'",
        "'fake'",
        "args.backend",
        "**options",
        "*options",
    ],
)
def test_a_process_group_that_may_know_its_rank(arguments: str) -> None:
    assert found(f"{HEAD}python train.py\n", CODE.replace("'gloo'", arguments)) == []


@pytest.mark.parametrize(
    "code",
    [
        CODE.replace(CALL, f"if x:\n    {CALL}"),
        CODE.replace(CALL, f"try:\n    {CALL}\nexcept ValueError:\n    pass"),
        CODE.replace(CALL, f"def main():\n    {CALL}"),
        CODE.replace(CALL, f"os.environ['RANK'] = os.environ['SLURM_PROCID']\n{CALL}"),
        CODE.replace(CALL, f"os.environ.setdefault('RANK', '0')\n{CALL}"),
        CODE.replace(CALL, f"os.environ.update(RANK='0')\n{CALL}"),
        CODE.replace(CALL, f"for k in x:\n    os.environ[k] = x[k]\n{CALL}"),
        CODE.replace(CALL, f"for k in x:\n    os.environ.setdefault(k, '0')\n{CALL}"),
        CODE.replace(CALL, f"os.environ |= x\n{CALL}"),
        CODE.replace(CALL, f"x = {{'RANK': '0'}}\n{CALL}"),
        f"import torch.multiprocessing as mp\n{CODE}",
        f"from accelerate import Accelerator\n{CODE}",
        f"import dotenv\n{CODE}",
        "import torch.distributed as dist\nprint(dist)\n",
    ],
)
def test_code_that_may_set_the_rank_or_not_need_it(code: str) -> None:
    assert found(f"{HEAD}python train.py\n", code) == []


def test_reading_the_rank_sets_none() -> None:
    reads = CODE + "if os.environ['RANK'] == '0':\n    rank = os.environ.get('RANK', 0)\n"
    assert found(f"{HEAD}python train.py\n", reads) == [RULE]


@pytest.mark.parametrize(
    ("name", "text", "silent"),
    [
        ("ranks.py", "import os\nos.environ['RANK'] = os.environ['SLURM_PROCID']\n", True),
        ("submit.sh", "RANK=0 WORLD_SIZE=1 sbatch job.slurm\n", True),
        ("node.sh", "NODE_RANK=0 bash other.sh\n", False),
        ("ranks.py", "import os\nrank = os.environ['RANK']\n", False),
    ],
)
def test_the_rest_of_the_project_counts(tmp_path: Path, name: str, text: str, silent: bool) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm/job.slurm").write_text(f"{HEAD}cd {tmp_path}\npython train.py\n")
    assert in_project(tmp_path) == [RULE]
    (tmp_path / name).write_text(text)
    assert in_project(tmp_path) == ([] if silent else [RULE])


def fix_of(script: str) -> str | None:
    """What the fix makes of the last line of a script, None if it is declined."""
    (finding,) = check_text(script, "job.sh", beside=[("train.py", CODE)])
    if finding.fix is None:
        return None
    (edit,) = finding.fix.edits
    return (script[: edit.span.start] + edit.text + script[edit.span.end :]).splitlines()[-1]


@pytest.mark.parametrize(
    ("directive", "line", "processes"),
    [
        ("--gres=gpu:a100:4", "python train.py", 4),
        ("--gpus-per-node=2", "python -u train.py", 2),
        ("--mem=4G", "CUDA_VISIBLE_DEVICES=0,3 python train.py", 2),
        ("--gpus=4", "python train.py", None),
        ("--gres=gpu:4", "CUDA_VISIBLE_DEVICES=$D python train.py", None),
        ("--gres=gpu:4", "srun python train.py", None),
        ("--gres=gpu:4\n#SBATCH -N 2", "python train.py", None),
    ],
)
def test_the_fix_starts_a_process_for_each_device(
    directive: str, line: str, processes: int | None
) -> None:
    options = f"-m torch.distributed.run --standalone --nproc_per_node={processes} train.py"
    expected = None if processes is None else line.replace("train.py", options)
    assert fix_of(f"#SBATCH {directive}\n{line}\n") == expected


@pytest.mark.parametrize("options", [[], ["-m", "torch.distributed.run", "--standalone"]])
def test_what_a_task_of_slurm_does(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "train.py").write_text(CODE)
    given = {n: v for n, v in os.environ.items() if not n.startswith(("RANK", "WORLD", "MASTER"))}
    task = given | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
    command = [sys.executable, *options, "train.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=task, capture_output=True, text=True)
    assert (ran.returncode == 0) is bool(options)
    assert ("environment variable RANK expected, but not set" in ran.stderr) is not bool(options)
