"""Functions of PyTorch as they are before a probe takes what they do for the script's."""

from __future__ import annotations

import torch

torch_load, torch_save = torch.load, torch.save
