"""The parts of a vision transformer."""

from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class PatchEmbed(nn.Module):
    def __init__(self, size, patch, channels, width, bias=True):
        super().__init__()
        self.patch_size = (patch, patch)
        self.num_patches = (size // patch) ** 2
        self.proj = nn.Conv2d(channels, width, patch, patch, bias=bias)

    def forward(self, x):
        return self.proj(x).flatten(2).mT


class Attention(nn.Module):
    def __init__(self, dim, num_heads=8, qkv_bias=False, **_):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        heads = [
            each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        ]
        return self.proj(scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, in_features, hidden_features, act_layer=nn.GELU, **_):
        super().__init__()
        self.fc1 = nn.Linear(in_features, hidden_features)
        self.act = act_layer()
        self.fc2 = nn.Linear(hidden_features, in_features)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))
