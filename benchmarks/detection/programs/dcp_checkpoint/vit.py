import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class ViTBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, dim: int = 16, depth: int = 2, heads: int = 2, classes: int = 4) -> None:
        super().__init__()
        self.patch_embed = nn.Linear(12, dim)
        self.blocks = nn.ModuleList([ViTBlock(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward_features(self, patches: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed(patches)
        for blk in self.blocks:
            x = checkpoint(blk, x, use_reentrant=False) if self.training else blk(x)
        return x

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return self.head(self.forward_features(patches).mean(dim=1))
