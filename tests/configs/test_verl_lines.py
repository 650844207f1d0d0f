"""Commands that train with verl: what is read of them, and the findings in them."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from fsdplint.check import check_text
from fsdplint.configs.verl_lines import VerlLine, read
from fsdplint.fixes.fixpoint import fix_files
from fsdplint.knowledge.verl_settings import (
    DECIDED_BY,
    decides,
    default,
    exists,
    has_one_engine,
    is_only_for,
    of_copy,
    settings,
)

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"
VERL = "python3 -m verl.trainer.main_ppo"
ACTOR = "actor_rollout_ref.actor"


def line(text: str, path: str = "train.sh") -> VerlLine:
    found = read(path, text, settings())
    assert found is not None
    (only,) = found.lines
    return only


def found(text: str, path: str = "train.sh") -> list[tuple[int, str]]:
    """Line and rule of each finding."""
    findings = check_text(text, path)
    return [(text.count("\n", 0, each.span.start) + 1, each.code) for each in findings]


def fixed(text: str) -> str:
    """The text after all fixes, the unsafe ones too."""

    def lint(texts: object) -> list[object]:
        assert isinstance(texts, dict)
        return list(check_text(texts[path], "train.sh"))

    path = Path("train.sh").absolute().as_posix()
    result = fix_files({path: text}, lint, unsafe=True)  # type: ignore[arg-type]
    assert not result.discarded
    return result.texts.get(path, text)


MAIN = "verl.trainer.main_ppo"
ASYNC = "verl.experimental.fully_async_policy.fully_async_main"


@pytest.mark.parametrize(
    ("command", "program", "is_whole"),
    [
        (VERL, MAIN, True),
        (f"PYTHONUNBUFFERED=1 python -m {ASYNC}", ASYNC, True),
        (f"ray job submit --address=x -- python3 -m {MAIN}", MAIN, True),
        ("python verl/trainer/main_ppo.py", MAIN, True),
        ("python3 /opt/verl/trainer/main_ppo.py", MAIN, True),
        ("python3 my_verl/trainer/main_ppo.py", "", True),
        ("python3 -m recipe.dapo.main_dapo", "", True),
        ("python3 train.py", "", True),
        (f"{VERL} --config-name my_trainer", MAIN, False),
        (f"{VERL} --config-path=config", MAIN, False),
        (f"{VERL} -cn=mine", MAIN, False),
        (f"{VERL} $MORE", MAIN, False),
        (f"{VERL} model_engine=megatron", MAIN, False),
        (f"{VERL} {ACTOR}={{strategy:fsdp}}", MAIN, False),
        (f"{VERL} {ACTOR}.fsdp_config={{strategy:fsdp}}", MAIN, False),
        (f"{VERL} -m", MAIN, False),
    ],
)
def test_programs(command: str, program: str, is_whole: bool) -> None:
    found = line(f"{command} {ACTOR}.strategy=fsdp2")
    assert (found.program, found.is_whole) == (program, is_whole)


def test_what_was_measured_is_known() -> None:
    main, own = (
        line(f"python -m {name} {ACTOR}.strategy=fsdp2") for name in (MAIN, "recipe.main_ppo")
    )
    experimental = line(f"python -m {ASYNC} {ACTOR}.strategy=fsdp2")
    other = line(f"{VERL} {ACTOR}.strategy=fsdp2 trainer.use_legacy_worker_impl=disable")
    for releases, known in ((settings(), (True, False)), (settings()[-2:], (True, True))):
        assert main.is_known(releases) is known[0]
        assert experimental.is_known(releases) is known[1]
        assert other.is_known(releases) is known[1]
        assert not own.is_known(releases)


@pytest.mark.parametrize(
    "text",
    [
        f"echo {ACTOR}.strategy=fsdp2",
        f"python3 train.py data.train_files=x  # {ACTOR}.",
        f"python3 -m verl.model_merger merge --backend fsdp  # {ACTOR}.",
        f"{VERL} '{ACTOR}.strategy=fsdp2",
        f"cat <<X\n{VERL} {ACTOR}.strategy=fsdp2\nX\n",
    ],
)
def test_other_commands(text: str) -> None:
    assert read("train.sh", text, settings()) is None


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (f"{ACTOR}.strategy=fsdp2", f"{ACTOR}.strategy", "fsdp2"),
        (f"'{ACTOR}.strategy=fsdp2'", f"{ACTOR}.strategy", "fsdp2"),
        (f'{ACTOR}.strategy="fsdp2"', f"{ACTOR}.strategy", "fsdp2"),
        (f"\"{ACTOR}.strategy='fsdp2'\"", f"{ACTOR}.strategy", "fsdp2"),
        (f"++{ACTOR}.strategy=fsdp2", f"{ACTOR}.strategy", "fsdp2"),
        (f"{ACTOR}.strategy=$UNKNOWN", f"{ACTOR}.strategy", None),
        (f"{ACTOR}.strategy=fsdp {ACTOR}.strategy=fsdp2", f"{ACTOR}.strategy", "fsdp2"),
    ],
)
def test_overrides(words: str, name: str, value: str | None) -> None:
    override = line(f"{VERL} {words}").get(name)
    assert override is not None
    assert override.value == value


def test_a_variable_with_one_literal_value_is_known() -> None:
    text = f"s=fsdp2\n{VERL} {ACTOR}.strategy=$s {ACTOR}.fsdp_config.param_offload=${{s}}"
    assert line(text).strategy("actor", settings()) == "fsdp2"


@pytest.mark.parametrize(
    ("words", "model", "strategy"),
    [
        (f"{ACTOR}.fsdp_config.fsdp_size=8", "actor", "fsdp"),
        (f"{ACTOR}.fsdp_config.fsdp_size=8", "ref", "fsdp"),
        (f"{ACTOR}.fsdp_config.fsdp_size=8", "critic", "fsdp"),
        (f"{ACTOR}.strategy=fsdp2", "actor", "fsdp2"),
        (f"{ACTOR}.strategy=fsdp2", "ref", "fsdp2"),
        (f"{ACTOR}.strategy=fsdp2", "critic", "fsdp"),
        (f"{ACTOR}.strategy=megatron", "actor", None),
        (f"{ACTOR}.strategy=$X", "actor", None),
        ("actor_rollout_ref.ref.strategy=fsdp2", "ref", None),
        (f"{ACTOR}.strategy=fsdp2 actor_rollout_ref.ref.strategy=fsdp2", "ref", "fsdp2"),
        (f"{ACTOR}.fsdp_config.fsdp_size=8 $EXTRA", "actor", None),
        (f'{ACTOR}.fsdp_config.fsdp_size=8 "${{EXTRA[@]}}"', "actor", None),
        (f'{ACTOR}.fsdp_config.fsdp_size=8 "$@"', "actor", "fsdp"),
        (f"{ACTOR}.fsdp_config.fsdp_size=8 $@", "actor", "fsdp"),
        (f"{ACTOR}.fsdp_config.fsdp_size=8 ~trainer.logger", "actor", None),
        (f"{ACTOR}.fsdp_config.fsdp_size=8 model_engine=megatron", "actor", None),
        (f"{ACTOR}.fsdp_config.fsdp_size=8 actor@{ACTOR}=mine", "actor", None),
    ],
)
def test_strategies(words: str, model: str, strategy: str | None) -> None:
    assert line(f"{VERL} {words}").strategy(model, settings()) == strategy


def test_the_newest_releases_ask_the_strategy_of_the_reference_model() -> None:
    text = f"{VERL} actor_rollout_ref.ref.strategy=fsdp2"
    assert line(text).strategy("ref", settings()[-1:]) == "fsdp2"


def test_the_words_of_an_array_count() -> None:
    text = f'A=(\n  {ACTOR}.strategy=fsdp2\n)\n{VERL} "${{A[@]}}"\n'
    assert line(text).strategy("actor", settings()) == "fsdp2"


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        (f"{ACTOR}.fsdp_config.strategy=fsdp2", ["FSD941"]),
        (f"{ACTOR}.fsdp_config.strategy=fsdp", []),
        (f"{ACTOR}.fsdp_config.strategy=fsdp2 {ACTOR}.strategy=fsdp2", []),
        (f"{ACTOR}.fsdp_config.strategy=fsdp2 {ACTOR}.strategy=fsdp", ["FSD941"]),
        (f"{ACTOR}.fsdp_config.strategy=fsdp2 {ACTOR}.strategy=$X", []),
        (f"{ACTOR}.fsdp_config.strategy=fsdp2 {ACTOR}.strategy=megatron", []),
        (f"{ACTOR}.fsdp_config.strategy=fsdp2 $X", []),
        ("actor_rollout_ref.ref.fsdp_config.strategy=fsdp2", ["FSD941"]),
        (f"{ACTOR}.strategy=fsdp2 actor_rollout_ref.ref.fsdp_config.strategy=fsdp2", []),
        (f"{ACTOR}.fsdp_config.fsdp_size=1 critic.fsdp.strategy=fsdp2", ["FSD941"]),
        (f"{ACTOR}.fsdp_config.offload_policy=True", ["FSD942"]),
        (f"{ACTOR}.fsdp_config.offload_policy=true", ["FSD942"]),
        (f"{ACTOR}.fsdp_config.offload_policy=False", []),
        (f"{ACTOR}.fsdp_config.offload_policy=$X", []),
        (f"{ACTOR}.fsdp_config.offload_policy=True {ACTOR}.strategy=fsdp2", []),
        # FSDP2 always has them.
        (f"{ACTOR}.fsdp_config.use_orig_params=True {ACTOR}.strategy=fsdp2", []),
        (f"{ACTOR}.fsdp_config.use_orig_params=True", []),
        # Releases differ: FSDP2 reads it since 0.8.
        (f"{ACTOR}.fsdp_config.forward_prefetch=True {ACTOR}.strategy=fsdp2", []),
        # It is read in other places, too.
        (f"{ACTOR}.fsdp_config.param_offload=True {ACTOR}.strategy=fsdp2", []),
        (f"{ACTOR}.fsdp_config.grad_offload=True", ["FSD943"]),
        (f"{ACTOR}.fsdp_config.grad_offload=True --config-name mine", []),
        (f"{ACTOR}.fsdp_config.grad_offload=True $X", []),
        (f"+{ACTOR}.fsdp_config.grad_offload=True", []),
        (f"++{ACTOR}.fsdp_config.fsdp_size=8", []),
        (f"+{ACTOR}.fsdp_config.fsdp_size=8", ["FSD943"]),
        # Some releases have it, and others do not.
        (f"{ACTOR}.fsdp_config.model_dtype=bf16", []),
        (f"+{ACTOR}.fsdp_config.model_dtype=bf16", []),
        (f"{ACTOR}.fsdp_config.fsdp_size=1 critic.model.fsdp_config.param_offload=True", []),
        (f"{ACTOR}.fsdp_config.fsdp_size=1 data.no_such=1", []),
    ],
)
def test_findings(words: str, codes: list[str]) -> None:
    assert [code for _, code in found(f"{VERL} {words}\n")] == codes


def test_a_finding_is_where_the_override_is() -> None:
    text = (
        f"set -x\n{VERL} \\\n  data.x=1 \\\n  {ACTOR}.fsdp_config.strategy=fsdp2 \\\n  a.b=2 $@\n"
    )
    assert found(text) == [(4, "FSD941")]


def test_a_setting_that_is_given_twice_is_reported_once() -> None:
    name = f"{ACTOR}.fsdp_config.offload_policy"
    assert found(f"{VERL} {name}=True \\\n  {name}=True\n") == [(2, "FSD942")]
    assert found(f"{VERL} {name}=True \\\n  {name}=False\n") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            f"{ACTOR}.fsdp_config.strategy=fsdp2",
            f"{ACTOR}.strategy=fsdp2",
        ),
        (
            f'"{ACTOR}.fsdp_config.strategy=fsdp2"',
            f'"{ACTOR}.strategy=fsdp2"',
        ),
        (
            f"{ACTOR}.fsdp_config.param_ofload=True",
            f"{ACTOR}.fsdp_config.param_offload=True",
        ),
        (
            f"+{ACTOR}.fsdp_config.fsdp_size=8",
            f"{ACTOR}.fsdp_config.fsdp_size=8",
        ),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_fixes_change_the_key_alone(old: str, new: str, newline: str) -> None:
    form = newline.join(
        ("# a comment", f"{VERL} \\", "  a.b=1 \\", "  {} \\", "  c.d=2  # end", "")
    )
    assert fixed(form.format(old)) == form.format(new)


def test_a_setting_is_removed_with_its_line() -> None:
    name = f"{ACTOR}.fsdp_config.offload_policy"
    assert fixed(f"{VERL} \\\n  a.b=1 \\\n  {name}=True \\\n  c.d=2\n") == (
        f"{VERL} \\\n  a.b=1 \\\n  c.d=2\n"
    )


def test_an_array_is_left_as_it_is() -> None:
    text = f'A=(\n  {ACTOR}.fsdp_config.strategy=fsdp2\n)\n{VERL} "${{A[@]}}"\n'
    assert found(text) == [(2, "FSD941")]
    assert fixed(text) == text


def project(folder: Path, **files: str) -> str:
    for name, text in files.items():
        file = folder / ("verl/__init__.py" if name == "init" else name.replace("__", "/"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / ".git").mkdir()
    return str(folder / "train.sh")


@pytest.mark.parametrize(
    ("release", "line", "program", "codes"),
    [
        ("0.9.1", "", MAIN, ["FSD941"]),
        ("0.7.0.dev", "", MAIN, ["FSD941"]),
        ("0.1", "", MAIN, []),
        ("0.10.0.dev", "", MAIN, []),
        ("main", "", MAIN, []),
        # What is between 0.7 and 0.8 may use the other engine.
        ("0.8.0.dev", "", ASYNC, []),
        ("0.8.0.dev", DECIDED_BY, ASYNC, ["FSD941"]),
        ("0.10.0.dev", DECIDED_BY, ASYNC, ["FSD941"]),
        ("0.10.0.dev", DECIDED_BY, "recipe.main_ppo", []),
    ],
)
def test_a_copy_of_verl_says_which_release_counts(
    tmp_path: Path, release: str, line: str, program: str, codes: list[str]
) -> None:
    files = {"verl__version__version": f"{release}\n", "verl__workers__config__actor.py": line}
    path = project(tmp_path, **files)
    words = f"{ACTOR}.fsdp_config.strategy=fsdp2 {ACTOR}.fsdp_config.own=1"
    assert [code for _, code in found(f"python3 -m {program} {words}\n", path)] == codes


def test_a_copy_without_a_version_is_unknown(tmp_path: Path) -> None:
    path = project(tmp_path, init="")
    assert found(f"{VERL} {ACTOR}.fsdp_config.strategy=fsdp2\n", path) == []


@pytest.mark.parametrize(
    ("pin", "codes"),
    [
        ("verl==0.7.1", ["FSD942"]),
        ("verl>=0.8", ["FSD943"]),
        ("verl==0.2", []),
    ],
)
def test_requirements_say_which_releases_count(tmp_path: Path, pin: str, codes: list[str]) -> None:
    (tmp_path / "requirements.txt").write_text(f"{pin}\n")
    path = project(tmp_path)
    prefetch = f"{ACTOR}.strategy=fsdp2 {ACTOR}.fsdp_config.forward_prefetch=True"
    text = f"{VERL} {prefetch} critic.model.fsdp_config.param_offload=True\n"
    assert [code for _, code in found(text, path)] == codes


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("param_ofload", "param_offload"),
        ("optim_offload", "optimizer_offload"),
        ("grad_offload", ""),
        ("wrap_policy.transformer_layer_cls_to_wrap", ""),
        ("wrap_policy.min_num_param", "wrap_policy.min_num_params"),
    ],
)
def test_only_a_setting_that_is_evidently_meant_is_named(name: str, meant: str) -> None:
    (finding,) = check_text(f"{VERL} {ACTOR}.fsdp_config.{name}=1\n", "train.sh")
    hint = f"; did you mean `{ACTOR}.fsdp_config.{meant}`?" if meant else ""
    assert finding.message == (
        "verl 0.4 to 0.9 refuses to start: its configuration has no setting "
        f"`{ACTOR}.fsdp_config.{name}`{hint}"
    )


def test_a_setting_that_moved_is_named(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("verl==0.9.1\n")
    path = project(tmp_path)
    text = f"{VERL} {ACTOR}.strategy=fsdp2 critic.model.fsdp_config.param_offload=True\n"
    (finding,) = check_text(text, path)
    assert "did you mean `critic.fsdp.param_offload`" in finding.message


@pytest.mark.parametrize(
    ("text", "line", "releases"),
    [
        ("0.8.0\n", "", [(0, 8)]),
        ("0.8.0\n", DECIDED_BY, [(0, 8)]),
        ("0.8.0.dev", "", [(0, 7), (0, 8)]),
        ("0.8.0.dev0", "", [(0, 7), (0, 8)]),
        ("0.8.0.dev", DECIDED_BY, [(0, 8), (0, 9)]),
        ("0.4.1.dev", "", [(0, 4)]),
        ("0.3.0", "", []),
        ("", "", []),
        ("", DECIDED_BY, [(0, 8), (0, 9)]),
    ],
)
def test_releases_of_a_copy(text: str, line: str, releases: list[tuple[int, int]]) -> None:
    assert [each.release for each in of_copy(text, line)] == releases


def test_releases_are_in_order() -> None:
    releases = [each.release for each in settings()]
    assert releases == sorted(set(releases))


STRAY = f"{ACTOR}.fsdp_config.offload_policy=True"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{VERL} \\\n  {ACTOR}.strategy=fsdp2\n  {STRAY} \\\n  a.b=1\n", [3]),
        (f"{VERL} \\\n  {ACTOR}.strategy=fsdp2 \\ \n  {STRAY}\n", [3]),
        (f"{VERL} \\\n  {ACTOR}.strategy=fsdp2 \\  # why\n  {STRAY}\n", [3]),
        (f"{VERL} \\\n  {ACTOR}.strategy=fsdp2 \\\n  # why \\\n  {STRAY}\n", [4]),
        (f"{VERL} \\\n  {ACTOR}.strategy=fsdp2 \\\n\n  {STRAY}\n", [4]),
        (f"{VERL} \\\n  {ACTOR}.strategy=fsdp2\n  a.b=1\n  c.d=2\n", [3, 4]),
        (f"{VERL} \\\n  {ACTOR}.strategy=fsdp2\n  +a.b=1\n", [3]),
        (f"{VERL} data.x=1\n  {ACTOR}.strategy=fsdp2\n", [2]),
        (f"{VERL} \\\n  {ACTOR}.strategy=fsdp2 \\\n  {STRAY} {ACTOR}.strategy=fsdp2\n", []),
        (f"{VERL} {ACTOR}.strategy=fsdp2\nx=1\n", []),
        (f"{VERL} {ACTOR}.strategy=fsdp2\necho a.b=1\n", []),
        (f"{VERL} {ACTOR}.strategy=fsdp2\necho\na.b=1\n", []),
        (f"a.b=1\n{VERL} {ACTOR}.strategy=fsdp2\n", []),
        (f"{VERL} {ACTOR}.strategy=fsdp2\n# {STRAY}\n", []),
        (f"A=(\n  {ACTOR}.strategy=fsdp2\n  # why\n  {STRAY}\n)\n{VERL} ${{A[@]}}\n", []),
    ],
)
def test_overrides_outside_the_command(tmp_path: Path, text: str, lines: list[int]) -> None:
    assert found(text) == [(number, "FSD944") for number in lines]
    if lines:
        # Bash itself: what the program gets, and which programs there are not.
        bash = ["bash", "-c", f'python3() {{ printf "got %s\\n" "$@"; }}\n{text}']
        ran = subprocess.run(bash, capture_output=True, text=True, check=False, cwd=tmp_path)
        strays = [text.splitlines()[number - 1].split()[0] for number in lines]
        assert not any(f"got {stray}" in ran.stdout for stray in strays)
        assert all(f"{stray}: command not found" in ran.stderr for stray in strays)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("", "", "a backslash is missing before it: verl starts without `a.b`"),
        (
            "",
            " $@",
            "a backslash is missing before it: verl starts without `a.b` and 1 more argument",
        ),
        (
            " \\\n",
            " c.d=1 $@",
            "an empty line ends the command: verl starts without `a.b` and 2 more arguments",
        ),
        (" \\\n # c.d=1", "", "a comment ends the command: verl starts without `a.b`"),
        (
            " \\ ",
            " $@",
            "a blank is behind the backslash before it: verl gets the blank as an argument, and "
            "refuses to start",
        ),
    ],
)
def test_what_ends_a_command_is_said(before: str, after: str, message: str) -> None:
    (finding,) = check_text(f"{VERL} {ACTOR}.strategy=fsdp2{before}\n  a.b=1{after}\n", "x.sh")
    assert finding.message == f"the shell runs this as a program of its own, since {message}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fsdp2\n", "fsdp2 \\\n"),
        ("fsdp2 \\ \n", "fsdp2 \\\n"),
        ("fsdp2 \\\n\n", "fsdp2 \\\n"),
        ("fsdp2 \\  # why\n", "fsdp2 \\  # why\n"),
        ("fsdp2 \\\n  # why\n", "fsdp2 \\\n  # why\n"),
        ("fsdp2\r\n", "fsdp2 \\\r\n"),
    ],
)
def test_a_command_is_continued(old: str, new: str) -> None:
    form = f"{VERL} {ACTOR}.strategy={{}}  {STRAY}\n"
    assert fixed(form.format(old)) == form.format(new)


def test_bad_input_is_no_verl() -> None:
    for text in ("", "actor_rollout_ref.", f"{VERL} actor_rollout_ref.=", f"{VERL} \0{ACTOR}.a=1"):
        assert found(textwrap.dedent(text)) == []


def test_the_table_says_what_is_measured() -> None:
    """A few rows that verl's code shows at a glance."""
    newest, oldest = settings()[-1], settings()[0]
    for release in settings():
        assert decides(release, f"{ACTOR}.strategy")
        assert decides(release, "critic.strategy")
        assert not decides(release, f"{ACTOR}.fsdp_config.strategy")
        assert is_only_for(release, f"{ACTOR}.fsdp_config.offload_policy", "fsdp2")
    assert [has_one_engine(release) for release in settings()] == [False] * 4 + [True] * 2
    assert default(newest, f"{ACTOR}.fsdp_config.reshard_after_forward") == "true"
    assert default(newest, f"{ACTOR}.fsdp_config.fsdp_size") == ""
    assert exists(newest, "critic.fsdp.param_offload")
    assert exists(oldest, "critic.model.fsdp_config.param_offload")
    assert not exists(newest, "critic.model.fsdp_config.param_offload")
