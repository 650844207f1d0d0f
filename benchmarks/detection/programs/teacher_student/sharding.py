from networks import DenseBlock
from torch import nn
from torch.distributed.fsdp import fully_shard


def shard_by_type(network: nn.Module, unit_types: tuple[type[nn.Module], ...] = (DenseBlock,)):
    """Children before parents, so that the root is last."""
    for module in reversed(list(network.modules())):
        if module is not network and isinstance(module, unit_types):
            fully_shard(module)
    fully_shard(network)
