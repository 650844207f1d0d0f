"""Mutants written by hand, for mistakes that lie in how a particular program is built.

They stand in the mutants.toml beside the program, as replacements of text that occurs once. A
mutant without a rule is a change that looks like a mistake and is none: it must stay silent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from random import Random

from benchmarks.detection.program import ROOT, Mutant, Program, mutant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    del random  # nothing is drawn
    path = ROOT / program.name / "mutants.toml"
    if not path.exists():
        return
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
        changed = {edit["file"]: program.files[edit["file"]] for edit in entry["edit"]}
        for edit in entry["edit"]:
            text = changed[edit["file"]]
            count = text.count(edit["old"])
            if count != 1:
                raise ValueError(f"{path}: {entry['kind']}: {edit['old']!r} occurs {count} times")
            changed[edit["file"]] = text.replace(edit["old"], edit["new"])
        yield mutant(program, entry.get("rule", ""), entry["kind"], changed)
