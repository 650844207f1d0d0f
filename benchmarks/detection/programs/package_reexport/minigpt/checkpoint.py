import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)

from .distributed import is_main

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


def save_weights(model: nn.Module, path: str) -> None:
    """Collective: every rank gathers, the first one writes."""
    state = get_model_state_dict(model, options=FULL)
    if not is_main():
        return
    torch.save(state, path)
