"""A run that nobody waits for ends early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import LONG

from fsdplint.check import check
from fsdplint.outcome import Outcome, OutdatedError
from fsdplint.server.analysis import Analysis, Choices
from fsdplint.server.runs import Runs
from fsdplint.server.session import Snapshot
from fsdplint.settings.config import defaults

SCRIPT = "from torch.distributed.fsdp import fully_shard\n" + "".join(
    f"\ndef shard{number}(model):\n    fully_shard(model)\n" for number in range(5)
)


@pytest.mark.parametrize("limit", [0, 3])
def test_check_ends_with_the_entry_or_rule_in_which_its_result_is_outdated(
    limit: int, tmp_path: Path
) -> None:
    file = tmp_path / "shard.py"
    file.write_text(SCRIPT)
    asked = []

    def is_outdated() -> bool:
        asked.append(1)
        return len(asked) > limit

    with pytest.raises(OutdatedError):
        check([file], defaults(), is_outdated=is_outdated)
    assert len(asked) == limit + 1


def test_check_asks_before_each_entry_and_each_rule(tmp_path: Path) -> None:
    file = tmp_path / "shard.py"
    file.write_text(SCRIPT)
    asked = []

    def is_outdated() -> bool:
        asked.append(1)
        return False

    check([file], defaults(), is_outdated=is_outdated)
    from fsdplint.rules import RULES

    functions, top_level = 5, 1
    assert len(asked) == functions + top_level + len(RULES)


def test_a_run_learns_that_its_state_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    def endless(*_: object) -> Outcome:
        is_outdated: Callable[[], bool] = _[-1]  # type: ignore[assignment]  # the last argument
        deadline = time.monotonic() + LONG
        while not is_outdated() and time.monotonic() < deadline:
            time.sleep(0.01)
        ended.append(is_outdated())
        raise OutdatedError

    async def changed_while_it_runs() -> None:
        old = Snapshot(tmp_path.as_posix(), (), {}, Choices(), disk=0)
        state = [old]
        run = asyncio.ensure_future(Runs().outcome(old, lambda: state[0]))
        await asyncio.sleep(0.2)
        assert not ended
        state[0] = replace(old, disk=1)
        with pytest.raises(OutdatedError):
            await run

    monkeypatch.setattr(Analysis, "check", endless)
    asyncio.run(changed_while_it_runs())
    assert ended == [True]
