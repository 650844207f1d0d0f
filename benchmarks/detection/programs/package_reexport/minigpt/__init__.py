"""A small GPT, its sharding and its training loop."""

from .config import Config
from .loop import train
from .nn import GPT

__all__ = ["GPT", "Config", "train"]
