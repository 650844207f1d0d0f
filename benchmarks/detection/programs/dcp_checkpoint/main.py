"""Train with resumable distributed checkpoints."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from app_state import AppState
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard
from vit import VisionTransformer


def shard(vit: VisionTransformer) -> None:
    for block_index in range(len(vit.blocks)):
        fully_shard(vit.blocks[block_index])
    fully_shard(vit)
    assert isinstance(vit, FSDPModule)


def latest(folder: Path) -> Path | None:
    steps = sorted(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
    return steps[-1] if steps else None


def save(app: AppState, folder: Path) -> None:
    dcp.save({"app": app}, checkpoint_id=str(folder / f"step-{app.step}"))


def export(vit: VisionTransformer, path: Path) -> None:
    """One file with plain tensors for inference."""
    state = get_model_state_dict(
        vit, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() == 0:
        torch.save(state, path)


def train(args: argparse.Namespace, device: torch.device) -> None:
    torch.manual_seed(0)
    vit = VisionTransformer().to(device)
    shard(vit)
    optimizer = torch.optim.AdamW(vit.parameters(), lr=args.lr)
    app = AppState(vit, optimizer)

    folder = Path(args.folder)
    resume_from = latest(folder)
    if resume_from is not None:
        dcp.load({"app": app}, checkpoint_id=str(resume_from))

    generator = torch.Generator().manual_seed(app.step * 1000 + dist.get_rank())
    vit.train()
    while app.step < args.steps:
        patches = torch.randn(2, 9, 12, generator=generator).to(device)
        target = torch.randint(4, (2,), generator=generator).to(device)
        scores = vit(patches)
        loss = torch.nn.functional.cross_entropy(scores, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vit.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        app.step += 1
        if dist.get_rank() == 0:
            print(f"step {app.step} loss {loss.item():.4f}")
        if app.step % args.save_every == 0:
            save(app, folder)
    export(vit, folder / "vit.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--folder", default="vit-checkpoints")
    cli = parser.parse_args()

    dist.init_process_group()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    train(cli, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    dist.barrier()
    dist.destroy_process_group()
