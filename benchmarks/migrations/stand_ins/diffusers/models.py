"""An encoder whose latents are the images, with one channel twice."""

import torch
from torch import nn


class AutoencoderKL(nn.Module):
    @classmethod
    def from_pretrained(cls, _):
        return cls()

    def encode(self, images):
        self.latents = torch.cat([images, images[:, :1]], 1)
        return self

    @property
    def latent_dist(self):
        return self

    def sample(self):
        return self.latents
