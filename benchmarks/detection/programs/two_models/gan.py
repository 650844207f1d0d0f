"""Generator and discriminator, two sharded models and two optimizers in dicts."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

LATENT = 6
DATA = 8


class GLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.fc(x)) + x


class Generator(nn.Module):
    def __init__(self, size=16, depth=2):
        super().__init__()
        self.start = nn.Linear(LATENT, size)
        self.g_layers = nn.ModuleList([GLayer(size) for _ in range(depth)])
        self.end = nn.Linear(size, DATA)

    def forward(self, z):
        h = self.start(z)
        for g_layer in self.g_layers:
            h = g_layer(h)
        return self.end(h)


class DLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, size)

    def forward(self, x):
        return nn.functional.leaky_relu(self.fc(x), 0.2) + x


class Discriminator(nn.Module):
    def __init__(self, size=16, depth=2):
        super().__init__()
        self.start = nn.Linear(DATA, size)
        self.d_layers = nn.ModuleList([DLayer(size) for _ in range(depth)])
        self.end = nn.Linear(size, 1)

    def forward(self, x):
        h = self.start(x)
        for d_layer in self.d_layers:
            h = d_layer(h)
        return self.end(h).squeeze(-1)


def get_device():
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", torch.cuda.current_device())


def real_batch(n, device):
    return torch.randn(n, DATA, device=device) * 0.5 + 1.0


def main(iterations=3):
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = get_device()
    torch.manual_seed(0)
    models = {"g": Generator().to(device), "d": Discriminator().to(device)}

    for g_layer in models["g"].g_layers:
        fully_shard(g_layer)
    for d_layer in models["d"].d_layers:
        fully_shard(d_layer)
    for model in models.values():
        fully_shard(model)

    optim_g = torch.optim.Adam(models["g"].parameters(), lr=2e-4, betas=(0.5, 0.999))
    optim_d = torch.optim.Adam(models["d"].parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    torch.manual_seed(1 + dist.get_rank())
    for iteration in range(iterations):
        ones, zeros = torch.ones(4, device=device), torch.zeros(4, device=device)

        with torch.no_grad():
            fake = models["g"](torch.randn(4, LATENT, device=device))
        optim_d.zero_grad()
        loss_d = criterion(models["d"](real_batch(4, device)), ones)
        loss_d = loss_d + criterion(models["d"](fake), zeros)
        loss_d.backward()
        optim_d.step()

        models["d"].requires_grad_(False)
        optim_g.zero_grad()
        loss_g = criterion(models["d"](models["g"](torch.randn(4, LATENT, device=device))), ones)
        loss_g.backward()
        optim_g.step()
        models["d"].requires_grad_(True)
        if dist.get_rank() == 0:
            print(f"{iteration} d {loss_d.item():.3f} g {loss_g.item():.3f}")

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    snapshot = {
        name: get_model_state_dict(model, options=options) for name, model in models.items()
    }
    snapshot["optim_g"] = get_optimizer_state_dict(models["g"], optim_g, options=options)
    if dist.get_rank() == 0:
        torch.save(snapshot, "gan.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
