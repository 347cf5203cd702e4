"""Which corrections are cheap: the Gaussian prior of a correction, written as whitened coordinates.

A correction of the soft tokens is du = T w A'. A is a square root of the covariance of real latents over the code
dimensions, so that w of unit size moves a token as far as real tokens lie apart. T carries time: the interval basis
with its activities (or one column a token). In w every direction costs the same: the solver need know no more.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute.errors import RequestError
from anchorroute.routesolver.basis import RATE, Basis

_PRESENT = 0.05
"""A column acts on a token if its entry there is at least this share of its largest."""


@dataclass(frozen=True)
class Prior:
    """du = `time` w `code`'."""

    time: Float[Tensor, "batch tokens columns"]
    code: Float[Tensor, "code code"]

    def __getitem__(self, samples: Int[Tensor, " some"]) -> "Prior":
        """The prior of some of the samples."""
        return replace(self, time=self.time[samples])

    def correction(self, w: Float[Tensor, "batch columns code"]) -> Float[Tensor, "batch tokens code"]:
        """Whitened coordinates -> change of the soft tokens."""
        return self.time @ w @ self.code.T

    def pull(self, gradient: Float[Tensor, "batch *rows tokens code"]) -> Float[Tensor, "batch *rows columns code"]:
        """The transposed map: a gradient with respect to the tokens -> one with respect to w."""
        time = self.time if gradient.ndim == 3 else self.time[:, None]
        return time.mT @ (gradient @ self.code)

    def coordinates(self, correction: Float[Tensor, "batch tokens code"]) -> Float[Tensor, "batch columns code"]:
        """The shortest w whose correction comes closest (for a warm start)."""
        # The columns' Gram matrix is singular where columns are padded or overlap, so this goes by pseudo-inverse.
        white = torch.linalg.solve_triangular(self.code, correction.mT, upper=False).mT
        return torch.linalg.pinv(self.time) @ white

    def sizes(self, w: Float[Tensor, "batch columns code"]) -> Float[Tensor, "batch tokens"]:
        """Each token's correction in standard deviations of real latents, root mean square over the code."""
        return (self.time @ w).square().mean(-1).sqrt()

    def bounded(self, w: Float[Tensor, "batch columns code"], radius: float) -> Float[Tensor, "batch columns code"]:
        """w with the columns shrunk that push a token beyond `radius` deviations; others keep their size."""
        shrink = (radius / self.sizes(w).clamp(min=1e-12)).clamp(max=1.0)
        height = self.time.abs()
        acts = height > _PRESENT * height.amax(dim=1, keepdim=True)
        factor = torch.where(acts, shrink[..., None], 1.0).amin(dim=1)
        return w * factor[..., None]


def code_factor(covariance: Float[Tensor, "code code"], shrinkage: float) -> Float[Tensor, "code code"]:
    """Lower Cholesky factor of (1 - shrinkage) C + shrinkage (tr C / d) I."""
    if not 0 <= shrinkage <= 1:
        raise RequestError(f"shrinkage is {shrinkage}; it is a share between 0 (C as measured) and 1 (a sphere)")
    c = covariance.double()
    if not torch.isfinite(c).all() or not torch.allclose(c, c.T, rtol=1e-4, atol=1e-6 * float(c.diagonal().max())):
        raise RequestError("the latents' covariance must be finite and symmetric; compute it with `latent_covariance`")
    mean = c.diagonal().mean()
    if float(mean) <= 0:
        raise RequestError("the latents' covariance has no variance at all; compute it over real clips")
    shrunk = (1 - shrinkage) * 0.5 * (c + c.T) + shrinkage * mean * torch.eye(len(c), dtype=c.dtype, device=c.device)
    factor, failed = torch.linalg.cholesky_ex(shrunk)
    if int(failed):
        raise RequestError(
            f"the latents' covariance is singular after shrinkage {shrinkage}; use more clips or a larger shrinkage"
        )
    return factor.to(covariance)


def latent_covariance(latents: Float[Tensor, "tokens code"]) -> Float[Tensor, "code code"]:
    """Covariance of real latents over the code dimensions, about their mean."""
    if len(latents) < 2:
        raise RequestError(f"{len(latents)} latents given; a covariance needs at least two, and thousands to be good")
    centred = latents.double() - latents.double().mean(0)
    return (centred.T @ centred / (len(latents) - 1)).to(latents)


def interval_time(basis: Basis, precision: Float[Tensor, "batch columns"]) -> Float[Tensor, "batch tokens columns"]:
    """T of the routed prior: orthonormal columns, each divided by the root of its precision 1 + lambda (1 - a)."""
    return basis.orthonormal * (1 + precision).rsqrt()[:, None, :]


def smooth_time(
    lengths: Int[Tensor, " batch"], tokens: int, width: float, *, device: torch.device | str = "cpu"
) -> Float[Tensor, "batch tokens tokens"]:
    """T whose corrections are correlated over about `width` tokens, of unit variance everywhere."""
    place = torch.arange(tokens, device=device)
    kernel = torch.exp(-0.5 * ((place[:, None] - place) / width) ** 2)
    valid = place < -(-lengths.to(device)[:, None] // RATE)
    inside = kernel * valid[:, :, None] * valid[:, None, :]
    return inside / inside.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-12)
