"""Trains with Lightning's trainer."""

import lightning
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.layer(x).relu()


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(3)), nn.Linear(16, 4))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.blocks(x) * self.scale

    def training_step(self, batch):
        loss = self(batch[0]).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch):
        self.log("valid", self(batch[0]).square().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.trainer.model.parameters(), lr=1e-2)


def main():
    lightning.seed_everything(0)
    data = DataLoader(TensorDataset(torch.randn(64, 16)), batch_size=4, shuffle=True)
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=2,
        strategy=FSDPStrategy(auto_wrap_policy={Block}),
        max_epochs=1,
        enable_progress_bar=False,
        logger=False,
    )
    trainer.fit(Model(), data, data)
    trainer.save_checkpoint("last.ckpt")


if __name__ == "__main__":
    main()
