"""Names of functions and methods by which code causes what rules ask about.

The events themselves are told by canonical names and by what values are; these say where to look
for them: a branch that calls something of such a name is worth following apart.
"""

from __future__ import annotations

EVENT_NAMES = frozenset(
    {
        "no_sync",
        "state_dict",
        "parameters",
        "named_parameters",
        "save",
        "async_save",
        "save_file",
        "dump",
        "param_groups",
        "forward",
        "prepare",
        "unshard",
        "register_fsdp_forward_method",
        "set_requires_gradient_sync",
        "set_requires_all_reduce",
        "clip_grad_norm_",
        "clip_grad_norm",
        "get_total_norm",
    }
)

# As code that trains calls them.
TRAINING_CALLS = (".backward(", ".step(")
