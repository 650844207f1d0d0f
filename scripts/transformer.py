"""A model as transformers makes them, as far as accelerate looks."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """What a transformer repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)


class Model(nn.Module):
    """Two blocks between an embedding and a head."""

    _no_split_modules = ("Block",)
    _tied_weights_keys = None
    dtype = torch.float32

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 8)
