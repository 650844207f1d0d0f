import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from model import ModelArgs, Transformer
from parallel import apply_fsdp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh


def get_batch(args, vocab_size, device):
    data = torch.randint(vocab_size, (args.batch_size, args.seq_len + 1), device=device)
    return data[:, :-1], data[:, 1:]


def main(args):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group()
    mesh = init_device_mesh(device_type, (dist.get_world_size(),))
    rank = dist.get_rank()
    device = torch.device(device_type)

    torch.manual_seed(args.seed)
    model_args = ModelArgs()
    model = Transformer(model_args).to(device)
    apply_fsdp(model, mesh, reduce_dtype=torch.float32)

    decay = [p for p in model.parameters() if p.ndim >= 2]
    no_decay = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
        lr=args.lr,
    )

    torch.manual_seed(args.seed + 1 + rank)
    model.train()
    for step in range(args.steps):
        inputs, targets = get_batch(args, model_args.vocab_size, device)
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step={step} loss={loss.item():.3f} norm={grad_norm.item():.3f}")

    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id="dcp_checkpoint")

    export = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if rank == 0:
        torch.save({"args": vars(args), "state_dict": export}, "export.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--seq_len", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    main(parser.parse_args())
