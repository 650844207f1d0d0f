"""Where the installed torch itself does something else than another one that verify supports.

The only place in the tests that knows releases. Each constant says what torch does; the releases
are those that were tried, 2.6.0, 2.11.0, 2.13.0 and 2.15.0, where no other is named.
"""

from __future__ import annotations

import re
from importlib.metadata import version

from fsdplint.knowledge.torch_range import TorchRange

INSTALLED = TorchRange.parse("==" + re.match(r"[\d.]+", version("torch"))[0])
"""The release that is installed."""
_RELEASE = INSTALLED.lower[:2]

GLOO_REDUCES_LISTS = _RELEASE > (2, 6)
"""gloo has `reduce_scatter` of lists of tensors; 2.11.0 has it too."""
GLOO_EXCHANGES_LISTS = _RELEASE > (2, 11)
"""gloo has `all_to_all` of lists of tensors."""
SAVES_ALONE = _RELEASE > (2, 6)
"""`torch.distributed.checkpoint.save` and `async_save` take `no_dist`."""
DISTRIBUTING_SEEDS = _RELEASE <= (2, 6)
"""`distribute_tensor` sends all ranks the state of rank 0's generator, as random operators do."""
CLIPPED_NORM_IS_WHOLE = _RELEASE >= (2, 10)
"""`clip_grad_norm_` returns a replicated norm; up to 2.9 it returns this rank's part of it."""
OBJECTS_ARE_GATHERED_INTO_TENSORS = _RELEASE > (2, 13)
"""`all_gather_object` uses `all_gather_into_tensor`."""
