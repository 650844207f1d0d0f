"""Launch lines of shell scripts: what is read of them, and the findings in them."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsdplint.check import check, check_text
from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.launch_lines import read as read_with
from fsdplint.configs.readers import Readers
from fsdplint.files.file import from_bytes
from fsdplint.finding import Edit, Span
from fsdplint.fixes.edits import apply
from fsdplint.fixes.fixpoint import RefusedError, _check_script, fix_files
from fsdplint.knowledge.accelerate_settings import settings as releases
from fsdplint.knowledge.launch_options import EXCLUSIVE, options
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))


def read(path: str, text: str) -> LaunchScript | None:
    return read_with(path, text, releases()[-1:], Readers())


def script(text: str) -> LaunchScript:
    found = read("train.sh", text)
    assert found is not None
    return found


def launch(text: str) -> Launch:
    (found,) = script(text).launches
    return found


def found(text: str) -> list[tuple[int, str]]:
    """Line and rule of each finding."""
    findings = check_text(text, "train.sh")
    return [(text.count("\n", 0, each.span.start) + 1, each.rule) for each in findings]


def fixed(text: str) -> str:
    """The text after all fixes, the unsafe ones too."""

    def lint(texts: object) -> list[object]:
        assert isinstance(texts, dict)
        return list(check_text(texts[path], "train.sh"))

    path = Path("train.sh").absolute().as_posix()
    result = fix_files({path: text}, lint, unsafe=True)  # type: ignore[arg-type]
    assert not result.discarded
    return result.texts.get(path, text)


def test_the_table_is_what_the_installed_launchers_know() -> None:
    from launch_options import of_accelerate, of_torch

    rows = {*of_torch(), *of_accelerate()}
    for launcher in ("torchrun", "launch"):
        known = {option: values == "1" for name, option, values in rows if name == launcher}
        assert known == options(launcher)
    accelerate = {option: values == "1" for name, option, values in rows if name == "accelerate"}
    assert accelerate.items() <= options("accelerate").items()


def test_exclusive_options_are_options() -> None:
    for launcher, names in EXCLUSIVE.items():
        known = {option.lstrip("-").replace("-", "_") for option in options(launcher)}
        assert set(names) <= known


@pytest.mark.parametrize(
    ("line", "launcher"),
    [
        ("torchrun x.py", "torchrun"),
        ("/opt/env/bin/torchrun x.py", "torchrun"),
        ('"$VENV/bin/torchrun" x.py', "torchrun"),
        ("python -m torch.distributed.run x.py", "torchrun"),
        ("python3.11 -u -m torch.distributed.run x.py", "torchrun"),
        ("$PYTHON -m torch.distributed.launch x.py", "launch"),
        ("accelerate launch x.py", "accelerate"),
        ("accelerate-launch x.py", "accelerate"),
        ("python -m accelerate.commands.launch x.py", "accelerate"),
        ("A=1 B='2 3' torchrun x.py", "torchrun"),
        ("nohup torchrun x.py > log 2>&1 &", "torchrun"),
        ("env A=1 torchrun x.py", "torchrun"),
        ("timeout 10m torchrun x.py", "torchrun"),
        ("uv run torchrun x.py", "torchrun"),
        ("srun -l --ntasks 2 --cpu-bind=none torchrun x.py", "torchrun"),
        ("srun $OPTIONS torchrun x.py", "torchrun"),
        ("if a; then torchrun x.py; fi", "torchrun"),
        ("python tool.py --gpus 8 -- torchrun x.py", "torchrun"),
    ],
)
def test_calls_of_launchers(line: str, launcher: str) -> None:
    assert launch(line).launcher == launcher


@pytest.mark.parametrize(
    "line",
    [
        "echo torchrun x.py",
        "pip install torchrun",
        "which torchrun",
        "pkill -f torchrun",
        "# torchrun x.py",
        "echo 'torchrun x.py'",
        "cat > run.sh <<EOF\ntorchrun x.py\nEOF",
        "srun axolotl train a.yaml --launcher torchrun -- --nproc_per_nodes 8",
        "python x.py --launcher torchrun --nproc_per_nodes 8",
        "srun bash -c 'torchrun --nproc_per_nodes 8'",
        "ssh host torchrun --nproc_per_nodes 8",
        "docker run image torchrun --nproc_per_nodes 8",
        "python -m atorch.distributed.launch x.py",
        "accelerate config",
        "accelerate test --config_files x",
        "TORCHRUN=torchrun",
        "case $1 in torchrun) a;; esac",
    ],
)
def test_mentions_of_launchers(line: str) -> None:
    value = read("train.sh", line + "\n")
    assert value is None or not [each for each in value.launches if each.refused or each.script]
    assert found(line + "\n") == []


@pytest.mark.parametrize(
    ("line", "expected", "closed"),
    [
        (
            "torchrun --nnodes 2 --nproc-per-node=4 x.py --a",
            {"nnodes": "2", "nproc_per_node": "4"},
            True,
        ),
        ("torchrun --nnode=2 x.py", {"nnodes": "2"}, True),
        ("torchrun --standalone -m a.b --nnodes 2", {"standalone": "", "module": ""}, True),
        ('torchrun --nnodes "$N" x.py', {"nnodes": None}, True),
        ("torchrun --nnodes=$N x.py", {"nnodes": None}, True),
        ("torchrun --nnodes=${N:-8} x.py", {"nnodes": None}, True),
        ("torchrun --nnodes=2 $FILE --nproc_per_node 8", {"nnodes": "2"}, False),
        ('torchrun --nnodes=2 "$DIR/x.py" --nproc_per_node 8', {"nnodes": "2"}, True),
        ('torchrun --nnodes=2 "${ARGS[@]}" x.py', {"nnodes": "2"}, False),
        ("torchrun --nnodes=2 $@", {"nnodes": "2"}, False),
        ("torchrun --nnodes $@ x.py", {}, False),
        ("torchrun --standalone=true x.py", {}, False),
        ("torchrun -- x.py", {}, False),
        ("torchrun -r3 x.py", {}, False),
        # Ambiguous for some releases of Python only.
        ("torchrun --nproc 2 x.py", {}, False),
        ("torchrun --nnodes 2", {"nnodes": "2"}, False),
        ("accelerate launch --num-processes 2 x.py", {"num_processes": "2"}, True),
    ],
)
def test_options(line: str, expected: dict[str, str | None], closed: bool) -> None:
    read = launch(line)
    found = {option.name: option.value for option in read.options}
    # An option without a value has none that could be unknown.
    takes_none = {"standalone", "module"}
    assert {k: "" if k in takes_none else v for k, v in found.items()} == expected
    assert read.closed == closed
    assert read.refused == ()


ARRAY = """\
declare -a ARGS=(
  --nproc_per_node=$N  # it's a comment
  --nnodes 2 --standalone
)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ARRAY + 'torchrun "${ARGS[@]}" x.py', ["nproc_per_node", "nnodes", "standalone"]),
        (ARRAY + "torchrun ${ARGS[@]} x.py", ["nproc_per_node", "nnodes", "standalone"]),
        ('A=(--nnodes 2)\nB=("${A[@]}")\ntorchrun "${B[@]}" x.py', ["nnodes"]),
        ('A=(--nnodes)\ntorchrun "${A[@]}" 2 x.py', []),
        ('A=(--nnodes 2)\nA+=(--standalone)\ntorchrun "${A[@]}" x.py', []),
        ('A=(--nnodes 2)\nA[1]=3\ntorchrun "${A[@]}" x.py', []),
        ('if a; then A=(--nnodes 2); fi\ntorchrun "${A[@]}" x.py', []),
        ('A=(--nnodes 2)\nsource b\ntorchrun "${A[@]}" x.py', []),
        ('A=(--nnodes 2)\nread -a A\ntorchrun "${A[@]}" x.py', []),
        ('A=(--nnodes 2)\ntorchrun "${A[*]}" x.py', []),
        ('A=(--nnodes 2)\ntorchrun "a${A[@]}" x.py', []),
    ],
)
def test_options_in_an_array(text: str, expected: list[str]) -> None:
    given = launch(text)
    assert [option.name for option in given.options] == expected
    assert given.closed == bool(expected)


def test_an_array_of_two_commands_has_one_finding() -> None:
    text = "A=(--nproc_per_nodes 8)\n" + 'torchrun "${A[@]}" x.py\n' * 2
    assert found(text) == [(1, "unknown-launch-option")]


def test_fixes_in_an_array() -> None:
    text = "A=(\n  --use_env  # c\n  --nproc_per_nodes 8\n)\npython -m torch.distributed.launch"
    text += ' "${A[@]}" x.py\n'
    fixed_ = text.replace("  --use_env", "  ").replace("nodes", "node").replace(".launch", ".run")
    assert fixed(text) == fixed_


def test_places_of_options() -> None:
    text = "torchrun --nnodes 2 \\\n  --nproc-per-node='4' x.py\n"
    places = [
        (text[o.start : o.end], text[o.value_start : o.value_end]) for o in launch(text).options
    ]
    assert places == [("--nnodes 2", "2"), ("--nproc-per-node='4'", "'4'")]


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun x.py", "0,1"),
        ("CUDA_VISIBLE_DEVICES='0,1' torchrun x.py", "0,1"),
        ("export CUDA_VISIBLE_DEVICES=0,1\ntorchrun x.py", "0,1"),
        ("export CUDA_VISIBLE_DEVICES=0\nCUDA_VISIBLE_DEVICES=0,1 torchrun x.py", "0,1"),
        ("export CUDA_VISIBLE_DEVICES=0\ntorchrun x.py\nexport CUDA_VISIBLE_DEVICES=1", "0"),
        ("D=0,1\nexport CUDA_VISIBLE_DEVICES=$D\ntorchrun x.py", "0,1"),
        ("env CUDA_VISIBLE_DEVICES=0,1 torchrun x.py", "0,1"),
        ("export CUDA_VISIBLE_DEVICES=0,1\nnohup torchrun x.py &", "0,1"),
        # Nothing is known here.
        ("CUDA_VISIBLE_DEVICES=0,1\ntorchrun x.py", None),
        ("CUDA_VISIBLE_DEVICES= torchrun x.py", None),
        ("CUDA_VISIBLE_DEVICES=-1 torchrun x.py", None),
        ("CUDA_VISIBLE_DEVICES=GPU-8932f937 torchrun x.py", None),
        ("CUDA_VISIBLE_DEVICES=0,0 torchrun x.py", None),
        ("CUDA_VISIBLE_DEVICES=$1 torchrun x.py", None),
        ("export CUDA_VISIBLE_DEVICES=${D:-0}\ntorchrun x.py", None),
        ("export CUDA_VISIBLE_DEVICES=0,1\nsrun torchrun x.py", None),
        ("export CUDA_VISIBLE_DEVICES=0,1\n$RUN torchrun x.py", None),
        ("export CUDA_VISIBLE_DEVICES=0,1\nsudo torchrun x.py", None),
        ("if a; then export CUDA_VISIBLE_DEVICES=0; fi\ntorchrun x.py", None),
        ("export CUDA_VISIBLE_DEVICES=0\nunset CUDA_VISIBLE_DEVICES\ntorchrun x.py", None),
        ("export CUDA_VISIBLE_DEVICES=0\nsource a.sh\ntorchrun x.py", None),
    ],
)
def test_devices(text: str, devices: str | None) -> None:
    given = launch(text).devices
    assert (given[0] if given else None) == devices


def test_directives_of_slurm() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2 # two\n#SBATCH  --gres gpu:4\n#SBATCH -n 8\n"
        "##SBATCH --mem=1\n # SBATCH --mem=1\n #SBATCH --mem=1\n#SBATCH --qos\n\n"
        "torchrun x.py\n#SBATCH --nodes=3\n"
    )
    given = [(each.name, each.value) for each in script(text).directives]
    assert given == [("--nodes", "2"), ("--gres", "gpu:4"), ("--ntasks", "8")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python -m torch.distributed.launch x.py", ["deprecated-launcher"]),
        ("torchrun --nproc_per_nodes 8 x.py", ["unknown-launch-option"]),
        ("torchrun -nproc_per_node 8 x.py", ["unknown-launch-option"]),
        ("torchrun --num_processes 8 x.py", []),
        ("torchrun --new-option 8 x.py", []),
        ("torchrun --new-option 8 --nproc_per_nodes 8 x.py", []),
        ("accelerate launch --new_option 8 x.py", ["unknown-launch-option"]),
        ("accelerate launch --fsdp_backward_prefetch_policy A x.py", []),
        ("accelerate launch --num_process 8 x.py", ["unknown-launch-option"]),
        (
            "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 3 x.py",
            ["more-processes-than-devices"],
        ),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 x.py", []),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node gpu x.py", []),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 8 $ARGS x.py", []),
        (
            "CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node 2 --virtual-local-rank x.py",
            [],
        ),
        ("CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 8 x.py", []),
        ("#SBATCH --gres=gpu:2\nsrun torchrun --nproc_per_node 4 x.py", []),
        ("#SBATCH --gres=shard:2\ntorchrun --nproc_per_node 4 x.py", []),
        ("#SBATCH --gres=gpu:v100:2,ssd:1\ntorchrun --nproc_per_node 4 x.py", []),
        (
            "#SBATCH --gpus-per-node=v100:2\ntorchrun --nproc_per_node 4 x.py",
            ["more-processes-than-devices"],
        ),
        (
            "#SBATCH --gres=gpu:2\nCUDA_VISIBLE_DEVICES=$1 torchrun --nproc_per_node 4 x.py",
            [],
        ),
        ("torchrun --standalone --nnodes 2 x.py", ["nodes-without-rendezvous"]),
        ("torchrun --standalone --nnodes 1:2 x.py", []),
        ("torchrun --standalone --nnodes $N x.py", []),
        ("export PET_STANDALONE=0\ntorchrun --standalone --nnodes 2 x.py", []),
        ("torchrun --nnodes 2 x.py", []),
        ("torchrun --nnodes 2 --node_rank 0 x.py", []),
        ("torchrun --nnodes 2 --node_rank 1 x.py", ["nodes-without-rendezvous"]),
        ("torchrun --nnodes 2 --node_rank $1 x.py", ["nodes-without-rendezvous"]),
        ("torchrun --nnodes 2 --node_rank 0 x.py &\ntorchrun --nnodes 2 --node_rank 1 x.py", []),
        ("for r in 0 1; do torchrun --nnodes 2 --node_rank $r x.py & done", []),
        ("torchrun --nnodes 2 --node_rank 1 --master_addr a x.py", []),
        ("srun torchrun --nnodes 2 x.py", ["nodes-without-rendezvous"]),
        ("srun torchrun --nnodes 2 --rdzv_endpoint a:1 x.py", ["nodes-without-rendezvous"]),
        ("torchrun --nnodes 2 --rdzv_endpoint a:1 x.py", []),
        ("srun torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint a:1 x.py", []),
        ("srun torchrun --nnodes 2 --rdzv_backend $B --rdzv_endpoint a:1 x.py", []),
        (
            "#SBATCH --ntasks-per-node=2\nsrun torchrun --nproc_per_node 2 x.py",
            ["launcher-started-per-task"],
        ),
        ("#SBATCH --ntasks-per-node=1\nsrun torchrun --nproc_per_node 2 x.py", []),
        (f"#SBATCH --ntasks-per-node={'9' * 5000}\nsrun torchrun --nproc_per_node 2 x.py", []),
        ("#SBATCH --ntasks-per-node=²\nsrun torchrun --nproc_per_node 2 x.py", []),
        (f"#SBATCH --gres=gpu:{'0' * 5000}\ntorchrun --nproc_per_node 2 x.py", []),
        ("#SBATCH --ntasks-per-node=2\nsrun -n 1 torchrun --nproc_per_node 2 x.py", []),
        ("#SBATCH --ntasks-per-node=2\nsrun -n1 torchrun --nproc_per_node 2 x.py", []),
        ("#SBATCH --ntasks-per-node=2\nsrun $ARGS torchrun --nproc_per_node 2 x.py", []),
        ("#SBATCH --ntasks-per-node=2\nsrun torchrun --nproc_per_node 1 x.py", []),
        ("#SBATCH --ntasks-per-node=2\nsrun torchrun --nnodes $N --nproc_per_node 2 x.py", []),
        ("#SBATCH --ntasks-per-node=2\n#SBATCH -n 1\nsrun torchrun --nproc_per_node 2 x.py", []),
        (
            "#SBATCH --ntasks-per-node=2\nsrun torchrun --nproc_per_node 2 x.py $SLURM_PROCID",
            [],
        ),
        ("#SBATCH --ntasks-per-node=2\ntorchrun --nproc_per_node 2 x.py", []),
        ("accelerate launch --cpu --use_fsdp x.py", ["conflicting-launch-options"]),
        ("accelerate launch --use_fsdp x.py --cpu", []),
        ("torchrun --no_python -m x", ["conflicting-launch-options"]),
        ("torchrun -m --module x", []),
        ("torchrun --no_python --run-path -m x", []),
    ],
)
def test_findings_are_exactly_these(text: str, expected: list[str]) -> None:
    for ends in ("\n", "\r\n"):
        written = text.replace("\n", ends) + ends
        assert [rule for _, rule in found(written)] == expected


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_fixes_keep_every_other_byte(end: str) -> None:
    lines = (
        "#!/bin/bash",
        "# it's ${unread",
        "\tpython  -u -m torch.distributed.launch --use_env \\",
        "    --nproc_per_nodes=8 x.py   # c",
        "",
        'export CUDA_VISIBLE_DEVICES="0,1"',
        "torchrun --nproc_per_node \"4\" x.py 'é' >log",
        "accelerate launch --multi_gpu \\",
        "  --use_fsdp x.py",
    )
    expected = (
        "#!/bin/bash",
        "# it's ${unread",
        "\tpython  -u -m torch.distributed.run \\",
        "    --nproc_per_node=8 x.py   # c",
        "",
        'export CUDA_VISIBLE_DEVICES="0,1"',
        "torchrun --nproc_per_node \"2\" x.py 'é' >log",
        "accelerate launch \\",
        "  --use_fsdp x.py",
    )
    assert fixed(end.join(lines)) == end.join(expected)


def test_a_safe_fix_needs_the_option_that_torchrun_implies() -> None:
    safety = {}
    for options_ in ("--use_env ", "--use-env ", ""):
        (finding,) = check_text(f"python -m torch.distributed.launch {options_}x.py\n", "train.sh")
        assert finding.fix is not None
        safety[options_] = finding.fix.safety.value
    assert safety == {"--use_env ": "safe", "--use-env ": "safe", "": "unsafe"}
    for line in (
        "python -m torch.distributed.launch $ARGS x.py\n",
        "python -m 'torch.distributed.launch' x.py\n",
    ):
        (finding,) = check_text(line, "train.sh")
        assert finding.fix is None
        assert finding.fix_declined


def test_an_edit_may_not_change_other_commands() -> None:
    old = "torchrun a.py\ntorchrun b.py\n"

    def tried(start: int, end: int, text: str) -> None:
        edit = Edit(Span("train.sh", start, end), text)
        _check_script("train.sh", old, apply(old, [edit]), [edit])

    tried(9, 13, "c.py")
    for text in ("'", "c.py; ls", "c.py <<E", "$(", "c.py \\"):
        with pytest.raises(RefusedError):
            tried(9, 13, text)


REASON = "# fsdplint: ignore[unknown-launch-option] -- it is patched"


@pytest.mark.parametrize(
    "text",
    [
        f"torchrun --nproc_per_nodes 8 x.py  {REASON}\n",
        f"torchrun \\\n  --nproc_per_nodes 8 x.py  {REASON}\n",
        f"{REASON}\ntorchrun \\\n  --nproc_per_nodes 8 \\\n x.py\n",
        "# fsdplint: ignore-file[FSD912] -- x\necho ${a#b}\ntorchrun --nproc_per_nodes 8 x.py\n",
        f'echo "it\'s" ${{a#b}} (\n{REASON}\ntorchrun --nproc_per_nodes 8 x.py\n'.replace(" (", ""),
        f"a() {{\n  {REASON}\n  torchrun --nproc_per_nodes 8 x.py\n}}\n",
    ],
)
def test_comments_suppress_findings(text: str) -> None:
    assert found(text) == []


def test_a_comment_that_suppresses_nothing_is_reported() -> None:
    assert found(f"torchrun x.py  {REASON}\n") == [(1, "unused-suppression")]
    # What looks like a comment in a text is none.
    text = f"torchrun --nproc_per_nodes 8 '{REASON}'\n"
    assert found(text) == [(1, "unknown-launch-option")]


@pytest.mark.parametrize(
    "name", ["a.sh", "a.bash", "a.slurm", "a.sbatch", "a.job", "a.pbs", "a.txt", "a.fish"]
)
def test_scripts_are_found_by_their_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("torchrun --nproc_per_nodes 8 x.py\n")
    outcome = check([tmp_path], defaults(EVERYTHING))
    rules = [each.rule for each in outcome.findings]
    assert rules == ([] if name in ("a.txt", "a.fish") else ["unknown-launch-option"])


@pytest.mark.parametrize(
    "data",
    [
        b"torchrun --nproc_per_nodes 8 x.py\0",
        b"torchrun \xff\xfe --nproc_per_nodes 8 x.py",
        b"torchrun '",
        b"torchrun " + b"x" * 100_000,
        b"torchrun " + b"--nnodes 2 " * 10_000,
        b"torchrun " * 10_000,
        b"torchrun $(" * 1_000,
        b"accelerate launch\\\n" * 1_000,
        b"if torchrun; then " * 1_000,
        b"torchrun --" + b"n" * 100_000,
    ],
)
def test_hostile_scripts_end_soon_and_quietly(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.sh").write_bytes(data)
    start = time.process_time()
    outcome = check([tmp_path], defaults(EVERYTHING))
    assert time.process_time() - start < 5
    assert [error for error in outcome.failures if "internal" in error.reason] == []
    assert {each.rule for each in outcome.findings} <= {"unknown-launch-option"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Makefile", "\t" + "\\\n" * 50_000),
        ("Makefile", "\t$(" * 20_000),
        ("Makefile", "\t$(" + "(" * 50_000),
        ("Makefile", "\t" + " \t" * 50_000 + "x\n"),
        ("Dockerfile", "RUN " + "\\\n#a\n" * 20_000),
        ("Dockerfile", "RUN --a " + "--a " * 30_000),
        ("Dockerfile", "CMD [" + '"' * 50_001),
        (".github/workflows/a.yml", "run: |\n " + "${{" * 30_000),
        (".github/workflows/a.yml", "run: [[[\n"),
        (".github/workflows/a.yml", "[" * 5_000),
    ],
)
def test_hostile_files_of_other_tools_are_read_soon(path: str, text: str) -> None:
    start = time.process_time()
    read(path, text)
    assert time.process_time() - start < 5


def test_nothing_of_a_script_is_run(tmp_path: Path) -> None:
    text = f"torchrun $(touch {tmp_path}/a) `touch {tmp_path}/b` x.py\n"
    source = from_bytes(text.encode(), str(tmp_path / "a.sh"))
    assert read(source.path, source.text) is not None
    assert list(tmp_path.iterdir()) == []


MAKEFILE = """\
# it's a Makefile
GPUS = 8
ifeq ($(A),1)
train: data.txt $(wildcard *.py)
\t@torchrun --nproc_per_nodes=$(GPUS) \\
\t\ttrain.py $$HOME $(patsubst %,$(B)%,c) # x
\t-CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 x.py
\texport CUDA_VISIBLE_DEVICES=0
\ttorchrun --nproc_per_node=4 x.py
\ttorchrun $(ARGS) --nproc_per_nodes=4 x.py
\tfor i in $$(seq 3); do torchrun --nnodes=$$i x.py; done
endif
torchrun: ; echo it's
# fsdplint: ignore[unknown-launch-option] -- x
\ttorchrun --nproc_per_nodes=$(GPUS) x.py
\ttorchrun \\
\t\t--nproc_per_nodes=4 x.py
"""
DOCKERFILE = """\
FROM pytorch/pytorch  # it's
ENV A="torchrun --nproc_per_nodes 8"
RUN pip install x && \\
    # a comment
    torchrun --nproc_per_nodes 8 x.py
CMD ["torchrun", "--nproc_per_nodes", "8", "x.py"]
ENTRYPOINT torchrun --standalone --nnodes 2 x.py
LABEL torchrun --nproc_per_nodes 8
"""
WORKFLOW = """\
name: it's torchrun --nproc_per_nodes 8
jobs:
  test:
    env: {A: "torchrun --nproc_per_nodes 8"}
    steps:
      - run: torchrun --nproc_per_nodes 8 x.py
      - name: x
        run: |
          N=${{ matrix.n }}
          torchrun \\
            --nproc_per_nodes ${{ matrix.n }} x.py
      - run: >
          torchrun
          --nproc_per_nodes 8 x.py
      - run: "torchrun --nproc_per_nodes 8 x.py"
      # fsdplint: ignore[unknown-launch-option] -- x
      - run: torchrun --nproc_per_nodes 8 x.py
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("Makefile", MAKEFILE, [5, 7, 17]),
        ("rules.mk", MAKEFILE, [5, 7, 17]),
        ("Dockerfile", DOCKERFILE, [5, 6, 7]),
        ("Dockerfile.gpu", DOCKERFILE, [5, 6, 7]),
        ("train.Dockerfile", DOCKERFILE, [5, 6, 7]),
        (".github/workflows/a.yml", WORKFLOW, [6, 11]),
        ("a.yml", WORKFLOW, []),
        ("Makefile.am", MAKEFILE, []),
    ],
)
def test_commands_in_files_of_other_tools(
    tmp_path: Path, name: str, text: str, lines: list[int], end: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    written = text.replace("\n", end)
    path.write_bytes(written.encode())
    outcome = check([tmp_path], defaults(EVERYTHING))
    found = sorted(written.count("\n", 0, f.span.start) + 1 for f in outcome.findings)
    assert found == lines
    shown = {written[f.span.start : f.span.end] for f in outcome.findings}
    assert shown <= {
        "--nproc_per_nodes",
        "--nproc_per_node=4",
        "--standalone",
        '"--nproc_per_nodes"',
    }


WORDS = (
    *("--nnodes", "--nnodes=2", "--nnode=2", "--nproc-per-node=2", "--nproc_per_node", "--nproc"),
    *("--standalone", "--standalone=1", "--stand", "-m", "--module", "--rdzv", "--rdzv_id=a"),
    *("--no-python", "--no_py", "--use_env", "--use-env", "-r", "-t=3", "-r3", "--nodes", "--x=1"),
    *("--num_processes", "--num-processes=2", "--num_proc", "--multi_gpu", "--multi", "--debug"),
    *("--use-fsdp", "--config_file=a", "-q", "--quiet", "2", "2", "x.py", "x.py", "-1"),
)


@pytest.mark.parametrize("launcher", ["torchrun", "launch", "accelerate"])
@settings(max_examples=400, deadline=None)
@given(given_words=st.lists(st.sampled_from(WORDS), max_size=6))
def test_options_are_those_that_the_parsers_read(launcher: str, given_words: list[str]) -> None:
    program = {
        "torchrun": "torchrun",
        "launch": "python -m torch.distributed.launch",
        "accelerate": "accelerate launch",
    }[launcher]
    made = launch(" ".join([program, *given_words]))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = vars(PARSERS[launcher]().parse_args(given_words))
    except SystemExit:
        # It also refuses what is ambiguous behind the script, and values that are no numbers.
        others = ("ambiguous option", "invalid int value")
        assert not made.closed or any(each in said.getvalue() for each in others), said.getvalue()
        return
    assert not made.refused
    if made.closed:
        assert made.script is not None
        assert made.script.literal == arguments["training_script"]
        for option in {each.name: each for each in made.options}.values():
            value = arguments[option.name]
            assert value is True if option.value == "" else str(value) == option.value


def _of_torchrun() -> argparse.ArgumentParser:
    from torch.distributed.run import get_args_parser

    return get_args_parser()


def _of_launch() -> argparse.ArgumentParser:
    parser = _of_torchrun()
    parser.add_argument("--use-env", "--use_env", action="store_true")
    return parser


def _of_accelerate() -> argparse.ArgumentParser:
    from accelerate.commands.launch import launch_command_parser

    return launch_command_parser()


PARSERS = {"torchrun": _of_torchrun, "launch": _of_launch, "accelerate": _of_accelerate}


def test_aliases_in_a_workflow_do_not_multiply() -> None:
    lines = ["a0: &a0 [{run: torchrun --nproc-per-nodes 8 x.py}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    text = "\n".join(lines) + "\n"
    script = read("/x/.github/workflows/a.yml", text)
    assert script is not None and len(script.launches) == 1
