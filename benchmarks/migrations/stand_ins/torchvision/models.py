"""A tiny residual network under the names of large ones."""

from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)

    def forward(self, x):
        return x + self.bn1(self.conv1(x)).relu()


class ResNet(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(BasicBlock(8), BasicBlock(8))
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        x = self.layer1(self.bn1(self.conv1(x)).relu())
        return self.fc(x.mean((2, 3)))


def resnet18(num_classes=1000, **_):
    return ResNet(num_classes)


def resnet34(**arguments):
    return resnet18(**arguments)


def resnet50(**arguments):
    return resnet18(**arguments)


def vit_b_16(**arguments):
    return resnet18(**arguments)


def vit_l_16(**arguments):
    return resnet18(**arguments)


def vgg16(**arguments):
    return resnet18(**arguments)


class _Weights:
    def __getattr__(self, name):
        return None


def __getattr__(name):
    if name.endswith("_Weights"):
        return _Weights()
    raise AttributeError(name)
