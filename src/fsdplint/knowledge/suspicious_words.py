"""Words that make a test suspicious. They are only ever a reason to stay silent or careful."""

from __future__ import annotations

import re

# What is done over all ranks has the same result on each.
_RANK = re.compile(
    r"(?<!over_)(?<!across_)(?<!all_)rank|main_process|is_main|is_master|master_process|primary|is_leader|world_process_zero"
    r"|global_zero|process_index|coordinator",
    re.IGNORECASE,
)
_RANK_COUNT = re.compile(r"world|size|gpu|proc|dist|devices|ranks", re.IGNORECASE)
_SHARDING = re.compile(r"fsdp|fully_?shard|distributed", re.IGNORECASE)
_PARALLEL = re.compile(
    r"fsdp|ddp|dist(?!ill)|parallel|shard|strateg|zero(?!_?shot)|world|deepspeed|gpu|multi|single|backend|mode(?!l)"
    r"|wrap|engine|accelerat|megatron|replic|\btp\b|_tp|tp_|\bdp\b|dp_|version|fsdp2",
    re.IGNORECASE,
)

_MODEL_PARALLEL = re.compile(
    r"(?<![a-z])(pp|tp|ep|cp|sp|mp|pipe|pipeline|tensor|expert|stage|model_parallel)(?![a-z])",
    re.IGNORECASE,
)

_PIPELINE = re.compile(
    r"pipelining|pippy|pipeline_?(parallel|stage|schedule)|(?<![a-z])pp(?![a-z])", re.IGNORECASE
)

_OFFLOAD = re.compile(
    r"offload|cpu|gpu|cuda|device|host|pin(?:ned)?(?![a-z])|memory|vram|(?<![a-z])ram(?![a-z])|meta_?device",
    re.IGNORECASE,
)

_INVOLVES_OTHERS = re.compile(
    r"reduce|gather|sync|broadcast|barrier|send|recv|backward|forward|abort|exit|kill|raise|fatal",
    re.IGNORECASE,
)

_LEARNING_RATE = re.compile(r"(?<![a-z])lr(?![a-z])|learning_?rate", re.IGNORECASE)
_DATASET = re.compile(r"len\(|data|train|sample|example", re.IGNORECASE)
_SCALES = re.compile(r"scale|\*(?!\*)", re.IGNORECASE)


def may_involve_others(name: str) -> bool:
    """Whether the name of a function hints that it meets other ranks, or ends the program."""
    return _INVOLVES_OTHERS.search(name) is not None


def means_whole_dataset(text: str) -> bool:
    """Whether the words of a number hint at all samples of a dataset."""
    return _DATASET.search(text) is not None


def means_learning_rate(text: str) -> bool:
    """Whether the words of an expression hint at a learning rate."""
    return _LEARNING_RATE.search(text) is not None


def may_scale(text: str) -> bool:
    """Whether the name of a function, or an expression, may scale a loss."""
    return _SCALES.search(text) is not None


def means_offload(text: str) -> bool:
    """Whether the words of a test hint at where the memory of a model is."""
    return _OFFLOAD.search(text) is not None


def means_model_parallel(text: str) -> bool:
    """Whether the words of an expression hint at ranks that hold different parts of a model."""
    return _MODEL_PARALLEL.search(text) is not None


def means_pipeline(text: str) -> bool:
    """Whether the words of a program hint at stages of a pipeline, which take micro-batches."""
    return _PIPELINE.search(text) is not None


def means_sharding(text: str) -> bool:
    """Whether the words of a test hint at whether the program shards at all."""
    return _SHARDING.search(text) is not None


def means_rank(text: str) -> bool:
    """Whether the words of an expression hint at a value that differs between ranks."""
    return _RANK.search(text) is not None


def means_rank_count(text: str) -> bool:
    """Whether the words of a test hint at the number of ranks, which is one in a plain run."""
    return _RANK_COUNT.search(text) is not None


def means_parallel_mode(text: str) -> bool:
    """Whether the words of a test hint at a choice between ways to train in parallel."""
    return _PARALLEL.search(text) is not None
