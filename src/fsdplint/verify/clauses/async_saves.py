"""Whether checkpoints that are saved in the background finish in time."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import in_short, listed
from fsdplint.verify.events import AsyncSave
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural
from fsdplint.verify.verdict import Verdict

_MET = {"save": "when the next save started", "destroy": "when the process group was destroyed"}


@clause(
    "async-saves",
    "Each `async_save` finishes before the next one starts and before the process group ends.",
    ("async-saves",),
)
def async_saves(run: Run) -> Verdict:
    """Judge what ``async_save`` began: its threads agree through the process group."""
    found = [event for _, event in run.all(AsyncSave)]
    met = [event for event in found if event.met]
    if met:
        first = met[0]
        paths = dict.fromkeys(event.path for event in met if event.met == first.met)
        verb = "was" if len(paths) == 1 else "were"
        return violated(
            f"{listed(paths)} {verb} still being saved {_MET[first.met]}",
            (),
            (first.place, first.at),
        )
    failed = [event for event in found if event.error]
    if failed:
        first = failed[0]
        figures = f"the asynchronous save of `{first.path}` failed: {in_short(first.error)}"
        return violated(figures, (), (first.place,))
    paths = dict.fromkeys(event.path for event in found if event.done)
    if not paths:
        running = "a save was still running when the run ended"
        return not_exercised(running if found else "`async_save` was never called")
    return confirmed(f"{plural(len(paths), 'save')} finished in time: {listed(paths)}")
