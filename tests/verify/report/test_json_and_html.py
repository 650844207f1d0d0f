from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from samples import ALL, CONFIRMED, LARGE, SCRIPT, UNEXPLAINED, VIOLATED, violated
from samples import summary as rank_summary
from samples import verification as made
from schemas import expect

from fsdplint.verify.report import render
from fsdplint.verify.verdict import Remedy, Verification

_VOID = {"meta", "rect"}


class Page(HTMLParser):
    """Checks that what is opened is closed, and gathers the texts by class or tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in _VOID:
            self.open.append(tag)
        for name in (tag, dict(attrs).get("class")):
            self.texts.setdefault(str(name), []).append("")

    def handle_startendtag(self, tag: str, _: object) -> None:
        assert tag == "rect"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def html(verification: Verification, folder: Path) -> str:
    return render(verification, "html", folder, color=False, width=80)


def document(verification: Verification, folder: Path, format_: str = "json") -> dict[str, object]:
    found = json.loads(render(verification, format_, folder, color=False, width=80))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", ALL)
def test_json_has_what_the_schema_says(folder: Path, name: str) -> None:
    remedy = Remedy("optimizer-before-sharding at train.py:5", "build `it` last", "fsdplint check")
    given = replace(ALL[name], remedies={"optimizer": remedy, "": remedy})
    expect(document(given, folder), "verify")
    expect(document(given, folder, "compact"), "verify-compact")


def test_json_says_everything(folder: Path) -> None:
    remedy = Remedy("optimizer-before-sharding at train.py:5", "build `it` last", "fsdplint check")
    found = document(replace(VIOLATED, remedies={"optimizer": remedy, "": remedy}), folder)
    assert found.pop("remedies") == [
        {
            "clause": clause,
            "rule": "optimizer-before-sharding at train.py:5",
            "fix": "build `it` last",
            "command": "fsdplint check",
        }
        for clause in ("optimizer", None)
    ]
    snapshots = found.pop("snapshots")
    verdicts = found.pop("verdicts")
    ranks = found.pop("ranks")
    assert found == {
        "version": 1,
        "summary": "Violated: optimizer (train.py:5), forward (train.py:10); 1 confirmed, 1 not "
        "exercised (exit 1)",
        "script": "train.py",
        "arguments": ["--lr", "0.1"],
        "torch": "2.13.0+cpu",
        "device": "cpu (CUDA mapped to CPU)",
        "world_size": 2,
        "seconds": 9.84,
        "exit_code": 1,
        "violated": ["optimizer", "forward"],
        "failure": None,
        "failed": [],
        "notes": [],
        "sharding": [
            {
                "class": "Net",
                "units": 4,
                "parameters": 8,
                "elements": 944,
                "kept": [
                    {"rank": 0, "elements": 488, "share": 0.516949},
                    {"rank": 1, "elements": 472, "share": 0.5},
                ],
            }
        ],
    }
    assert isinstance(verdicts, list)
    assert verdicts[2] == {
        "clause": "forward",
        "contract": "The contract of forward, in one sentence.",
        "status": "violated",
        "figures": "`Net.forward` bypasses the FSDP hooks (3 times)",
        "details": [],
        "places": [{"path": "train.py", "line": 10, "function": "<module>"}],
    }
    assert isinstance(ranks, list)
    assert ranks[0] == {
        "rank": 0,
        "device": "cpu (cuda:0)",
        "steps": 3,
        "ended": "steps",
        "error": None,
        "exit_status": None,
        "output": "",
        "memory": {"process": 314 * 2**20, "before": 300 * 2**20, "cuda": 0},
        "communication": [
            {"operation": "all_gather", "calls": 24, "bytes": 6144},
            {"operation": "reduce_scatter", "calls": 12, "bytes": 12288},
        ],
    }
    assert isinstance(snapshots, list)
    assert [(s["rank"], len(s["models"][0]["units"])) for s in snapshots] == [(0, 4), (1, 4)]
    parameter = snapshots[1]["models"][0]["units"][0]["parameters"][0]
    assert (parameter["name"], parameter["shape"], parameter["local_shape"]) == (
        "embedding.weight",
        [7, 16],
        [3, 16],
    )


def test_the_short_form_says_what_to_do(folder: Path) -> None:
    remedy = Remedy("optimizer-before-sharding at train.py:5", "build `it` last", "fsdplint check")
    found = document(replace(VIOLATED, remedies={"optimizer": remedy}), folder, "compact")
    assert found == {
        "version": 1,
        "summary": "Violated: optimizer (train.py:5), forward (train.py:10); 1 confirmed, 1 not "
        "exercised (exit 1)",
        "exit_code": 1,
        "violations": [
            {
                "clause": "optimizer",
                "contract": "The contract of optimizer, in one sentence.",
                "observed": "`AdamW` holds 8 parameters that sharding replaced and 0 current "
                "ones: it does not train them",
                "details": [
                    "replaced: `embedding.weight`, `blocks.0.up.weight`, `blocks.0.up.bias` and "
                    "5 more"
                ],
                "at": ["train.py:5", "train.py:7"],
                "rule": "optimizer-before-sharding at train.py:5",
                "fix": "build `it` last",
                "command": "fsdplint check",
            },
            {
                "clause": "forward",
                "contract": "The contract of forward, in one sentence.",
                "observed": "`Net.forward` bypasses the FSDP hooks (3 times)",
                "details": [],
                "at": ["train.py:10"],
                "rule": "",
                "fix": "",
                "command": "",
            },
        ],
        "confirmed": ["device-per-rank"],
        "not_exercised": ["parameters-change"],
        "failure": None,
        "notes": [],
    }


def test_the_short_form_of_a_crash(folder: Path) -> None:
    remedy = Remedy("direct-forward", "call the module", "fsdplint explain direct-forward")
    found = document(replace(UNEXPLAINED, remedies={"": remedy}), folder, "compact")
    assert (found["exit_code"], found["violations"]) == (2, [])
    assert found["failure"] == {
        "reason": UNEXPLAINED.failure,
        "rule": "direct-forward",
        "fix": "call the module",
        "command": "fsdplint explain direct-forward",
    }


@pytest.mark.parametrize("name", ALL)
def test_json_is_the_same_each_time(folder: Path, name: str) -> None:
    first = render(ALL[name], "json", folder, color=False, width=80)
    assert first == render(replace(ALL[name]), "json", folder, color=True, width=200)
    assert document(ALL[name], folder)["exit_code"] == ALL[name].exit_code


@pytest.mark.parametrize("name", ALL)
def test_a_page_is_well_formed_and_stands_alone(folder: Path, name: str) -> None:
    text = html(ALL[name], folder)
    page = Page(text)
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not re.search(r"https?:|url\(|@import|\son\w+=", text)


def test_a_page_shows_the_clauses_and_the_code(folder: Path) -> None:
    page = Page(html(VIOLATED, folder))
    assert page.texts["h3"] == ["optimizer", "forward", "device-per-rank", "parameters-change"]
    assert page.texts["figcaption"] == [
        "train.py:5 in <module>, train.py:7 in <module>",
        "train.py:10 in <module>",
    ]
    here = re.findall(r'class="line here"><i>\s*(\d+) ', html(VIOLATED, folder))
    assert here == ["5", "7", "10"]


def test_a_page_says_what_to_do(folder: Path) -> None:
    what = Remedy("direct-forward at train.py:10", "call the `module`", "fsdplint check train.py")
    text = html(replace(VIOLATED, remedies={"forward": what}), folder)
    assert Page(text).texts["dt"] == ["rule", "fix", "run"]
    assert text.count("direct-forward at train.py:10") == 1
    assert "<dd>call the <code>module</code></dd>" in text
    ended = replace(UNEXPLAINED, remedies={"": replace(what, fix="")})
    assert Page(html(ended, folder)).texts["dt"] == ["rule", "run"]


def test_a_page_draws_what_each_rank_keeps(folder: Path) -> None:
    text = html(CONFIRMED, folder)
    titles = [title for title in Page(text).texts["title"] if title.startswith("rank")]
    assert titles == [
        "rank 0 51.7%, rank 1 50.0%",
        "rank 0 57.1%, rank 1 42.9%",
        "rank 0 50.0%, rank 1 50.0%",
        "rank 0 100%, rank 1 100%",
    ]
    assert len(re.findall(r'<rect[^>]* class="whole"/>', text)) == 2


def test_equal_blocks_are_one_picture(folder: Path) -> None:
    assert html(LARGE, folder).count("<svg") == 4


def test_bars_are_parts_of_the_longest(folder: Path) -> None:
    ranks = [rank_summary(0), rank_summary(1, steps=0)]
    text = html(made([], ranks), folder)
    assert re.findall(r'class="(op\d|before|grown)" style="width:([\d.]+)%"', text) == [
        ("before", "95.24"),
        ("grown", "4.44"),
        ("before", "95.24"),
        ("grown", "4.76"),
        ("op0", "66.67"),
        ("op1", "33.33"),
    ]


def test_a_page_escapes_what_it_is_given(tmp_path: Path) -> None:
    evil = "</style><script>alert(1)</script>"
    (tmp_path / "train.py").write_text(f"x = '{evil}'\n")
    verdict = violated(evil, f"`{evil}` {evil}", [evil], 1)
    rank = replace(rank_summary(0), device=evil, output=evil, error=f"{evil}: {evil}")
    run = replace(
        made([verdict], [rank], failure=evil, notes=(evil,)),
        script=evil,
        arguments=('" onload="x',),
    )
    snapshot = replace(run.snapshots[0][0], cls=evil)
    text = html(replace(run, snapshots={0: (snapshot,)}), tmp_path)
    assert "script" not in Page(text).tags
    assert "<script" not in text
    assert text.count("</style>") == 1
