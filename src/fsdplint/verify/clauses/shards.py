"""Whether the script's own collectives keep different shards apart."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import listed
from fsdplint.verify.events import ShardSent
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural, ranks_in_words
from fsdplint.verify.verdict import Verdict


@clause("shards", "The script's own collectives do not mix different shards.", ("shards",))
def shards(run: Run) -> Verdict:
    """Judge collectives that write into shards of parameters or gradients."""
    sent = [event for _, event in run.all(ShardSent)]
    if not sent:
        return not_exercised("the script passes no shard of a parameter to a collective")
    mixed = [event for event in sent if len(event.ranks) > 1]
    if not mixed:
        names = {event.name for event in sent}
        return confirmed(
            f"{plural(len(names), 'parameter')} sent only to ranks that hold the same shard"
        )
    first = mixed[0]
    same = [e for e in mixed if (e.call, e.of_gradient) == (first.call, first.of_gradient)]
    changed = dict.fromkeys(event.name for event in same)
    what = "gradient shards" if first.of_gradient else "shards"
    does = "overwrites" if first.call == "broadcast" else "combines"
    return violated(
        f"`{first.call}` {does} {what} of {plural(len(changed), 'parameter')}, but "
        f"{ranks_in_words(first.ranks)} hold different shards: {listed(changed)}",
        ("FSDP has already reduced these gradients",) if first.of_gradient else (),
        tuple(event.place for event in mixed),
    )
