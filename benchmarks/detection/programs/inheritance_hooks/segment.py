"""python -m torch.distributed.run --nproc-per-node 8 segment.py"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from base import BaseTrainer
from torch import nn


class Down(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


class Segmenter(nn.Module):
    def __init__(self, width=8, stages=3, classes=3):
        super().__init__()
        self.embed = nn.Conv1d(2, width, 1)
        self.stages = nn.ModuleList([Down(width) for _ in range(stages)])
        self.predict = nn.Conv1d(width, classes, 1)

    def forward(self, x):
        x = self.embed(x)
        for stage in self.stages:
            x = x + stage(x)
        return self.predict(x)


class SegmentationTrainer(BaseTrainer):
    def build_model(self):
        return Segmenter()

    def units(self):
        return self.model.stages

    def batches(self):
        for _ in range(4):
            signal = torch.randn(2, 2, 16, device=self.device)
            yield signal, (signal[:, 0] > 0).long() + (signal[:, 1] > 0).long()

    def loss(self, output, target):
        return nn.functional.cross_entropy(output, target)


def main():
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    try:
        trainer = SegmentationTrainer(epochs=2, accumulation=2, directory=Path("segments"))
        trainer.run()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
