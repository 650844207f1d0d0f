"""Transforms of images that are tensors already."""

from enum import Enum

import torch

InterpolationMode = Enum(
    "InterpolationMode", "NEAREST NEAREST_EXACT BILINEAR BICUBIC BOX HAMMING LANCZOS"
)


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Normalize:
    def __init__(self, mean, std, inplace=False):
        self.mean, self.std = (torch.tensor(each).view(-1, 1, 1) for each in (mean, std))

    def __call__(self, image):
        return (image - self.mean) / self.std


class RandomHorizontalFlip:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, image):
        return image.flip(-1) if torch.rand(()) < self.p else image


class _Unchanged:
    def __init__(self, *_, **__):
        pass

    def __call__(self, image):
        return image


class CenterCrop(_Unchanged):
    pass


class ColorJitter(_Unchanged):
    pass


class Lambda(_Unchanged):
    pass


class Pad(_Unchanged):
    pass


class RandomApply(_Unchanged):
    pass


class RandomCrop(_Unchanged):
    pass


class RandomGrayscale(_Unchanged):
    pass


class RandomResizedCrop(_Unchanged):
    pass


class RandomRotation(_Unchanged):
    pass


class Resize(_Unchanged):
    pass


class ToPILImage(_Unchanged):
    pass


class ToTensor(_Unchanged):
    pass
