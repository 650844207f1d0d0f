"""Published checkpoints of Hugging Face whose output layer and token embedding share one weight.

transformers ties the two where the configuration says ``tie_word_embeddings``. The class defaults
and the paths of the embeddings are those of transformers 4.57.6 (the configuration classes were
run) and 5.24.0 (``configuration_*.py``, and ``_tied_weights_keys`` of ``modeling_*.py``). Larger
models of the Llama and Qwen families are not tied.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The output layer, in every family below.
HEAD = "lm_head"
# The Auto class that loads a checkpoint as the class of its family.
_AUTO = "AutoModelForCausalLM"
# Where a model says whether they are tied.
SETTING = "config.tie_word_embeddings"
# Arguments of `from_pretrained` that may turn the tie off.
OVERRIDES = frozenset({"config", "tie_word_embeddings"})
# Methods of a model that replace one of the two layers.
REPLACES = frozenset({"set_input_embeddings", "set_output_embeddings"})


@dataclass(frozen=True, slots=True)
class _Family:
    """Checkpoints that one class loads.

    Attributes:
        ids: their names on the Hub.
        model: the class of transformers with an output layer that loads them.
        embedding: the path of the token embedding in that class.
    """

    ids: re.Pattern[str]
    model: str
    embedding: str


_FAMILIES = (
    # meta-llama/llama-models#172 quotes the config.json of 3B, keras-team/keras-hub#1895 names
    # those of 1B and 3B, huggingface/trl#7130 (2026-09) that of 1B-Instruct.
    _Family(
        re.compile(r"meta-llama/Llama-3\.2-[13]B(-Instruct)?"),
        "LlamaForCausalLM",
        "model.embed_tokens",
    ),
    # torchtune's builders (`tie_word_embeddings: bool = True`, bd2a0fc, 2026-04).
    _Family(
        re.compile(r"HuggingFaceTB/SmolLM2-(135M|360M|1\.7B)(-Instruct)?"),
        "LlamaForCausalLM",
        "model.embed_tokens",
    ),
    # torchtune's builders of Qwen2 and Qwen2.5 (bd2a0fc, 2026-04), and for Qwen2.5-Coder the table
    # "Tie Embedding" of its announcement (2024-11).
    _Family(
        re.compile(
            r"Qwen/(Qwen2-(0\.5B|1\.5B)|Qwen2\.5-(Coder-)?(0\.5B|1\.5B|3B))(-Instruct)?",
        ),
        "Qwen2ForCausalLM",
        "model.embed_tokens",
    ),
    # torchtune's builders (bd2a0fc, 2026-04), the table "Tie Embedding" of the announcement
    # (2025-04), and huggingface/trl#7130 (2026-09) for 4B-Instruct-2507.
    _Family(
        re.compile(r"Qwen/Qwen3-((0\.6B|1\.7B|4B)(-Base)?|4B-Instruct-2507)"),
        "Qwen3ForCausalLM",
        "model.embed_tokens",
    ),
    # The class default.
    _Family(
        re.compile(r"google/gemma-(1\.1-[27]b-it|[27]b(-it)?)"),
        "GemmaForCausalLM",
        "model.embed_tokens",
    ),
    # The class default.
    _Family(
        re.compile(r"google/gemma-2-(2|9|27)b(-it)?"),
        "Gemma2ForCausalLM",
        "model.embed_tokens",
    ),
    # The class default. Larger models see images: their class and its paths are others.
    _Family(
        re.compile(r"google/gemma-3-1b-(it|pt)"),
        "Gemma3ForCausalLM",
        "model.embed_tokens",
    ),
    # The class default.
    _Family(
        re.compile(r"(openai-community/)?gpt2(-medium|-large|-xl)?|(distilbert/)?distilgpt2"),
        "GPT2LMHeadModel",
        "transformer.wte",
    ),
    # The class default.
    _Family(
        re.compile(r"facebook/opt-(125m|350m|1\.3b|2\.7b|6\.7b|13b|30b|66b)"),
        "OPTForCausalLM",
        "model.decoder.embed_tokens",
    ),
    # The class default.
    _Family(
        re.compile(r"bigscience/bloomz?(-560m|-1b1|-1b7|-3b|-7b1)?"),
        "BloomForCausalLM",
        "transformer.word_embeddings",
    ),
)


def tied_embedding(name: str, checkpoint: str) -> str | None:
    """Return the path of the embedding that is tied to the `HEAD`, None if that is not known.

    Args:
        name: the canonical name of the class that loads the checkpoint.
        checkpoint: the checkpoint's name on the Hub.
    """
    package, _, cls = name.rpartition(".")
    if package.split(".")[0] != "transformers":
        return None
    for family in _FAMILIES:
        if cls in (_AUTO, family.model) and family.ids.fullmatch(checkpoint):
            return family.embedding
    return None
