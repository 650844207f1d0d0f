"""Migrates the project's own programs with FSDP1 and proves them on two ranks:
`python -m benchmarks.migrated`.

They are the examples, the fixtures, the programs of the detection benchmark, and the examples and
proofs of the rules' pages. Each is migrated with the first answer to each question, and then runs
before and after, as `fsdplint migrate fsdp2 --yes --verify --steps all` does.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

import torch

from benchmarks.differential.corpus import programs
from benchmarks.differential.fixes import write
from benchmarks.differential.program import Program
from fsdplint.files.decoding import SourceError
from fsdplint.finding import Finding
from fsdplint.knowledge.names import FSDP1
from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.plan import Plan, make_plan
from fsdplint.migrate.step import Change, Kept, MigrationError, Question
from fsdplint.verify.equivalence import compare
from fsdplint.verify.gate import overlay
from fsdplint.verify.request import Request
from fsdplint.verify.warm_launcher import Warm
from tests.pages import read_pages

PROVEN, TOLD, DIFFERS, REFUSED = "proven", "told", "differs", "refused"
MIGRATED, UNCHANGED = "migrated", "unchanged"
_VERDICTS = (PROVEN, TOLD, MIGRATED, UNCHANGED, REFUSED, DIFFERS)
_SOURCES = ("fixtures", "examples", "benchmark")
_STAND_INS = Path(__file__).parent / "differential" / "stand_ins"
_LIMIT = 150.0
_MAKES_GROUP = re.compile(r"init_process_group|init_device_mesh|Accelerator\(|Trainer\(|Fabric\(")
_TRAINS_NOTHING = "the script trains nothing before the migration"
_SAYS_NOTHING = "so that it says nothing"
_NOTHING_SHARDED = "no module became an FSDP unit"
_GROUP = "import torch.distributed as group\n\ngroup.init_process_group()\n"
_READS = re.compile(r"torch\.load\(\"([\w-]+\.pt)\"")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a program.

    Attributes:
        verdict: `TOLD` if it differs where the plan says so; `MIGRATED` and `UNCHANGED` if the
            original does not run to its end on two ranks, or trains nothing with FSDP1.
        reasons: why it is not proven.
        figures: what the proof compared.
    """

    name: str
    verdict: str
    reasons: tuple[str, ...]
    figures: tuple[str, ...] = ()


def fsdp1_programs() -> Iterator[Program]:
    """Yield the project's programs that use FSDP1, as they run on ranks."""
    for program in chain(programs(0, _SOURCES), _proofs()):
        if any(FSDP1.rpartition(".")[2] in text for text in program.files.values()):
            yield _runnable(program)


def _proofs() -> Iterator[Program]:
    for page in read_pages():
        for proof in page.proofs:
            if proof.ranks == 2:
                yield Program(
                    f"proofs/{page.name}-{proof.line}", {"proof.py": proof.text}, "proof.py"
                )


def _runnable(program: Program) -> Program:
    """Add the modules that fixtures import, the group that a snippet runs in, and few steps."""
    files = {path.name: path.read_text("utf-8") for path in _STAND_INS.glob("*.py")}
    files |= {"pyproject.toml": "", **program.files}
    if not any(map(_MAKES_GROUP.search, files.values())):
        files[program.entry] = _GROUP + files[program.entry]
    few = ("--steps", "6") if '"--steps"' in files[program.entry] else program.arguments[0]
    return Program(program.name, files, program.entry, (few,))


def proved(program: Program, launcher: Warm | None) -> Result:
    """Migrate a program and run it before and after; without ``launcher``, do not run it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write(program.files, folder)
        _write_data(program, folder)
        try:
            plan = _answered(folder / program.entry)
        except (MigrationError, SourceError) as error:
            return Result(program.name, REFUSED, (str(error),))
        if not plan.is_complete:
            return Result(program.name, REFUSED, tuple(_reasons(plan)))
        files = overlay(plan.files, folder)
        if launcher is not None:
            request = Request(program.entry, program.arguments[0], 2, None, "cpu", _LIMIT)
            corrected = overlay(plan.corrected, folder)
            found = compare(request, folder, files, launcher, lambda _: None, corrected=corrected)
        for path, data in files.items():
            (folder / path).write_bytes(data)
        again = _answered(folder / program.entry)
    if plan.files and (again.files or not again.is_complete):
        return Result(program.name, DIFFERS, ("a second migration does not leave it as it is",))
    without_run = Result(program.name, MIGRATED if plan.files else UNCHANGED, ())
    if launcher is None:
        return without_run
    idle = replace(without_run, reasons=(found.refusal,))
    if found.after is None or _SAYS_NOTHING in found.refusal:
        return idle
    if any(each.figures == _NOTHING_SHARDED for each in found.before.verdicts):
        return replace(idle, reasons=("the script does not get to its FSDP1",))
    if found.refusal.startswith(_TRAINS_NOTHING):
        return replace(idle, figures=found.figures)
    if found.refusal:
        said = tuple(_differences(plan))
        verdict = TOLD if said else DIFFERS
        return Result(program.name, verdict, (found.refusal, *said), found.figures)
    return Result(program.name, PROVEN, (), found.figures)


def _write_data(program: Program, folder: Path) -> None:
    """Write the tensors that a program reads and does not save itself: batches of tokens."""
    text = "".join(program.files.values())
    for name in set(_READS.findall(text)):
        if not re.search(rf"save\(.*{name}", text):
            made = torch.Generator().manual_seed(len(name))
            torch.save(torch.randint(64, (6, 4, 8), generator=made), folder / name)


def _answered(script: Path) -> Plan:
    answers: dict[str, str] = {}
    while asked := (plan := make_plan(FSDP2, [str(script)], answers)).of(Question):
        for entry in asked:
            assert isinstance(entry.found, Question)
            answers[entry.key] = entry.found.choices[0]
    return plan


def _differences(plan: Plan) -> Iterator[str]:
    """Yield what the plan says is different afterwards."""
    for entry in plan.of(Change):
        assert isinstance(entry.found, Change)
        if entry.found.differs:
            yield f"{entry.line}: {entry.found.differs}"


def _reasons(plan: Plan) -> Iterator[str]:
    for entry in plan.of(Kept):
        assert isinstance(entry.found, Kept)
        yield f"{entry.line}: {entry.found.what}: {entry.found.reason}"
    for finding in plan.new:
        yield _finding(finding)


def _finding(finding: Finding) -> str:
    return f"new finding of {finding.rule}: {finding.message}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a program differs."""
    options = _options(arguments)
    chosen = [p for p in fsdp1_programs() if any(each in p.name for each in options.only)]
    results = []
    with nullcontext() if options.plans else Warm() as launcher:
        for program in chosen[options.part :: options.parts]:
            result = proved(program, launcher)
            results.append(result)
            print(
                f"{result.verdict:9} {result.name}", *result.reasons, sep="\n         ", flush=True
            )
    counts = Counter(result.verdict for result in results)
    print(*(f"{counts[each]} {each}" for each in _VERDICTS), sep=", ")
    if options.json:
        Path(options.json).write_text(json.dumps(list(map(asdict, results)), indent=1))
    return int(counts[DIFFERS] > 0)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.migrated", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="only programs named like this")
    parser.add_argument("--plans", action="store_true", help="migrate, and run nothing")
    parser.add_argument("--json", help="write every result to this file")
    parser.add_argument("--part", type=int, default=0, help="only this one of the parts, from 0")
    parser.add_argument("--parts", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
