"""The training step."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parallel import parallelize


class Trainer:
    def __init__(self, model, mesh, steps):
        self.model = model
        # The learning rate falls to zero on the last step.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, steps)
        parallelize(self.model, mesh)

    def step(self, tokens):
        logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        total = loss.detach()
        dist.all_reduce(total)
        return total.item() / dist.get_world_size()
