"""How code asks which release of PyTorch is installed."""

TORCH_VERSION = "torch.__version__"

# Attributes of a parsed version that compare as the version does.
SAME_ORDER = frozenset({"base_version", "public", "release"})

# Functions and classes that make a version of a text.
PARSERS = (
    "packaging.version.parse",
    "packaging.version.Version",
    "distutils.version.LooseVersion",
    "distutils.version.StrictVersion",
    "looseversion.LooseVersion",
    "pkg_resources.parse_version",
    "torch.torch_version.TorchVersion",
)

# Functions that take an operator as text and a version. Source: accelerate 1.15, diffusers 0.36.
ASKS_TORCH = (
    "accelerate.utils.is_torch_version",
    "accelerate.utils.versions.is_torch_version",
    "diffusers.utils.is_torch_version",
    "diffusers.utils.import_utils.is_torch_version",
)
