from __future__ import annotations

from pathlib import Path

from fsdplint.check import check
from fsdplint.settings.config import defaults

_SCRIPTS = Path(__file__).parent.parent / "fixtures/scripts/only-root-sharded"


def test_no_loop_is_put_before_a_call_that_shards_a_model_without_blocks_as_well() -> None:
    (finding,) = check([_SCRIPTS / "chosen_by_an_option.py"], defaults()).findings
    assert (finding.fix, finding.fix_declined) == (
        None,
        "the call shards several models, which do not all have blocks at the same paths; shard the "
        "blocks of each model by hand",
    )
