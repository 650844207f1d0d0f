"""FSDP1's ways, asked of FSDP2."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import (
    Judgement,
    clause,
    confirmed,
    not_exercised,
    violated,
)
from fsdplint.verify.clauses.crash import own_place, refusals
from fsdplint.verify.events import FAILED, Ended, Fsdp1Call, Sharded
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural

_METHODS = frozenset(
    {
        *("clip_grad_norm_", "summon_full_params", "module", "_fsdp_wrapped_module"),
        *("state_dict_type", "set_state_dict_type", "get_state_dict_type", "fsdp_modules"),
        *("optim_state_dict", "optim_state_dict_to_load", "full_optim_state_dict"),
        *("sharded_optim_state_dict", "shard_full_optim_state_dict", "check_is_root"),
        *("scatter_full_optim_state_dict", "flatten_sharded_optim_state_dict"),
        *("rekey_optim_state_dict", "register_comm_hook"),
    }
)
"""What an FSDP1 module has and an FSDP2 module lacks (torch 2.6 to 2.15); `no_sync` is judged by
`accumulation`."""


@clause(
    "fsdp1-calls",
    "FSDP1's functions are not called on a model that FSDP2 shards.",
    ("fsdp1-calls", "sharding"),
)
def fsdp1_calls(run: Run) -> Judgement:
    """Most of them do nothing there, without a word."""
    if not _units(run):
        return not_exercised("no module was sharded by `fully_shard`")
    refused = [(name, ended) for name, ended in refusals(run) if name in _METHODS]
    calls = [event for _, event in run.all(Fsdp1Call)]
    if calls:
        return _called(calls, [ended for _, ended in refused])
    if refused:
        name, ended = refused[0]
        figures = f"FSDP2 modules have no `{name}`; the script asks for it"
        details = (f"{ended.kind}: {ended.message}",)
        return violated(figures, details, (own_place(ended),))
    if any(rank.ended is None or rank.ended.how in FAILED for rank in run.ranks):
        return not_exercised("none until the script failed")
    return confirmed(f"none on {plural(_units(run), 'unit')}")


def _units(run: Run) -> int:
    return len({event.unit for _, event in run.all(Sharded) if event.api == "fsdp2"})


def _called(calls: list[Fsdp1Call], ended: list[Ended]) -> Judgement:
    names = list(dict.fromkeys(f"`{call.name}`" for call in calls))
    return violated(
        f"{', '.join(names)} of `FullyShardedDataParallel` called on `{calls[0].cls}`, which has "
        "nothing of FSDP1's",
        tuple(f"{e.kind}: {e.message}" for e in ended),
        tuple(call.place for call in calls),
    )
