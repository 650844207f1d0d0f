"""A small torchvision: random images and a tiny network, without downloads."""

from torchvision import datasets, models, transforms, utils

__all__ = ["datasets", "models", "transforms", "utils"]
