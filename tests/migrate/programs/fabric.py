"""Trains with Lightning's Fabric."""

import lightning
import torch
from lightning.fabric.strategies import FSDPStrategy
from torch import nn
from torch.utils.data import DataLoader


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.layer(x).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.blocks(x))

    def score(self, x):
        return self.head(self.blocks(x)).square().mean()


def main():
    fabric = lightning.Fabric(
        accelerator="cuda",
        devices=2,
        strategy=FSDPStrategy(auto_wrap_policy={Block}),
    )
    fabric.launch()
    fabric.seed_everything(0)
    model = fabric.setup_module(Net())
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-2))
    data = fabric.setup_dataloaders(DataLoader(torch.randn(64, 16), batch_size=4))
    for batch in data:
        loss = model(batch).square().mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    fabric.save("last.ckpt", {"model": model, "optimizer": optimizer, "steps": len(data)})


if __name__ == "__main__":
    main()
