"""Supervised finetuning of a Hugging Face causal language model with FSDP2."""

import argparse
import math
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    get_cosine_schedule_with_warmup,
)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B")
    parser.add_argument("--dataset", default="tatsu-lab/alpaca")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--grad-accum", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--cpu-offload", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--output", default="sft-out")
    return parser.parse_args()


def build_loader(args, tokenizer):
    dataset = load_dataset(args.dataset, split="train")
    dataset = dataset.map(
        lambda row: tokenizer(row["text"], truncation=True, max_length=1024),
        remove_columns=dataset.column_names,
    )
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    return DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, collate_fn=collator)


def load_model(args):
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float32)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def main():
    args = parse_args()
    dist.init_process_group("cpu:gloo,cuda:nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    rank = dist.get_rank()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    loader = build_loader(args, tokenizer)

    model = load_model(args)
    if not args.cpu_offload:
        model.to(device)
    kwargs = {}
    if args.bf16:
        kwargs["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    if args.cpu_offload:
        kwargs["offload_policy"] = CPUOffloadPolicy()
    for decoder_layer in model.model.layers:
        fully_shard(decoder_layer, **kwargs)
    fully_shard(model, **kwargs)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    updates = args.epochs * math.ceil(len(loader) / args.grad_accum)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * updates), updates)

    model.train()
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            batch = {key: value.to(device) for key, value in batch.items()}
            update = (i + 1) % args.grad_accum == 0 or i + 1 == len(loader)
            model.set_requires_gradient_sync(update)
            with torch.autocast("cuda", torch.bfloat16) if not args.bf16 else nullcontext():
                loss = model(**batch).loss
            (loss / args.grad_accum).backward()
            if update:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                if rank == 0:
                    print(f"epoch {epoch} batch {i} loss {loss.item():.4f}")

    full_state = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if rank == 0:
        torch.save(full_state, os.path.join(args.output, "pytorch_model.bin"))  # noqa: PTH118
        tokenizer.save_pretrained(args.output)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
