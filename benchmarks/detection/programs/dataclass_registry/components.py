from registry import MODELS, OPTIMIZERS, register
from torch import nn, optim


class GatedLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.value = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, x):
        return x + self.value(x) * self.gate(x).sigmoid()


@register(MODELS, "gated")
class GatedNet(nn.Module):
    def __init__(self, inputs, size, depth):
        super().__init__()
        self.first = nn.Linear(inputs, size)
        self.hidden = nn.ModuleList([GatedLayer(size) for _ in range(depth)])
        self.last = nn.Linear(size, inputs)

    def forward(self, x):
        x = self.first(x)
        for gated in self.hidden:
            x = gated(x)
        return self.last(x)


@register(OPTIMIZERS, "adamw")
def adamw(model, lr, weight_decay):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return optim.AdamW(groups, lr=lr)


@register(OPTIMIZERS, "sgd")
def sgd(model, lr, weight_decay):
    return optim.SGD(model.parameters(), lr=lr, weight_decay=weight_decay, momentum=0.9)
