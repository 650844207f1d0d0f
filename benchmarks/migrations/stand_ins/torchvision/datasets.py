"""Data sets of random images, the same in every process."""

import torch
from torch.utils.data import Dataset


class _Images(Dataset):
    size, classes_count, length = (3, 32, 32), 10, 64

    def __init__(self, root="", train=True, transform=None, target_transform=None, **_):
        generator = torch.Generator().manual_seed(int(train))
        self.data = torch.rand(self.length, *self.size, generator=generator)
        self.targets = torch.randint(self.classes_count, (self.length,), generator=generator)
        self.classes = [f"class {number}" for number in range(self.classes_count)]
        self.transform = transform

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = self.data[index]
        return (self.transform(image) if self.transform else image), int(self.targets[index])


class MNIST(_Images):
    size = (1, 28, 28)


class FashionMNIST(MNIST):
    pass


class CIFAR10(_Images):
    pass


class CIFAR100(_Images):
    classes_count = 100


class ImageFolder(_Images):
    def __init__(self, root, transform=None, **_):
        super().__init__(transform=transform)


class FakeData(_Images):
    def __init__(self, size=0, image_size=(), num_classes=10, transform=None, **_):
        self.classes_count = num_classes
        super().__init__(transform=transform)
