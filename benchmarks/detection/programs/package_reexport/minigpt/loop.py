from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from . import distributed
from .checkpoint import save_weights
from .config import Config
from .nn import GPT


def batches(config: Config, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    shape = (config.batch_size, config.block_size + 1)
    while True:
        tokens = torch.randint(config.vocab_size, shape, generator=generator).to(device)
        yield tokens[:, :-1], tokens[:, 1:]


def train(config: Config) -> None:
    device = distributed.init()
    torch.manual_seed(1337)
    gpt = GPT(config.vocab_size, config.n_embd, config.n_layer)
    gpt = distributed.shard(gpt.to(device))
    optimizer = torch.optim.AdamW(
        gpt.parameters(), lr=config.learning_rate, betas=config.betas, fused=False
    )
    data = batches(config, device)
    for step in range(config.max_steps):
        for micro_step in range(config.accumulate):
            x, y = next(data)
            gpt.set_requires_gradient_sync(micro_step == config.accumulate - 1)
            _, loss = gpt(x, y)
            loss.div(config.accumulate).backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if distributed.is_main():
            print(step, round(loss.item(), 4))
    save_weights(gpt, config.checkpoint)
    dist.destroy_process_group()
