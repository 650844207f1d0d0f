"""Settings of FSDP on launch lines and in the environment that scripts set."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fsdplint.check import check, check_text
from fsdplint.configs.launch_lines import read
from fsdplint.configs.launched import config_file, settings_with, turned_on
from fsdplint.configs.readers import Readers
from fsdplint.configs.versions import unapplied
from fsdplint.knowledge.accelerate_settings import settings
from fsdplint.knowledge.accelerate_variables import (
    OTHER_NAMES,
    SWITCH,
    launcher_sets,
    names,
    of_releases,
    setting,
    variables,
)
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
NEWEST = settings()[-1:]
UNKNOWN, IGNORED, OPTION = (
    "unknown-fsdp-variable",
    "fsdp-variable-not-applied",
    "unusable-fsdp-option",
)


def test_variables_have_the_effect_of_the_settings_that_they_stand_for() -> None:
    # The launcher does not hand on one before 0.31, and refuses values of the other.
    different = {"FSDP_ACTIVATION_CHECKPOINTING", "FSDP_SYNC_MODULE_STATES"}
    for release, of in zip(settings(), variables(), strict=True):
        assert release.release == of.release
        for name in {*names(of)} - different:
            for version in (1, 2):
                has = of.has_effect(name, version), release.has_effect(setting(name), version)
                assert has[0] == has[1], (release.release, name, version)


def test_other_names_are_of_variables() -> None:
    newest = variables()[-1]
    assert set(OTHER_NAMES.values()) <= set(names(newest))
    assert not any(each.is_known(name) for each in variables() for name in OTHER_NAMES)
    assert newest.is_known(SWITCH) and not launcher_sets((newest,), "FSDP_STATE_DICT_TYPE")
    assert of_releases(NEWEST) == (newest,)


def found(text: str) -> list[tuple[int, str]]:
    """Line and rule of each finding."""
    code = "from accelerate import Accelerator\n"
    findings = check_text(text + "\n", "train.sh", beside=[("x.py", code), ("fsdp.py", code)])
    return [(text.count("\n", 0, each.span.start) + 1, each.rule) for each in findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FSDP_STATE_DICT_TYP=x accelerate launch --use_fsdp x.py", [(1, UNKNOWN)]),
        ("env FSDP_STATE_DICT_TYP=x accelerate launch --use_fsdp x.py", [(1, UNKNOWN)]),
        ("export FSDP_STATE_DICT_TYP=$1\naccelerate launch x.py", [(1, UNKNOWN)]),
        ("export FSDP_CPU_OFFLOAD=1 A=2\naccelerate launch x.py", [(1, UNKNOWN)]),
        ("declare -x FSDP_CPU_OFFLOAD=1\nsrun accelerate launch x.py", [(1, UNKNOWN)]),
        (
            "export FSDP_CPU_OFFLOAD=1\naccelerate launch x.py\naccelerate launch y.py",
            [(1, UNKNOWN)],
        ),
        ("FSDP_CPU_OFFLOAD=1\naccelerate launch x.py", []),
        ("if a; then export FSDP_CPU_OFFLOAD=1; fi\naccelerate launch x.py", []),
        ("export FSDP_CPU_OFFLOAD=1\nunset FSDP_CPU_OFFLOAD\naccelerate launch x.py", []),
        ("export FSDP_CPU_OFFLOAD=1\nbash b.sh\naccelerate launch x.py", []),
        ("export FSDP_CPU_OFFLOAD=1\naccelerate launch x.py\n./b", []),
        ("export FSDP_CPU_OFFLOAD=1\naccelerate launch x.py $FSDP_CPU_OFFLOAD", []),
        ("export FSDP_CPU_OFFLOAD=1\ntorchrun x.py", []),
        ("export FSDP_SIZE=1\naccelerate launch x.py", []),
        ("export FSDP_GRAD_METRIC=1\naccelerate launch x.py", []),
    ],
)
def test_misspelled_variables(text: str, expected: list[tuple[int, str]]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ACCELERATE_USE_FSDP=1 torchrun x.py", [(1, IGNORED)]),
        ("ACCELERATE_USE_FSDP=yes torchrun x.py", [(1, IGNORED)]),
        ("ACCELERATE_USE_FSDP=True torchrun x.py", []),
        ("ACCELERATE_USE_FSDP=0 torchrun x.py", []),
        ("ACCELERATE_USE_FSDP=$1 torchrun x.py", []),
        ("ACCELERATE_USE_FSDP=1 torchrun x.py --fsdp full_shard", []),
        ("ACCELERATE_USE_FSDP=1 torchrun x.py $ARGS # FSDP\n", [(1, IGNORED)]),
        ("ACCELERATE_USE_FSDP=1 torchrun $ARGS x.py", []),
        ("ACCELERATE_USE_FSDP=1 accelerate launch x.py", []),
        ("export FSDP_OFFLOAD_PARAMS=true FSDP_VERSION=2\ntorchrun x.py", [(1, IGNORED)]),
        ("export FSDP_OFFLOAD_PARAMS=true\nexport ACCELERATE_USE_FSDP\ntorchrun x.py", []),
        ("export FSDP_OFFLOAD_PARAMS=true\ntorchrun fsdp.py", []),
        ("export FSDP_VERSION=2\naccelerate launch --use_fsdp x.py", [(1, IGNORED)]),
        ("export FSDP_VERSION=1\naccelerate launch --use_fsdp x.py", []),
        ("export FSDP_VERSION=2\naccelerate launch --use_fsdp --fsdp_version 2 x.py", []),
        ("export FSDP_VERSION=2\naccelerate launch --use_fsdp --fsdp_version $V x.py", []),
        ("export FSDP_VERSION=2\naccelerate launch --use_fsdp $ARGS x.py", []),
        ("export FSDP_VERSION=2\naccelerate launch --use_fsdp --config_file a.yaml x.py", []),
        ("export FSDP_VERSION=2\naccelerate launch --multi_gpu x.py", []),
        ("export FSDP_VERSION=2\naccelerate launch --use_fsdp x.py\ntorchrun x.py", []),
        ("export FSDP_VERSION=2\naccelerate launch --use_fsdp x.py --version $FSDP_VERSION", []),
        ("export FSDP_BACKWARD_PREFETCH=NO_PREFETCH\naccelerate launch --use_fsdp x.py", []),
        ("A=2\nexport FSDP_VERSION=$A\naccelerate launch --use_fsdp x.py", [(2, IGNORED)]),
    ],
)
def test_variables_without_effect(text: str, expected: list[tuple[int, str]]) -> None:
    assert found(text) == expected


ON = "export ACCELERATE_USE_FSDP=true FSDP_VERSION={} {}\ntorchrun x.py"


@pytest.mark.parametrize(
    ("version", "variable", "expected"),
    [
        ("2", "FSDP_SHARDING_STRATEGY=NO_SHARD", [(1, IGNORED)]),
        ("2", "FSDP_SHARDING_STRATEGY=FULL_SHARD", []),
        ("2", "FSDP_USE_ORIG_PARAMS=false", []),
        ("1", "FSDP_RESHARD_AFTER_FORWARD=false", [(1, IGNORED)]),
        ("1", "FSDP_RESHARD_AFTER_FORWARD=true", []),
        ("$V", "FSDP_RESHARD_AFTER_FORWARD=false", []),
    ],
)
def test_variables_of_the_other_version(
    version: str, variable: str, expected: list[tuple[int, str]]
) -> None:
    assert found(ON.format(version, variable)) == expected


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "train.py").write_text("from accelerate import Accelerator\n")
    return tmp_path


def rules(folder: Path) -> list[tuple[str, str]]:
    outcome = check([folder], defaults(EVERYTHING))
    assert not outcome.failures
    return [(Path(each.span.path).name, each.rule) for each in outcome.findings]


def test_code_that_names_a_variable_may_read_it(project: Path) -> None:
    (project / "a.sh").write_text("export FSDP_CPU_OFFLOAD=1\naccelerate launch train.py\n")
    assert rules(project) == [("a.sh", UNKNOWN)]
    for name, text in {
        "b.py": "import os\nos.environ['FSDP_CPU_OFFLOAD']\n",
        "b.yaml": "a: ${oc.env:FSDP_CPU_OFFLOAD}\n",
        "b.sh": "echo $FSDP_CPU_OFFLOAD\n",
    }.items():
        (project / name).write_text(text)
        assert rules(project) == [], name
        (project / name).unlink()
    (project / "b.sh").write_text("export FSDP_CPU_OFFLOAD=1\naccelerate launch train.py\n")
    assert rules(project) == [("a.sh", UNKNOWN), ("b.sh", UNKNOWN)]


def test_code_that_mentions_fsdp_may_turn_it_on(project: Path) -> None:
    (project / "a.sh").write_text("ACCELERATE_USE_FSDP=1 torchrun train.py\n")
    assert rules(project) == [("a.sh", IGNORED)]
    (project / "args.yaml").write_text("fsdp: full_shard\n")
    assert rules(project) == []


def test_a_script_may_turn_it_on_for_another(project: Path) -> None:
    (project / "a.sh").write_text("export FSDP_OFFLOAD_PARAMS=true\ntorchrun train.py\n")
    assert rules(project) == [("a.sh", IGNORED)]
    (project / "b.sh").write_text("export ACCELERATE_USE_FSDP=true\nbash a.sh\n")
    assert rules(project) == []


CONFIG = "distributed_type: {}\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n  {}\n"


@pytest.mark.parametrize(
    ("kind", "setting", "line", "expected"),
    [
        ("FSDP", "fsdp_offload_params: true", "--fsdp_sharding_strategy NO_SHARD", [OPTION]),
        ("FSDP", "fsdp_offload_params: true", "--fsdp_version 1 --fsdp_use_orig_params true", []),
        ("FSDP", "fsdp_reshard_after_forward: false", "--fsdp_sharding_strategy SHARD_GRAD_OP", []),
        ("FSDP", "fsdp_offload_params: true", "--multi_gpu --fsdp_offload_params true", [OPTION]),
        ("FSDP", "fsdp_offload_params: true", "--cpu --fsdp_offload_params true", []),
        ("FSDP", "fsdp_offload_params: true", "--cpu --fsdp_sharding_strategy NO_SHARD", []),
        ("MULTI_GPU", "fsdp_offload_params: true", "--use_fsdp --fsdp_version 1", []),
        ("FSDP", "fsdp_offload_params: true", "--fsdp_offload_params nothing", [OPTION]),
        # The line replaces what the file says.
        ("FSDP", "fsdp_sharding_strategy: NO_SHARD", "--fsdp_version 1", []),
        ("FSDP", "fsdp_sharding_strategy: NO_SHARD", "--fsdp_sharding_strategy FULL_SHARD", []),
        ("FSDP", "fsdp_sharding_strategy: NO_SHARD", "", ["fsdp-setting-not-applied"]),
        ("FSDP", "fsdp_sharding_strategy: NO_SHARD", "--use_fsdp", ["fsdp-setting-not-applied"]),
        ("MULTI_GPU", "fsdp_offload_params: true", "", ["fsdp-config-unused"]),
    ],
)
def test_options_with_a_config_file(
    project: Path, kind: str, setting: str, line: str, expected: list[str]
) -> None:
    (project / "fsdp.yaml").write_text(CONFIG.format(kind, setting))
    command = f"accelerate launch --config_file fsdp.yaml {line} train.py\n"
    (project / "a.sh").write_text(command)
    notes = ("no-wrap-policy", "redundant-fsdp-setting")
    assert [rule for _, rule in rules(project) if rule not in notes] == expected


@pytest.mark.parametrize(
    "line",
    [
        "--fsdp_version 1",
        "--fsdp_reshard_after_forward false",
        "--fsdp_sharding_strategy NO_SHARD",
        "--fsdp_version 1 --fsdp_sharding_strategy SHARD_GRAD_OP",
        "--fsdp_version 2 --fsdp_forward_prefetch true",
        "--fsdp_version 1 --fsdp_reshard_after_forward false",
        "--fsdp_state_dict_type LOCAL_STATE_DICT",
        "--fsdp_offload_params maybe",
        "--multi_gpu --fsdp_offload_params true",
        "--use_fsdp --fsdp_offload_params true",
    ],
)
def test_accelerate_does_with_a_line_what_is_known_of_it(tmp_path: Path, line: str) -> None:
    from accelerate_effect import effect

    text = CONFIG.format("FSDP", "fsdp_auto_wrap_policy: NO_WRAP")
    (tmp_path / "fsdp.yaml").write_text(text)
    (tmp_path / "pyproject.toml").write_text("")
    command = f"accelerate launch --config_file fsdp.yaml {line} train.py\n"
    script = read((tmp_path / "a.sh").as_posix(), command, NEWEST, Readers())
    assert script is not None
    (launch,) = script.launches
    file = config_file(script, launch)
    does = effect(text, options=tuple(line.split()))
    assert bool(turned_on(launch, file)) is (does != {"sharding": "none"})
    if does == {"sharding": "none"}:
        return
    made = settings_with(script, launch, file)
    refused = any(made.refuses(each, made.version or 0) for each in made.settings)
    assert refused is ("error" in does)
    if refused:
        return
    assert does["version"] == made.version
    for each in unapplied(made):
        option = [*line.split()]
        index = option.index(f"--{each.setting.name}")
        without = effect(text, options=(*option[:index], *option[index + 2 :]))
        assert json.dumps(without) == json.dumps(does)
