"""Which libraries anything is known of; calls of the others are calls of unknown code."""

from __future__ import annotations

import re

from fsdplint.knowledge.calls import (
    CALLS_FIRST_ARGUMENT,
    PLAIN_WRITES,
    REPOINTING_CALLS,
    is_harmless,
)
from fsdplint.knowledge.names import offers_optimizers


def is_known_package(package: str) -> bool:
    """Whether the engine knows what calls of a top-level package do, or that they do no harm."""
    return is_harmless(package) or package in _NAMED or offers_optimizers(package)


_NAMED = frozenset(
    name.split(".")[0] for name in (*CALLS_FIRST_ARGUMENT, *PLAIN_WRITES, *REPOINTING_CALLS)
)


# Packages, beside the standard library and those that never shard, whose code surely destroys no
# process group that it did not make itself.
_LEAVES_GROUPS = frozenset(
    {
        "PIL",
        "absl",
        "accelerate",
        "aiohttp",
        "apex",
        "attr",
        "av",
        "azure",
        "bitsandbytes",
        "boto3",
        "click",
        "colorama",
        "cv2",
        "dacite",
        "decord",
        "diffusers",
        "dotenv",
        "draccus",
        "fire",
        "flash_attn",
        "ftfy",
        "h5py",
        "hydra",
        "imageio",
        "jinja2",
        "jsonargparse",
        "jsonlines",
        "kornia",
        "liger_kernel",
        "lpips",
        "matplotlib",
        "ml_collections",
        "nltk",
        "omegaconf",
        "open_clip",
        "openai",
        "optimum",
        "orjson",
        "packaging",
        "pandas",
        "pkg_resources",
        "pyarrow",
        "pydantic",
        "pynvml",
        "regex",
        "requests",
        "scipy",
        "seaborn",
        "sentencepiece",
        "setuptools",
        "skimage",
        "sklearn",
        "tabulate",
        "tensorboard",
        "tensorboardX",
        "termcolor",
        "tiktoken",
        "torchao",
        "torchdata",
        "torchmetrics",
        "triton",
        "typer",
        "typing_extensions",
        "tyro",
        "webdataset",
        "xformers",
        "yaml",
    }
)
# Of these, what does so all the same when it ends.
ENDS_GROUPS = re.compile(r"\b(Accelerator|PartialState|AcceleratorState|Trainer|SFTTrainer)\b")


def leaves_groups(package: str) -> bool:
    """Whether code of a top-level package surely destroys no process group of its caller's."""
    return package in _LEAVES_GROUPS or is_harmless(package)
