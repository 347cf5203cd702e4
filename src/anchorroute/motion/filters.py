"""Smoothing along time, differentiable and batched."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def gaussian(v: Float[Tensor, "*batch time d"], sigma: float) -> Float[Tensor, "*batch time d"]:
    """A Gaussian of `sigma` frames, cut at four sigma, the clip's ends repeated: scipy's mode "nearest"."""
    radius = int(4.0 * sigma + 0.5)
    steps = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.exp(-0.5 * (steps / sigma) ** 2)
    kernel = (kernel / kernel.sum()).to(v)
    time, dims = v.shape[-2:]
    series = v.transpose(-1, -2).reshape(-1, 1, time)
    smooth = F.conv1d(F.pad(series, (radius, radius), mode="replicate"), kernel[None, None])
    return smooth.reshape(*v.shape[:-2], dims, time).transpose(-1, -2)
