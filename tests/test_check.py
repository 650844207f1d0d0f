from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fsdplint.check import check, check_text
from fsdplint.engine.frontend import syntax
from fsdplint.engine.frontend.syntax import Syntax
from fsdplint.files.file import from_text
from fsdplint.files.invalid import InvalidSyntax
from fsdplint.outcome import Account, State
from fsdplint.report.text import summary
from fsdplint.settings.config import Settings, defaults
from fsdplint.settings.rule_selection import OptIn

SHARD = """\
from torch.distributed.fsdp import fully_shard


def shard(model):
    fully_shard(model)
"""
TRAIN = """\
import torch
from shard import shard

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
shard(model)
"""
SETTINGS = Settings(select=frozenset({"optimizer-before-sharding", "invalid-syntax"}))


def tree(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def found(*paths: Path, settings: Settings = SETTINGS) -> list[tuple[str, str]]:
    outcome = check(paths, settings)
    assert outcome.failures == ()
    return [(Path(f.span.path).name, f.rule) for f in outcome.findings]


def test_findings_reach_across_files_and_have_their_sources(tmp_path: Path) -> None:
    tree(tmp_path, **{"shard.py": SHARD, "train.py": TRAIN})
    outcome = check([tmp_path], SETTINGS)
    (finding,) = outcome.findings
    assert finding.span.path == (tmp_path / "train.py").as_posix()
    places = {evidence.span.path for evidence in finding.evidence}
    assert (tmp_path / "shard.py").as_posix() in places
    assert places <= set(outcome.sources)


def test_a_named_script_has_the_findings_in_what_it_imports(tmp_path: Path) -> None:
    helper = "def evaluate(model, batch):\n    return model.forward(batch)\n"
    imports = "from helper import evaluate\nfrom shard import shard\n"
    script = f"{imports}m = make()\nshard(m)\nevaluate(m, 1)\n"
    tree(tmp_path, **{"helper.py": helper, "shard.py": SHARD, "train.py": script})
    settings = Settings(select=frozenset({"direct-forward"}))
    outcome = check([tmp_path / "train.py"], settings)
    (finding,) = outcome.findings
    assert (Path(finding.span.path).name, finding.rule) == ("helper.py", "direct-forward")
    assert (finding.fix, finding.fix_declined) == (
        None,
        "helper.py is not among the checked paths; add it to apply the fix",
    )
    silenced = helper.replace("(batch)\n", "(batch)  # fsdplint: ignore[direct-forward]\n")
    tree(tmp_path, **{"helper.py": silenced})
    assert found(tmp_path / "train.py", settings=settings) == []


def test_only_files_that_were_asked_for_have_findings(tmp_path: Path) -> None:
    broken = SHARD + "    bad(\n"
    tree(tmp_path, **{"shard.py": SHARD, "train.py": TRAIN})
    assert found(tmp_path / "train.py") == [("train.py", "optimizer-before-sharding")]
    assert found(tmp_path / "shard.py") == []
    (tmp_path / "shard.py").write_text(broken)
    assert found(tmp_path / "train.py") == []
    assert found(tmp_path) == [("shard.py", "invalid-syntax")]


def test_a_file_of_a_project_is_checked_with_all_of_it(tmp_path: Path) -> None:
    build = "import torch\n\n\ndef build(m):\n    return torch.optim.AdamW(m.parameters())\n"
    tree(
        tmp_path,
        **{
            "lib/build.py": build,
            "lib/shard.py": SHARD,
            "run.py": "from lib.build import build\nfrom lib.shard import shard\nimport torch\n"
            "model = torch.nn.Linear(8, 8)\noptimizer = build(model)\nshard(model)\n",
        },
    )
    assert found(tmp_path / "lib/build.py") == []
    (tmp_path / "pyproject.toml").write_text("")
    assert found(tmp_path / "lib/build.py") == [("build.py", "optimizer-before-sharding")]
    assert check_text(build, str(tmp_path / "lib/build.py")) == []


def test_a_suppression_where_the_finding_is(tmp_path: Path) -> None:
    silent = TRAIN.replace("())\n", "())  # fsdplint: ignore[FSD301]\n")
    tree(tmp_path, **{"shard.py": SHARD, "train.py": silent})
    assert found(tmp_path, settings=Settings()) == []


def test_an_overlay_is_seen_in_the_place_of_files(tmp_path: Path) -> None:
    tree(tmp_path, **{"shard.py": SHARD, "train.py": TRAIN})
    moved = from_text(TRAIN.replace("shard(model)", ""), str(tmp_path / "train.py"))
    assert check([tmp_path], SETTINGS, {moved.path: moved}).findings == ()
    assert check([moved.path], SETTINGS, {moved.path: moved}).findings == ()


def test_a_given_file_is_parsed_whatever_it_is_about(tmp_path: Path) -> None:
    tree(tmp_path, **{"a.py": "def f(:\n"})
    assert found(tmp_path / "a.py") == [("a.py", "invalid-syntax")]


def test_newer_syntax_than_this_python_has_is_no_mistake() -> None:
    assert check_text("type A = int\ndef f[T](x: T) -> T: ...\nawait x\n") == []


def test_the_outcome_counts_and_orders(tmp_path: Path) -> None:
    tree(tmp_path, **{"b.py": "(\n", "a.py": ")\n", "c.py": ""})
    outcome = check([tmp_path / "b.py", tmp_path / "a.py", tmp_path / "c.py"], Settings())
    assert [Path(f.span.path).name for f in outcome.findings] == ["a.py", "b.py"]
    states = [(Path(a.path).name, a.state, a.reason) for a in outcome.accounts]
    assert states == [
        ("a.py", State.FAILED, "line 1 is not valid Python: unmatched ')'"),
        ("b.py", State.FAILED, "line 1 is not valid Python: '(' was never closed"),
        ("c.py", State.IRRELEVANT, "not part of a program that shards"),
    ]
    assert outcome.checked == 1


def test_python_that_only_the_parser_refuses_is_no_mistake_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str, *_: object) -> None:
        raise InvalidSyntax("odd", text.index("def"))

    monkeypatch.setattr("fsdplint.engine.project.project.lower", refuse)
    tree(tmp_path, **{"shard.py": SHARD})
    outcome = check([tmp_path], SETTINGS)
    reason = "line 4: the parser does not support this syntax: odd"
    assert outcome.findings == ()
    assert [(Path(e.path).name, e.reason) for e in outcome.failures] == [("shard.py", reason)]
    assert [(a.state, a.reason) for a in outcome.accounts] == [(State.FAILED, reason)]


def test_a_function_that_only_the_parser_refuses_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(text: str) -> Syntax:
        if "model = None" in text:
            raise InvalidSyntax("odd", text.index("None"))
        return syntax.parse(text)

    monkeypatch.setattr("fsdplint.engine.frontend.lower_statements.parse", parse)
    body = f"    pass{' ' * 200}\n    model = None\n"
    tree(tmp_path, **{"shard.py": f"{SHARD}def other():\n{body}other()\n"})
    outcome = check([tmp_path], SETTINGS)
    line = SHARD.count("\n") + 3
    reason = f"line {line}: the parser does not support this syntax: odd"
    assert [(a.state, a.reason) for a in outcome.accounts] == [(State.FAILED, reason)]


def test_an_import_of_a_name_too_long_for_a_file_is_of_no_file(tmp_path: Path) -> None:
    tree(tmp_path, **{"train.py": SHARD + f"import a{'.bcdefgh' * 600}\nimport {'c' * 5_000}\n"})
    outcome = check([tmp_path], SETTINGS)
    assert (outcome.findings, outcome.failures) == ((), ())
    assert [account.state for account in outcome.accounts] == [State.CHECKED]


def test_a_mistake_behind_much_data_is_found(tmp_path: Path) -> None:
    tree(tmp_path, **{"data.py": f"x = [{'1, ' * 15_000}]\ny = = 3\n"})
    (finding,) = check([tmp_path / "data.py"], SETTINGS).findings
    assert (finding.rule, finding.span.start) == ("invalid-syntax", 45_011)


def test_errors_in_the_analysis_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError

    before = threading.stack_size()
    monkeypatch.setattr("fsdplint.check._findings", crash)
    with pytest.raises(ZeroDivisionError):
        check_text("")
    assert threading.stack_size() == before


def test_a_broken_file_without_sharding_is_found_in_a_folder_too(tmp_path: Path) -> None:
    (tmp_path / "util.py").write_text("def f(:\n")
    outcome = check([tmp_path], Settings())
    assert [(f.rule, Path(f.span.path).name) for f in outcome.findings] == [
        ("invalid-syntax", "util.py")
    ]


def test_a_large_tree_says_what_it_did_not_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdplint.check._MAX_PARSED", 10)
    (tmp_path / "util.py").write_text("def f(:\n")
    (tmp_path / "train.py").write_text("from torch.distributed.fsdp import fully_shard\n")
    outcome = check([tmp_path], Settings())
    assert outcome.findings == ()
    assert summary(outcome) == "No findings in 2 files (1 without sharding)."
    util = (tmp_path / "util.py").as_posix()
    assert outcome.ended(State.IRRELEVANT) == [
        Account(util, State.IRRELEVANT, "not part of a program that shards, so not parsed")
    ]


def test_a_file_outside_of_any_project_is_seen_with_the_folders_that_it_imports(
    tmp_path: Path,
) -> None:
    """Without a marker such as `.git` only what lies beside a given file is searched."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("")
    (tmp_path / "lib" / "sharding.py").write_text(
        "from torch.distributed.fsdp import fully_shard\n\n\n"
        "def shard(model):\n    fully_shard(model)\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom lib.sharding import shard\nfrom torch import nn\n\n"
        "model = nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "shard(model)\nmodel(torch.ones(2)).sum().backward()\noptimizer.step()\n"
    )
    found = check([script], defaults()).findings
    assert [finding.rule for finding in found] == ["optimizer-before-sharding"]


def test_a_group_that_several_scripts_leave_up_names_the_end_of_each() -> None:
    folder = Path(__file__).parent / "fixtures" / "projects" / "two_scripts_one_group"
    (finding,) = check([folder], defaults(OptIn(pedantic=True))).findings
    ends = [Path(each.span.path).name for each in finding.evidence]
    assert ends == ["measure.py", "pretrain.py"]
