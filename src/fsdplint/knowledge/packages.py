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
# process group that it did not make itself, and chooses no device for the process.
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
# Of these, what does so all the same, imported by name or written out.
_SETS_UP = re.compile(r"\w*Accelerator(State)?|PartialState|\w*Trainer")
_SETS_UP_WRITTEN = re.compile(rf"\b(accelerate|transformers|trl)\.({_SETS_UP.pattern})\b")


def sets_up(name: str) -> bool:
    """Whether what an import from accelerate or transformers names sets up what it runs on."""
    return _SETS_UP.fullmatch(name) is not None


def writes_set_up(text: str) -> bool:
    """Whether a file uses such a thing by its full name."""
    return _SETS_UP_WRITTEN.search(text) is not None


def leaves_groups(package: str) -> bool:
    """Whether a top-level package surely leaves its caller's process groups and device alone."""
    return package in _LEAVES_GROUPS or is_harmless(package)
