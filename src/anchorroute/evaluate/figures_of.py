"""From shards to the figures of a row: means over samples, then over K, then over repeats, with intervals.

FID and KID are printed from 128 clips on only; R-precision from 64. Below that they say more about the sample
than about the method.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.data.humanml3d import Clip
from anchorroute.evaluate import metrics
from anchorroute.evaluate.compare import mean_interval
from anchorroute.evaluate.evaluator import Evaluator
from anchorroute.evaluate.jobs import caption
from anchorroute.evaluate.shards import Shard
from anchorroute.evaluate.trust import embed_texts

FID_CLIPS = 128
RETRIEVAL_CLIPS = 64
RETRIEVAL_SHUFFLES = 20


@dataclass(frozen=True)
class Spread:
    """A mean over repeats and half of its 95 % interval (nan for one repeat)."""

    mean: float
    half: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """From one value a repeat."""
        return Spread(*mean_interval(np.array(values)))


@dataclass(frozen=True)
class Reference:
    """The real clips and their texts, embedded once for a table."""

    clips: Sequence[Clip]
    real: Shard
    texts: tuple[Float[Tensor, "clips e"], ...]
    """One set of text embeddings a repeat (captions differ between repeats)."""
    groups: Tensor

    @staticmethod
    def of(clips: Sequence[Clip], real: Shard, evaluator: Evaluator, repeats: int) -> "Reference":
        """Embed the captions of every repeat."""
        texts = tuple(embed_texts(evaluator, [caption(clip, r) for clip in clips]) for r in range(repeats))
        return Reference(clips, real, texts, metrics.caption_groups([clip.captions for clip in clips]))

    def floor(self, size: int) -> float:
        """FID between two halves of the real clips, each of half the size (there are no more real clips)."""
        half = min(size, len(self.clips)) // 2
        embedding = torch.from_numpy(self.real.embedding)
        return metrics.halves_fid(embedding, half, generator=torch.Generator().manual_seed(0))[0]

    def fid(self, shard: Shard) -> float:
        """Against the same clips, real."""
        return metrics.fid(torch.from_numpy(self.real.first(len(shard)).embedding), torch.from_numpy(shard.embedding))

    def kid(self, shard: Shard) -> float:
        """Against the same clips, real."""
        return metrics.kid(torch.from_numpy(self.real.first(len(shard)).embedding), torch.from_numpy(shard.embedding))

    def top(self, shard: Shard, repeat: int, *, duplicates: bool = True) -> tuple[float, ...]:
        """R-precision 1 to 3 with the repeat's captions."""
        n = len(shard)
        generator = torch.Generator().manual_seed(repeat)
        return metrics.r_precision(
            self.texts[repeat][:n],
            torch.from_numpy(shard.embedding),
            groups=self.groups[:n] if duplicates else None,
            generator=generator,
            shuffles=RETRIEVAL_SHUFFLES,
        )

    def feature_distance(self, shard: Shard, name: str) -> float:
        """Fréchet distance of kinetic or geometric features, each scaled by the real clips' deviation."""
        real = torch.from_numpy(getattr(self.real.first(len(shard)), name)).double()
        scale = real.std(dim=0).clamp_min(0.1 * float(real.std()))
        return metrics.fid(real / scale, torch.from_numpy(getattr(shard, name)).double() / scale)


Cells = list[list[Shard]]
"""Repeats of settings."""


def over(cells: Cells, figure: Callable[[Shard, int], float]) -> Spread:
    """Mean over settings, then over repeats; `figure` gets the shard and its repeat."""
    return Spread.of([float(np.mean([figure(shard, r) for shard in row])) for r, row in enumerate(cells)])


def control(cells: Cells, *, body: bool = False) -> Spread:
    """Control Error in metres."""
    return over(cells, lambda shard, _: metrics.control_error(shard.by_clip(body=body)))


def median_mm(cells: Cells, *, body: bool = False) -> float:
    """Median over all anchors, in millimetres."""
    name = "body_distances" if body else "distances"
    return 1000 * float(np.median(np.concatenate([getattr(shard, name) for row in cells for shard in row])))


def p95_mm(cells: Cells, *, body: bool = False) -> float:
    """95th percentile over all anchors, in millimetres."""
    name = "body_distances" if body else "distances"
    return 1000 * float(np.quantile(np.concatenate([getattr(shard, name) for row in cells for shard in row]), 0.95))


def rate(cells: Cells, which: Callable[..., float], threshold: float) -> Spread:
    """Trajectory or location error rate."""
    return over(cells, lambda shard, _: which(shard.by_clip(), threshold))


def per_clip(cells: Cells, name: str) -> Spread:
    """The mean of a figure that every clip has."""
    return over(cells, lambda shard, _: float(getattr(shard, name).mean()))


def paired(cells: Cells, name: str) -> Float[np.ndarray, "seeds clips"]:
    """A per-clip figure as repeats by (setting, clip), for the paired comparison."""
    return np.stack([np.concatenate([getattr(shard, name) for shard in row]) for row in cells])
