"""Which libraries anything is known of; calls of the others are calls of unknown code."""

from __future__ import annotations

import re

from fsdplint.knowledge.calls import (
    CALLS_FIRST_ARGUMENT,
    PLAIN_WRITES,
    REPOINTING_CALLS,
    is_harmless,
)
from fsdplint.knowledge.launch import INIT, INIT_DEVICE_MESH
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
        "IPython",
        "Levenshtein",
        "PIL",
        "absl",
        "accelerate",
        "addict",
        "aim",
        "aiofiles",
        "aiohttp",
        "apex",
        "attr",
        "av",
        "azure",
        "bitsandbytes",
        "boto3",
        "botocore",
        "braceexpand",
        "bs4",
        "causal_conv1d",
        "clearml",
        "click",
        "cloudpathlib",
        "cloudpickle",
        "codetiming",
        "colorama",
        "comet_ml",
        "cv2",
        "dacite",
        "decord",
        "deprecated",
        "diffusers",
        "dotenv",
        "draccus",
        "easydict",
        "editdistance",
        "faiss",
        "fastapi",
        "filelock",
        "fire",
        "fla",
        "flash_attn",
        "flash_attn_interface",
        "flask",
        "fsspec",
        "ftfy",
        "gcsfs",
        "git",
        "gradio",
        "gymnasium",
        "h5py",
        "hf_transfer",
        "httpx",
        "hydra",
        "imageio",
        "jaxtyping",
        "jinja2",
        "joblib",
        "json5",
        "jsonargparse",
        "jsonlines",
        "jsonschema",
        "kornia",
        "kubeflow",
        "kubernetes",
        "librosa",
        "liger_kernel",
        "lmdb",
        "lpips",
        "mamba_ssm",
        "math_verify",
        "matplotlib",
        "ml_collections",
        "mlflow",
        "moviepy",
        "mpi4py",
        "msgspec",
        "networkx",
        "nltk",
        "numba",
        "nvtx",
        "omegaconf",
        "onnxruntime",
        "open_clip",
        "openai",
        "opentelemetry",
        "optimi",
        "optimum",
        "orjson",
        "packaging",
        "pandas",
        "parameterized",
        "pkg_resources",
        "plotly",
        "prettytable",
        "prometheus_client",
        "pyarrow",
        "pydantic",
        "pydantic_config",
        "pydantic_settings",
        "pynvml",
        "quack",
        "qwen_vl_utils",
        "regex",
        "requests",
        "rich_argparse",
        "s3fs",
        "sacrebleu",
        "scipy",
        "seaborn",
        "sentencepiece",
        "setuptools",
        "skimage",
        "sklearn",
        "slack_sdk",
        "soundfile",
        "spacy",
        "starlette",
        "streamlit",
        "swanlab",
        "sympy",
        "tabulate",
        "tenacity",
        "tensorboard",
        "tensorboardX",
        "termcolor",
        "textual",
        "tiktoken",
        "toml",
        "tomli",
        "torchao",
        "torchcodec",
        "torchdata",
        "torchmetrics",
        "trackio",
        "transformer_engine",
        "transformer_engine_torch",
        "triton",
        "typer",
        "typing_extensions",
        "tyro",
        "urllib3",
        "uvicorn",
        "uvloop",
        "webdataset",
        "websockets",
        "wrapt",
        "xarray",
        "xformers",
        "xxhash",
        "yaml",
        "zmq",
        "zstandard",
    }
)
# Of these, what does so all the same, by name or written out: the state of accelerate, what
# makes one (`TrainingArguments` do as they are made), and timm's helpers.
_SETS_UP = {
    "accelerate": re.compile(r"\w*Accelerator(State)?|PartialState"),
    "timm": re.compile(r"init_distributed_device\w*"),
    "transformers": re.compile(r"\w*Trainer|\w*TrainingArguments"),
}
_SETS_UP_WRITTEN = re.compile(
    "|".join(rf"\b{package}\.([\w.]+\.)?({names.pattern})\b" for package, names in _SETS_UP.items())
)
# A file with one of these may set up a process group: those of DeepSpeed and Lightning, too.
_GROUP_MAKERS = (INIT.rpartition(".")[2], INIT_DEVICE_MESH.rpartition(".")[2])
_SETS_UP_NAMES = re.compile(
    "|".join(
        (*_GROUP_MAKERS, "init_distributed", "Fabric", *(n.pattern for n in _SETS_UP.values()))
    )
)
# Functions of them that run code by its name.
_RUN_OTHERS = frozenset(
    {
        *("builtins.eval", "builtins.exec", "builtins.__import__", "importlib.import_module"),
        *("runpy.run_module", "runpy.run_path", "hydra.utils.call", "hydra.utils.instantiate"),
    }
)


def sets_up(package: str, name: str) -> bool:
    """Whether a name that is imported from a top-level package sets up what it runs on."""
    return package in _SETS_UP and _SETS_UP[package].fullmatch(name) is not None


def writes_set_up(text: str) -> bool:
    """Whether a file uses such a thing by its full name."""
    return _SETS_UP_WRITTEN.search(text) is not None


def names_set_up(text: str) -> bool:
    """Whether a file names such a thing, or what makes a process group, in any way."""
    return _SETS_UP_NAMES.search(text) is not None


def leaves_groups(package: str) -> bool:
    """Whether a top-level package surely leaves its caller's process groups and device alone."""
    return is_library_without_groups(package) or is_harmless(package)


def is_library_without_groups(package: str) -> bool:
    """Whether it is one by name, as only a library is called."""
    return package in _LEAVES_GROUPS


def may_set_up(name: str) -> bool:
    """Whether calling a function or class, by canonical name, may bring a process group up."""
    package, *inner = name.split(".")
    named = any(sets_up(package, each) for each in inner)
    return named or name in _RUN_OTHERS or not leaves_groups(package)
