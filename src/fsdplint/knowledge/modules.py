"""Module classes whose inside is known without reading them: containers, repeated blocks."""

from __future__ import annotations

import re

from fsdplint.knowledge.names import FSDP1

MODULE_LIST = "torch.nn.ModuleList"
MODULE_DICT = "torch.nn.ModuleDict"
CONTAINERS = frozenset({MODULE_LIST, "torch.nn.Sequential", MODULE_DICT})

# Of these, the ones that are no modules to call.
WITHOUT_FORWARD = frozenset({MODULE_LIST, MODULE_DICT})

# Calls that give a module of a library: its classes, and constructors of a Hugging Face model.
_CLASS = re.compile(r"torch\.nn\.(?:parallel\.)?[A-Z]\w*$|torchvision\.models\.\w+$")
_PRETRAINED = re.compile(
    r"transformers\.(?:\w+\.)*(?:PreTrainedModel$|Auto\w*Model\w*|\w+For[A-Z]\w*|\w+Model)"
    r"(?:\.(?:from_pretrained|from_config|_from_config))?$"
)
_WITHOUT_PARAMETERS = re.compile(
    r"torch\.nn\.(?!Adaptive)\w*(Flatten|Identity|Loss|Sigmoid|Softmax|Tanh)$"
)
PARAMETER = "torch.nn.Parameter"
# A module that averages the weights of another one.
AVERAGED_MODEL = "torch.optim.swa_utils.AveragedModel"
_NO_MODULES = frozenset({PARAMETER, "torch.nn.Buffer"})

# Layers that hold parameters, whatever they are made with but for the switches below.
PARAMETER_LAYERS = frozenset(
    f"torch.nn.{name}"
    for name in (
        "Linear",
        "Bilinear",
        "Embedding",
        "EmbeddingBag",
        "LayerNorm",
        "RMSNorm",
        "GroupNorm",
        "BatchNorm1d",
        "BatchNorm2d",
        "BatchNorm3d",
        "SyncBatchNorm",
        "Conv1d",
        "Conv2d",
        "Conv3d",
        "ConvTranspose1d",
        "ConvTranspose2d",
        "ConvTranspose3d",
        "MultiheadAttention",
        "TransformerEncoderLayer",
        "TransformerDecoderLayer",
        "TransformerEncoder",
        "TransformerDecoder",
        "Transformer",
        "RNN",
        "LSTM",
        "GRU",
        "PReLU",
    )
)
MATMUL = "torch.matmul"
LINEAR = "torch.nn.functional.linear"
LINEAR_LAYER = "torch.nn.Linear"
# Calls that take weights, which must be whole.
TAKES_WEIGHTS: tuple[str, ...] = (
    MATMUL,
    "torch.mm",
    "torch.addmm",
    "torch.einsum",
    LINEAR,
    "torch.nn.functional.linear_cross_entropy",
    "torch.nn.functional.embedding",
    "torch.nn.functional.conv1d",
    "torch.nn.functional.conv2d",
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.rms_norm",
)
# Wraps the modules that its `check_fn` asks for, as `checkpoint_wrapper` does one.
CHECKPOINTING = (
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing"
)
# Calls that put adapters with parameters of their own into the model they are given.
ADDS_ADAPTERS: tuple[str, ...] = (
    "peft.get_peft_model",
    "peft.inject_adapter_in_model",
    "peft.mapping.get_peft_model",
)
# Keyword arguments that, when False, leave a layer without trainable parameters.
TURNS_PARAMETERS_OFF = frozenset({"requires_grad", "elementwise_affine", "affine"})

# Constructors that repeat a layer, with the attribute paths of their block containers.
REPEATED_BLOCKS: dict[str, tuple[str, ...]] = {
    "torch.nn.TransformerEncoder": ("layers",),
    "torch.nn.TransformerDecoder": ("layers",),
    "torch.nn.Transformer": ("encoder.layers", "decoder.layers"),
}

WRAP = "torch.distributed.fsdp.wrap"
MODULE_WRAP_POLICY = "ModuleWrapPolicy"
# The context in which the function of the second name wraps a module.
ENABLE_WRAP = f"{WRAP}.enable_wrap"
WRAP_CALL = f"{WRAP}.wrap"
TRANSFORMER_POLICY = f"{WRAP}.transformer_auto_wrap_policy"
SIZE_POLICY = f"{WRAP}.size_based_auto_wrap_policy"
ALWAYS_WRAPS = f"{WRAP}.always_wrap_policy"
# FSDP1's policies of which submodules become units.
WRAP_POLICIES = frozenset(
    f"{WRAP}.{name}"
    for name in (
        MODULE_WRAP_POLICY,
        "CustomPolicy",
        "size_based_auto_wrap_policy",
        "transformer_auto_wrap_policy",
        "lambda_auto_wrap_policy",
    )
)

# Of these, the functions, and what FSDP calls them with: whatever else they take is a setting.
POLICY_FUNCTIONS: tuple[str, ...] = (
    SIZE_POLICY,
    TRANSFORMER_POLICY,
    f"{WRAP}.lambda_auto_wrap_policy",
)
POLICY_ARGUMENTS: tuple[str, ...] = ("module", "recurse", "nonwrapped_numel")

# Modules with parameters of their own that `reset_parameters` is no method of (torch 2.13): theirs
# is `_reset_parameters`, which their parts' do not replace.
WITHOUT_RESET = frozenset(
    f"torch.nn.{name}"
    for name in (
        "MultiheadAttention",
        "Transformer",
        "TransformerDecoder",
        "TransformerDecoderLayer",
        "TransformerEncoder",
        "TransformerEncoderLayer",
        "ParameterList",
        "ParameterDict",
    )
)

# Layers that are blocks in themselves when a container repeats them.
BLOCK_LAYERS = frozenset(
    {
        "torch.nn.TransformerEncoderLayer",
        "torch.nn.TransformerDecoderLayer",
        "transformers.models.llama.modeling_llama.LlamaDecoderLayer",
    }
)

# Hugging Face model families (transformers 4.40 to 5): where the repeated blocks are. An Auto class
# is a repeated-block model too, but only its configuration knows the path.
HUGGING_FACE_BLOCKS: dict[str, tuple[str, ...]] = {
    "LlamaForCausalLM": ("model.layers",),
    "MistralForCausalLM": ("model.layers",),
    "MixtralForCausalLM": ("model.layers",),
    "Qwen2ForCausalLM": ("model.layers",),
    "Qwen3ForCausalLM": ("model.layers",),
    "GemmaForCausalLM": ("model.layers",),
    "Gemma2ForCausalLM": ("model.layers",),
    "PhiForCausalLM": ("model.layers",),
    "Phi3ForCausalLM": ("model.layers",),
    "OPTForCausalLM": ("model.decoder.layers",),
    "GPT2LMHeadModel": ("transformer.h",),
    "GPTJForCausalLM": ("transformer.h",),
    "GPTNeoForCausalLM": ("transformer.h",),
    "GPTNeoXForCausalLM": ("gpt_neox.layers",),
    "BloomForCausalLM": ("transformer.h",),
    "BertForMaskedLM": ("bert.encoder.layer",),
    "BertForSequenceClassification": ("bert.encoder.layer",),
    "RobertaForMaskedLM": ("roberta.encoder.layer",),
    "RobertaForSequenceClassification": ("roberta.encoder.layer",),
    "T5ForConditionalGeneration": ("encoder.block", "decoder.block"),
    "ViTForImageClassification": ("vit.encoder.layer",),
}
# What the containers are called, whichever model an Auto class makes.
BLOCK_PATHS = frozenset(path for paths in HUGGING_FACE_BLOCKS.values() for path in paths)
BLOCK_CONTAINERS = frozenset(path.rpartition(".")[2] for path in BLOCK_PATHS)
HUGGING_FACE_AUTO = frozenset(
    {
        "AutoModelForCausalLM",
        "AutoModelForSeq2SeqLM",
        "AutoModelForMaskedLM",
        "AutoModelForSequenceClassification",
        "AutoModelForTokenClassification",
        "AutoModelForQuestionAnswering",
        "AutoModelForVision2Seq",
        "AutoModelForImageTextToText",
    }
)
# The attribute of a model of transformers that names the classes of its blocks. It is None where
# nobody has named them (transformers 4), or empty (5).
BLOCK_CLASSES = "_no_split_modules"
# How configurations and constructors call the number of blocks.
LAYER_COUNTS = frozenset(
    {"num_hidden_layers", "num_layers", "n_layers", "n_layer", "num_encoder_layers", "depth"}
)
FROM_PRETRAINED = "from_pretrained"
HUGGING_FACE_CONSTRUCTORS = frozenset({FROM_PRETRAINED, "from_config", "_from_config"})
# Where its models keep settings, which are no modules.
SETTINGS = frozenset({"config", "generation_config"})


_LAYERS = ("Attention", "Block", "Layer", "MLP")


def is_hugging_face_layer(name: str) -> bool:
    """Whether a class of transformers, by canonical name, is a layer rather than a model."""
    return name.startswith("transformers.models.") and name.endswith(_LAYERS)


def hugging_face_blocks(name: str) -> tuple[str, ...] | None:
    """Block containers of a model class by canonical name.

    None if it is not known to repeat blocks, empty if it does but the path depends on the model.
    """
    package, _, cls = name.rpartition(".")
    if package.split(".")[0] != "transformers":
        return None
    if cls in HUGGING_FACE_AUTO:
        return ()
    return HUGGING_FACE_BLOCKS.get(cls)


def is_hugging_face_model(name: str) -> bool:
    """Whether a class, by canonical name, is transformers' `PreTrainedModel` or derived from it."""
    return _PRETRAINED.match(name) is not None


def has_no_parameters(name: str) -> bool:
    """Whether a class, by canonical name, is a layer that surely has none, such as a loss."""
    return _WITHOUT_PARAMETERS.match(name) is not None


def makes_module(name: str) -> bool:
    """Whether calling ``name``, or deriving a class from it, gives a ``torch.nn.Module``."""
    if name == FSDP1 or is_hugging_face_model(name):
        return True
    return _CLASS.match(name) is not None and name not in _NO_MODULES


# Attributes of modules and tensors that have no parameter in them. A model of transformers keeps
# its settings in `config` (transformers 4 and 5).
WITHOUT_PARAMETERS = frozenset({".config", ".device", ".dtype", ".generation_config", ".shape"})
