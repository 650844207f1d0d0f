"""Whether a program still computes and saves the same after it was migrated: two runs, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import click

from fsdplint.process.terminal import printable, status_line
from fsdplint.verify.changed_lines import added, how_many_ran
from fsdplint.verify.command import ensure_torch
from fsdplint.verify.differences import Compared
from fsdplint.verify.equivalence_figures import Losses, figures, idle, losses, structure, values
from fsdplint.verify.events import Backward, ProbeFailed, Sharded, Started, Step
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural
from fsdplint.verify.judge import failures, judge
from fsdplint.verify.launch import Launcher
from fsdplint.verify.request import Request
from fsdplint.verify.run import check_request, observe
from fsdplint.verify.verdict import Status, Verification, is_violated
from fsdplint.verify.warm_launcher import Warm
from fsdplint.verify.workspace import VerifyError, workspace

# Violated, it costs memory and changes no value. A program without FSDP holds the whole model, too.
_BLOCKS = "blocks"
_CORRECTED = "compared instead: the script with the mistakes corrected that the plan names"
_RECORDING = {
    "record": "what it computes and saves",
    "gradients": "its losses",
    "saves": "what it saves",
}
"""The probes that the comparison needs, and what each looks at."""


@dataclass(frozen=True, slots=True)
class Equivalence:
    """What runs of a program before and after a migration show.

    Attributes:
        after: None if the program fails before the migration, so that it was not run afterwards.
        figures: one line for each kind of thing that was compared.
        refusal: why the migration is not proved; empty if it is.
    """

    before: Verification
    after: Verification | None
    figures: tuple[str, ...]
    refusal: str


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A run with its record in `folder`."""

    run: Run
    verification: Verification
    folder: Path


def compare(
    request: Request,
    directory: Path,
    overlay: Mapping[str, bytes],
    launcher: Launcher,
    progress: Callable[[str], None],
    *,
    corrected: Mapping[str, bytes] | None = None,
    before_ranks: int | None = None,
    shards: bool = True,
) -> Equivalence:
    """Run the script as it is and with `overlay`, and compare what the runs compute and save.

    Args:
        overlay: the migrated files, by their path in the directory.
        corrected: the files as they are without mistakes that the migration corrects; compared if
            the script as it is does something else.
        before_ranks: how many ranks the script is for before the migration, if not as many as after
            it. The runs on so many are compared; the run on the request's must only train.
        shards: the migrated script has to use ``fully_shard``.

    Raises:
        VerifyError: as `verify`.
    """
    check_request(request, directory)
    comparison = _Comparison(
        request, directory, overlay, launcher, progress, before_ranks or request.ranks, shards
    )
    found = comparison.run({})
    if not found.refusal or not corrected:
        return found
    second = comparison.run(corrected)
    if second.refusal == found.refusal:
        return found
    return replace(second, figures=(f"as it is: {found.refusal}", _CORRECTED, *second.figures))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The arguments of `compare`."""

    request: Request
    directory: Path
    overlay: Mapping[str, bytes]
    launcher: Launcher
    progress: Callable[[str], None]
    ranks: int
    shards: bool

    def run(self, original: Mapping[str, bytes]) -> Equivalence:
        """Compare the script with the `original` files and with the migrated ones."""
        with workspace() as folder:
            before = self._run("original", folder / "before", original, self.ranks)
            if reason := _failure(before, "the script fails before the migration") or _idle(before):
                return Equivalence(before.verification, None, (), reason)
            after = self._run("migrated", folder / "after", self.overlay, self.ranks, before)
            runs = [after]
            if self.ranks != self.request.ranks:
                wanted = self.request.ranks
                runs.append(self._run("migrated", folder / "trained", self.overlay, wanted))
            trained = runs[-1]
            for each in runs:
                if reason := _unsound(each, before, self.shards):
                    return Equivalence(before.verification, trained.verification, (), reason)
            found, seen = _compared(before, after)
            reason = idle(found) or structure(found, seen)
            if not reason and (reason := values(found, seen)):
                again = self._run("original", folder / "again", original, self.ranks, before)
                reason = _by_chance(before, again) or reason
            if not reason and trained is not after:
                reason = _does_not_train(trained)
            shown = chain(
                (*figures(found, seen), _clauses(trained)),
                _ranks_apart(after, trained),
                _device(trained),
                self._changed(original, trained),
            )
            return Equivalence(before.verification, trained.verification, tuple(shown), reason)

    def _run(
        self,
        script: str,
        record: Path,
        overlay: Mapping[str, bytes],
        ranks: int,
        origin: _Recorded | None = None,
    ) -> _Recorded:
        """Run the `script`, which begins where `origin` began, and leave its record in `record`."""
        self.progress(f"running the {script} script on {plural(ranks, 'rank')}")
        record.mkdir()
        begin = "" if origin is None else str(origin.folder)
        watched = tuple(overlay) if script == "migrated" else ()
        wanted = replace(
            self.request, ranks=ranks, record=str(record), origin=begin, watched=watched
        )
        run = observe(wanted, self.directory, overlay, self.launcher, self.progress)
        return _Recorded(run, judge(wanted, run), record)

    def _changed(self, original: Mapping[str, bytes], trained: _Recorded) -> Iterator[str]:
        """Yield how many of the lines that the migration adds were run; notebooks have none."""
        lines = {}
        for path, after in self.overlay.items():
            if path.endswith(".py"):
                before = original.get(path) or (self.directory / path).read_bytes()
                lines[path] = added(before, after)
        if lines:
            yield how_many_ran(trained.run, lines)


def _by_chance(before: _Recorded, again: _Recorded) -> str:
    """Return how two runs of one script differ; empty if they do not."""
    if _failure(again, "it fails"):
        return ""
    differ = values(*_compared(before, again))
    return differ and f"two runs of the original script differ, too: {differ}"


def _compared(before: _Recorded, after: _Recorded) -> tuple[Compared, Losses]:
    from fsdplint.verify.rank.equivalence.compare import compare as of_folders  # needs PyTorch

    return of_folders(before.folder, after.folder), losses(before.run, after.run)


def _failure(recorded: _Recorded, what: str) -> str:
    """Return why a run says nothing; empty if it ended well and all of it was recorded."""
    run = recorded.run
    if failures(run) or run.stall is not None or not run.ranks:
        return f"{what}: {recorded.verification.failure.splitlines()[0]}"
    lost = next((p for _, p in run.all(ProbeFailed) if p.probe in _RECORDING), None)
    return f"{_RECORDING[lost.probe]} could not be recorded: {lost.error}" if lost else ""


def _idle(recorded: _Recorded) -> str:
    """Return why a run trains nothing; empty if it does."""
    for kind, what in ((Backward, "no backward pass from a loss"), (Step, "no optimizer step")):
        if not recorded.run.all(kind):
            return f"the script trains nothing before the migration: it has {what}"
    return ""


def _unsound(after: _Recorded, before: _Recorded, shards: bool) -> str:
    """Return what is wrong with a run of the migrated script alone."""
    on = f" on {plural(len(after.run.ranks), 'rank')}" * (after.run.world_size == 1)
    if reason := _failure(after, f"the migrated script fails{on}"):
        return reason
    if shards and not any(unit.api == "fsdp2" for _, unit in after.run.all(Sharded)):
        return "the migrated script shards nothing with `fully_shard`"
    violated = {verdict.clause for verdict in before.verification.violated}
    if not before.run.all(Sharded):
        violated.add(_BLOCKS)
    for verdict in after.verification.violated:
        if verdict.clause not in violated:
            return f"`{verdict.clause}` is newly violated after the migration ({verdict.figures})"
    return ""


def _does_not_train(trained: _Recorded) -> str:
    """Return why a run on more ranks than before does not train; empty if it does."""
    from fsdplint.verify.rank.equivalence.compare import moved

    on = f"on {plural(len(trained.run.ranks), 'rank')}"
    if not all(event.finite for _, event in trained.run.all(Backward)):
        return f"{on}, a loss of the migrated script is not finite"
    if not moved(trained.folder):
        return f"{on}, the migrated script changes no parameter"
    return ""


def _clauses(after: _Recorded) -> str:
    verdicts = after.verification.verdicts
    confirmed = sum(verdict.status is Status.CONFIRMED for verdict in verdicts)
    still = [f"`{verdict.clause}`" for verdict in filter(is_violated, verdicts)]
    was = f"{', '.join(still)} violated, but no more than before" if still else "none violated"
    return f"clauses: {confirmed} confirmed, {was}"


def _ranks_apart(after: _Recorded, trained: _Recorded) -> Iterator[str]:
    if trained is not after:
        on = plural(len(trained.run.ranks), "rank")
        yield f"{on}: the migrated script trains; what it computes there was not compared"


def _device(after: _Recorded) -> Iterator[str]:
    if any(started.shimmed for _, started in after.run.all(Started)):
        yield "device: the CPU stood in for GPUs, so this says nothing of what only they do"


def proved(
    request: Request,
    overlay: Mapping[str, bytes],
    *,
    corrected: Mapping[str, bytes] | None = None,
    before_ranks: int | None = None,
    shards: bool = True,
) -> bool:
    """Run the script in the working directory before and after a migration, report what the runs
    show on standard error, and return whether the migration may be written.

    The other arguments are those of `compare`.
    """
    ensure_torch()
    directory = Path.cwd()
    _print(
        f"fsdplint: running {request.script} on {_ranks(request, before_ranks)} before and after "
        f"the migration, in scratch copies of {directory}; files it writes elsewhere stay"
    )
    try:
        with status_line() as progress, Warm() as launcher:
            found = compare(
                *(request, directory, overlay, launcher, progress),
                corrected=corrected,
                before_ranks=before_ranks,
                shards=shards,
            )
    except VerifyError as error:
        raise click.ClickException(str(error)) from error
    for line in found.figures:
        _print(line)
    if found.refusal:
        _print(f"Nothing was written: {found.refusal}.")
    return not found.refusal


def _ranks(request: Request, before: int | None) -> str:
    after = plural(request.ranks, "rank")
    return f"{before} and {after}" if before not in (None, request.ranks) else after


def _print(text: str) -> None:
    click.echo(printable(text), err=True)
