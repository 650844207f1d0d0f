import torch
from torch import nn


class DenseBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class DenseNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.entry = nn.Linear(10, width)
        self.dense_blocks = nn.ModuleList([DenseBlock(width) for _ in range(depth)])
        self.exit = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.entry(x)
        for dense in self.dense_blocks:
            x = dense(x)
        return self.exit(x)


def make_teacher() -> DenseNet:
    return DenseNet(width=32, depth=4)


def make_student() -> DenseNet:
    return DenseNet(width=16, depth=2)
