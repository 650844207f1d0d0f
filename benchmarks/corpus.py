"""What `fsdplint check` finds, by default settings, of what people labelled in public repositories.

Exits 1 if less than 90 % of the violations of R1 to R12 are found, if there is a finding where a
label says that there is nothing, or if a repository could not be judged.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from fsdplint.check import check
from fsdplint.finding import Span
from fsdplint.outcome import Outcome
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import OptIn

GOAL = 0.9
# People point at the statement's first line, or at its neighbour that matters more to them.
NEAR = 3
# What is missing is missing in the whole file, and each points at another line of it.
ABSENT = ("R10",)
# Our rules for each label's, of which one may be of two: what is wrong with an optimizer's state is
# in what is saved and in what is loaded. A label whose rule is not here has none of ours.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "R1": ("direct-forward", "custom-method-bypasses-hooks"),
    "R2": ("only-root-sharded", "root-sharded-before-children"),
    "R3": ("optimizer-before-sharding",),
    "R4": ("no-sync-under-fsdp2", "fsdp1-api-on-fsdp2-model"),
    "R5": ("sharded-state-saved", "optimizer-state-saved-raw"),
    "R6": ("clip-grad-util-on-fsdp1",),
    "R7": ("device-not-set", "global-rank-as-device"),
    "R8": ("same-data-on-every-rank", "epoch-not-set"),
    "R9": ("fsdp1-argument-to-fully-shard", "old-import-path"),
    "R10": ("process-group-not-destroyed",),
    "R11": ("full-state-dict-into-sharded-model", "optimizer-state-saved-raw"),
    # A guarded collective hangs, raises, or saves a part, by what the other ranks do.
    "R12": (
        "collective-under-rank-guard",
        "collective-after-destroy",
        "save-without-gathered-state",
    ),
    "OTHER-ASSIGN": ("parameters-replaced-after-optimizer",),
    "OTHER-DATA": ("split-differs-by-rank",),
    "OTHER-DEEPCOPY": ("deepcopy-of-sharded-model",),
    "OTHER-DEVICEMAP": ("device-map-auto",),
    "OTHER-META": ("materialized-without-init",),
    "OTHER-POLICY": ("wrap-policy-called",),
    "OTHER-SCALER": ("grad-scaler-on-fsdp1", "float16-without-scaler"),
    "OTHER-TIED": ("tied-weights-in-different-groups",),
}
MAIN = tuple(f"R{number}" for number in range(1, 13))
WRONG = ("VIOLATION", "LIKELY")
RIGHT = ("BORDERLINE", "TRAP", "CLEAN")


@dataclass(frozen=True, slots=True)
class Label:
    """What somebody says of a place in a repository.

    Attributes:
        repo: "owner/name".
        path: relative to the repository.
        line: from 1, in a notebook of its concatenated code cells; 0 for the whole file.
        rule: of R1 to R12 or OTHER-…; of CLEAN, R1 to R12 all together.
        verdict: of `WRONG` or `RIGHT`.
    """

    repo: str
    commit: str
    path: str
    line: int
    rule: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """A finding by its places, each a path and its first and last line; the first is its own.

    Attributes:
        text: the line of code that its own place begins on.
    """

    rule: str
    places: tuple[tuple[str, int, int], ...]
    text: str = ""

    def near(self, label: Label) -> bool:
        return any(
            path == label.path
            and (label.rule in ABSENT or first - NEAR <= label.line <= last + NEAR)
            for path, first, last in self.places
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """A label and the findings of its rule at its place.

    What a label of `WRONG` asks for is no finding of one of `RIGHT`.
    """

    label: Label
    found: tuple[Found, ...]


def read(file: Path) -> list[Label]:
    """The labels in a table whose columns are called like the attributes of `Label`.

    Other columns, such as the outcome of an earlier run, are left out.
    """
    names = [field.name for field in fields(Label)]
    with file.open(encoding="utf-8", newline="") as table:
        rows = [{name: row[name] for name in names} for row in csv.DictReader(table)]
    return [Label(**{**row, "line": int(row["line"])}) for row in rows]  # type: ignore[arg-type]


def judge(labels: Sequence[Label], findings: Sequence[Found]) -> list[Judged]:
    """What the findings in one repository say of its labels, in their order."""
    at = {label: [f for f in findings if _means(f, label) and f.near(label)] for label in labels}
    asked = {f for label, found in at.items() if label.verdict in WRONG for f in found}
    told = {f for found in at.values() for f in found}
    judged = []
    for label in labels:
        if label.verdict == "CLEAN":
            rest = [f for f in findings if f not in told and _means(f, label)]
            found = [f for f in rest if f.places[0][0] == label.path]
        elif label.verdict in WRONG:
            found = at[label]
        else:
            found = [f for f in at[label] if f not in asked]
        judged.append(Judged(label, tuple(found)))
    return judged


def unlabelled(judged: Iterable[Judged], findings: Iterable[Found]) -> list[Found]:
    """The findings of which the labels say nothing."""
    told = {found for one in judged for found in one.found}
    return [found for found in findings if found not in told]


def _means(found: Found, label: Label) -> bool:
    rules = MAIN if label.verdict == "CLEAN" else (label.rule,)
    return any(found.rule in GROUPS.get(rule, ()) for rule in rules)


def examine(folder: Path, limit: float, preview: bool) -> list[Found] | None:
    """The findings in a checkout, None if they take longer than ``limit`` seconds."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(folder.resolve(), preview, sender))
    worker.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(limit) else None
    except EOFError:  # it crashed, and has said how
        return None
    finally:
        worker.kill()
        worker.join()


def _work(folder: Path, preview: bool, sender: Connection) -> None:
    outcome = check([folder], defaults(OptIn(preview, pedantic=True)))
    place = partial(_place, folder, outcome)
    sender.send(
        [
            Found(
                f.rule,
                (place(f.span), *(place(evidence.span) for evidence in f.evidence)),
                _line(outcome, f.span),
            )
            for f in outcome.findings
        ]
    )


def _place(folder: Path, outcome: Outcome, span: Span) -> tuple[str, int, int]:
    position = outcome.sources[span.path].position
    path = Path(span.path).relative_to(folder).as_posix()
    return path, position(span.start)[0], position(span.end)[0]


def _line(outcome: Outcome, span: Span) -> str:
    text = outcome.sources[span.path].text
    return text[text.rfind("\n", 0, span.start) + 1 :].partition("\n")[0].strip()


def table(judged: Sequence[Judged]) -> str:
    """By the labels' rules: what is found of what is wrong, and alarms where nothing is."""
    head = f"{'rule':16}{'violations':>11}{'found':>7}{'recall':>8}{'likely':>8}{'found':>7}"
    lines = [head + "".join(f"{verdict.lower():>12}" for verdict in RIGHT)]
    named = {one.label.rule for one in judged if one.label.verdict != "CLEAN"}
    others = sorted(named - set(MAIN))
    lines += [_row(rule, (rule,), judged) for rule in MAIN]
    lines.append(_row("R1 to R12", MAIN, judged))
    return "\n".join([*lines, *(_row(rule, (rule,), judged) for rule in others)])


def _row(name: str, rules: Sequence[str], judged: Sequence[Judged]) -> str:
    own = [one for one in judged if one.label.rule in rules]
    wrong = {verdict: [one for one in own if one.label.verdict == verdict] for verdict in WRONG}
    rows = {verdict: len(wrong[verdict]) for verdict in WRONG}
    found = {verdict: sum(bool(one.found) for one in wrong[verdict]) for verdict in WRONG}
    percent = f"{100 * found['VIOLATION'] / rows['VIOLATION']:.0f} %" if rows["VIOLATION"] else "-"
    alarms = [
        sum(bool(one.found) for one in own if one.label.verdict == verdict)
        for verdict in RIGHT[:-1]
    ]
    clean = sum(len(_of(one, rules)) for one in judged if one.label.verdict == "CLEAN")
    return (
        f"{name:16}{rows['VIOLATION']:11}{found['VIOLATION']:7}{percent:>8}"
        f"{rows['LIKELY']:8}{found['LIKELY']:7}" + "".join(f"{n:12}" for n in (*alarms, clean))
    )


def _of(judged: Judged, rules: Sequence[str]) -> list[Found]:
    """The findings that labels of ``rules`` would mean."""
    return [f for f in judged.found if any(f.rule in GROUPS.get(rule, ()) for rule in rules)]


def report(judged: Sequence[Judged], rest: Mapping[str, Sequence[Found]]) -> str:
    """The table, then each miss, each alarm, and what the labels say nothing of."""
    missed = {
        verdict: [_said(one) for one in judged if _is_missed(one, verdict)] for verdict in WRONG
    }
    alarms = {
        verdict: [
            f"{_at(one.label.repo, found)}  [{one.label.rule} {one.label.line}: {one.label.reason}]"
            for one in judged
            if one.label.verdict == verdict
            for found in one.found
        ]
        for verdict in RIGHT
    }
    others = [_at(repo, found) for repo, findings in rest.items() for found in findings]
    return "\n".join(
        [
            table(judged),
            _listed("violations missed", missed["VIOLATION"]),
            _listed("likely and not found", missed["LIKELY"]),
            *(_listed(f"findings where labels say {v}", alarms[v]) for v in RIGHT),
            _listed("findings without a label", others),
        ]
    )


def _is_missed(judged: Judged, verdict: str) -> bool:
    return judged.label.verdict == verdict and not judged.found


def _said(judged: Judged) -> str:
    label = judged.label
    none = "" if label.rule in GROUPS else " (no rule)"
    return f"{label.rule}{none} {label.repo} {label.path}:{label.line} {label.reason}"


def _at(repo: str, found: Found) -> str:
    path, line, _ = found.places[0]
    return f"{found.rule} {repo} {path}:{line}"


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"\n{title} ({len(lines)})", *(f"  {line}" for line in lines)])


def passed(judged: Sequence[Judged]) -> bool:
    main = [one for one in judged if one.label.rule in MAIN and one.label.verdict == "VIOLATION"]
    alarms = [one for one in judged if one.label.verdict in ("TRAP", "CLEAN") and one.found]
    return not alarms and sum(bool(one.found) for one in main) >= GOAL * len(main)


def checkout(folder: Path, repo: str) -> Path | None:
    """Where ``folder`` holds the repository: as owner/name, or in one name with a plus sign."""
    places = (folder / repo, folder / repo.replace("/", "+"))
    return next((place for place in places if place.is_dir()), None)


def at_other_commit(place: Path, commit: str) -> bool:
    """Whether a checkout is known to be at another commit than the labels are for."""
    if not (place / ".git").exists():
        return False
    command = ["git", "-C", str(place), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    return head.strip() != commit


def _runs(
    labels: Iterable[Label], args: argparse.Namespace
) -> Iterator[tuple[str, list[Found] | None]]:
    """Each labelled repository and its findings, None with a line on standard error why."""
    places = {label.repo: checkout(args.checkouts, label.repo) for label in labels}
    commits = {label.repo: label.commit for label in labels}
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = {
            repo: pool.submit(examine, place, args.limit, args.preview)
            for repo, place in places.items()
            if place is not None and not at_other_commit(place, commits[repo])
        }
        for repo in places:
            found = runs[repo].result() if repo in runs else None
            if found is None:
                why = "took too long, or crashed" if repo in runs else "is not there at its commit"
                print(f"{repo}: not judged, since it {why}", file=sys.stderr)
            yield repo, found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", type=Path, help="a table of repo, commit, path, line, rule, …")
    parser.add_argument("checkouts", type=Path, help="a folder that holds owner/name or owner+name")
    parser.add_argument("--repository", default="", help="only repositories named like this")
    parser.add_argument("--preview", action="store_true", help="with the preview rules")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a repository")
    args = parser.parse_args(arguments)
    labels = [label for label in read(args.labels) if args.repository in label.repo]
    judged, rest, complete = list[Judged](), dict[str, list[Found]](), True
    for repo, findings in _runs(labels, args):
        if findings is None:
            complete = False
            continue
        own = judge([label for label in labels if label.repo == repo], findings)
        judged += own
        rest[repo] = unlabelled(own, findings)
    print(report(judged, rest))
    return 0 if complete and passed(judged) else 1


if __name__ == "__main__":
    raise SystemExit(main())
