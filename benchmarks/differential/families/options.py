"""Options for the local rank, in command lines that do not always need one."""

from benchmarks.differential.families.family import Family

_TRAIN = """
def train(local_rank):
    dist.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    torch.manual_seed(0)
    model = nn.Linear(8, 8).cuda()
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.randn(4, 8).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.6f} on {torch.cuda.current_device()}")
    dist.destroy_process_group()
"""

_IMPORTS = """
import argparse
«use.imports»
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

"""

_OPTION = {
    "zero": 'parser.add_argument("--local_rank", type=int, default=0)',
    "minus": 'parser.add_argument("--local_rank", type=int, default=-1, help="%(default)s")',
    "no_default": 'parser.add_argument("--local_rank", type=int)',
    "required": 'parser.add_argument("--local_rank", type=int, required=True)',
    "required_default": 'parser.add_argument("--local_rank", type=int, required=True, default=0)',
    "none": 'parser.add_argument("--local_rank", type=int, default=None)',
    "dashed": 'parser.add_argument("--local-rank", type=int)',
    "both": 'parser.add_argument("--local-rank", "--local_rank", type=int)',
    "short": 'parser.add_argument("-r", "--local_rank", type=int, default=0)',
    "other_name": 'parser.add_argument("--local_rank", dest="local", type=int, default=0)',
    "choices": 'parser.add_argument("--local_rank", type=int, default=0, choices=(0, 1))',
    "few_choices": 'parser.add_argument("--local_rank", type=int, default=0, choices=(0,))',
    "text": 'parser.add_argument("--local_rank", default="0")',
    "suppressed": 'parser.add_argument("--local_rank", type=int, default=argparse.SUPPRESS)',
    "function": 'parser.add_argument("--local_rank", type=lambda text: int(text) % 2, default=0)',
    "before_other": """
        parser.add_argument("--local_rank", type=int, default=0)
        parser.add_argument("--local", action="store_true")
    """,
    "same_dashed": """
        parser.add_argument("--local_rank", type=int, default=0)
        parser.add_argument("--local-rank", dest="other", type=int, default=5)
    """,
}

_USE = {
    "plain": {
        "imports": "",
        "main": """
            args = parser.parse_args()
            train(getattr(args, "local_rank", getattr(args, "local", 0)))
        """,
    },
    "evaluation": {
        "main": """
            parser.add_argument("--evaluate", action="store_true")
            args = parser.parse_args()
            if args.evaluate:
                print("evaluating", args)
            else:
                train(args.local_rank)
        """,
    },
    "test_for_none": {
        "main": """
            args = parser.parse_args()
            if args.local_rank in (None, -1):
                print("not distributed")
            else:
                train(args.local_rank)
        """,
    },
    "slurm": {
        "imports": "import os\n",
        "main": """
            args = parser.parse_args()
            local_rank = args.local_rank
            if "SLURM_LOCALID" in os.environ:
                local_rank = int(os.environ["SLURM_LOCALID"])
            train(local_rank)
        """,
    },
    "shadowed_os": {
        "main": """
            os = "linux"
            parser.add_argument("--os", default=os)
            args = parser.parse_args()
            train(args.local_rank)
        """,
    },
}

_COMMANDS = """
def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    «option»
    commands.add_parser("convert")
    args = parser.parse_args()
    if args.command == "train":
        train(args.local_rank)
    else:
        print("converted")


if __name__ == "__main__":
    main()
"""

_MAIN = """

def main():
    parser = argparse.ArgumentParser()
    «option»
    «use.main»


if __name__ == "__main__":
    main()
"""

FAMILIES = (
    Family(
        "options",
        {"train.py": _IMPORTS + _TRAIN + _MAIN},
        {"option": _OPTION, "use": _USE},
        strength=1,
    ),
    Family(
        "options_used",
        {"train.py": _IMPORTS + _TRAIN + _MAIN},
        {"option": {key: _OPTION[key] for key in ("zero", "minus", "no_default")}, "use": _USE},
    ),
    Family(
        "options_of_a_command",
        {"train.py": _IMPORTS + _TRAIN + "\n" + _COMMANDS},
        {
            "option": {
                name: code.replace("parser.", "training.")
                for name, code in _OPTION.items()
                if "other" not in name and name != "both"
            }
        },
        arguments=(("train",),),
    ),
)
