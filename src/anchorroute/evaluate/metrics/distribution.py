"""Distances between two sets of embeddings, and how spread one set is.

Two surprises. FID is biased upwards by small samples (between two halves of the *same* 204 clips it is far from
zero), so every table prints it beside ``halves_fid`` at its own sample count, and KID, which is unbiased, beside it.
And the matrix square root is never formed: tr sqrt(AB) is the sum of the square roots of the eigenvalues of the
symmetric sqrt(A) B sqrt(A), which cannot turn complex.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.errors import RequestError

Embeddings = Float[Tensor, "n e"]


def fid(real: Embeddings, generated: Float[Tensor, "m e"]) -> float:
    """Fréchet distance between the Gaussians of two sets: |m1 - m2|^2 + tr(A + B - 2 sqrt(AB))."""
    _same_width(real, generated)
    mean_a, cov_a = _moments(real)
    mean_b, cov_b = _moments(generated)
    root = _sqrt_psd(cov_a)
    inner = torch.linalg.eigvalsh(root @ cov_b @ root)
    cross = inner.clamp_min(0).sqrt().sum()
    distance = (mean_a - mean_b).square().sum() + cov_a.trace() + cov_b.trace() - 2 * cross
    return float(distance.clamp_min(0))


def kid(real: Embeddings, generated: Float[Tensor, "m e"]) -> float:
    """Kernel distance: the unbiased squared MMD under the kernel (x.y / e + 1)^3; may be slightly negative."""
    _same_width(real, generated)
    x, y = real.double(), generated.double()
    n, m = len(x), len(y)
    if min(n, m) < 2:
        raise RequestError(f"KID of {n} against {m} samples: each side needs at least 2.")
    xx, yy, xy = (_cubic(a, b) for a, b in ((x, x), (y, y), (x, y)))
    within_x = (xx.sum() - xx.trace()) / (n * (n - 1))
    within_y = (yy.sum() - yy.trace()) / (m * (m - 1))
    return float(within_x + within_y - 2 * xy.mean())


def halves_fid(
    embeddings: Embeddings, size: int, *, generator: torch.Generator, draws: int = 20
) -> tuple[float, float]:
    """FID between two disjoint random subsets of ``size`` each: the floor at that count (mean, deviation)."""
    if 2 * size > len(embeddings):
        raise RequestError(f"Halves of {size} out of {len(embeddings)} samples overlap: size is at most half.")
    values = []
    for _ in range(draws):
        order = torch.randperm(len(embeddings), generator=generator)
        values.append(fid(embeddings[order[:size]], embeddings[order[size : 2 * size]]))
    spread = torch.tensor(values, dtype=torch.float64)
    return float(spread.mean()), float(spread.std(correction=1)) if draws > 1 else 0.0


def diversity(embeddings: Embeddings, *, generator: torch.Generator, pairs: int | None = None) -> float:
    """Mean distance of random pairs: 300 of them, 100 when the set holds no more than 300 (T2M's rule).

    Each side is drawn without replacement and on its own, so a pair may name one sample twice, as in T2M's code.
    """
    count = pairs if pairs is not None else (300 if len(embeddings) > 300 else 100)
    if count > len(embeddings):
        raise RequestError(f"Diversity draws {count} of {len(embeddings)} samples: pass pairs=, or more samples.")
    first = torch.randperm(len(embeddings), generator=generator)[:count]
    second = torch.randperm(len(embeddings), generator=generator)[:count]
    return float((embeddings[first] - embeddings[second]).double().norm(dim=-1).mean())


def multimodality(
    embeddings: Float[Tensor, "prompts repeats e"], *, generator: torch.Generator, pairs: int = 10
) -> float:
    """Mean distance between motions of one prompt; the same random index pairs serve every prompt."""
    repeats = embeddings.shape[1]
    if pairs > repeats:
        raise RequestError(f"MultiModality draws {pairs} of {repeats} motions a prompt: generate more, or pass pairs=.")
    first = torch.randperm(repeats, generator=generator)[:pairs]
    second = torch.randperm(repeats, generator=generator)[:pairs]
    return float((embeddings[:, first] - embeddings[:, second]).double().norm(dim=-1).mean())


def nearest_distance(queries: Embeddings, bank: Float[Tensor, "m e"]) -> Float[Tensor, " n"]:
    """Distance from each query to its nearest neighbour in ``bank``: small for generated clips means memorised."""
    _same_width(queries, bank)
    return torch.cdist(queries.double(), bank.double()).amin(dim=1)


def _cubic(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.T).div(a.shape[1]).add(1).pow(3)


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    if len(x) < 2:
        raise RequestError(f"FID of {len(x)} samples: a covariance needs at least 2.")
    x = x.double()
    return x.mean(dim=0), torch.cov(x.T).reshape(x.shape[1], x.shape[1])


def _sqrt_psd(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return torch.matmul(vectors * values.clamp_min(0).sqrt(), vectors.T)


def _same_width(a: Tensor, b: Tensor) -> None:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise RequestError(
            f"Embeddings of shapes {tuple(a.shape)} and {tuple(b.shape)}: both must be [samples, e] of one evaluator."
        )
