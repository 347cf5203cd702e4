"""The paired comparison behind every "no worse": two systems on the same clips with the same seeds.

For a figure that every clip has (skating, jerk, retrieval hit, error) the differences d[seed, clip] vary with the
clip *and* with the seed, and treating them as seeds x clips independent draws would be far too sure. The variance of
their mean is taken as var(clip means) / clips + var(seed means) / seeds, which counts the residual twice and so errs
on the safe side. For a figure of a whole set (FID, KID) there is one difference a seed.

"No worse" holds when the 95 % interval of the difference reaches zero or better, or the difference itself stays
within the margin of ``MARGINS``.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student

from anchorroute.errors import RequestError

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Margin:
    """What a figure may lose before it counts as worse; ``relative`` margins are shares of the baseline."""

    better: Better
    value: float
    relative: bool = False


MARGINS = {
    "r_top3": Margin("higher", 0.03),
    "fid": Margin("lower", 0.01),
    "skating": Margin("lower", 0.005),
    "jerk": Margin("lower", 0.02, relative=True),
}


@dataclass(frozen=True)
class Comparison:
    """Candidate minus baseline, with its 95 % interval, and the verdict."""

    metric: str
    baseline: float
    candidate: float
    difference: float
    low: float
    high: float
    margin: float
    no_worse: bool
    seeds: int
    clips: int


def compare(
    metric: str,
    baseline: Float[np.ndarray, "seeds *clips"],
    candidate: Float[np.ndarray, "seeds *clips"],
    *,
    margin: Margin | None = None,
) -> Comparison:
    """Compare two arrays paired entry by entry: [seeds, clips], or [seeds] for a figure of a whole set."""
    rule = margin if margin is not None else MARGINS.get(metric)
    if rule is None:
        raise RequestError(f'"{metric}" has no margin: pass margin=, or use one of {", ".join(MARGINS)}.')
    before, after = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    if before.shape != after.shape or before.ndim not in (1, 2) or before.size == 0:
        raise RequestError(f"Shapes {before.shape} and {after.shape}: pair [seeds, clips] with [seeds, clips].")
    difference = after - before
    mean = float(difference.mean())
    half = _half_width(difference)
    low, high = mean - half, mean + half
    allowed = rule.value * (abs(float(before.mean())) if rule.relative else 1.0)
    loss, least_loss = (mean, low) if rule.better == "lower" else (-mean, -high)
    fine = least_loss <= 0 or loss <= allowed
    clips = before.shape[1] if before.ndim == 2 else 0
    return Comparison(
        metric, float(before.mean()), float(after.mean()), mean, low, high, allowed, fine, before.shape[0], clips
    )


def _half_width(difference: Float[np.ndarray, "seeds *clips"]) -> float:
    """Half of the 95 % interval of the mean difference."""
    if difference.ndim == 1:
        return _t_half(difference)
    by_clip, by_seed = difference.mean(axis=0), difference.mean(axis=1)
    if len(by_clip) == 1 and len(by_seed) == 1:
        raise RequestError("One clip with one seed: an interval needs at least two of either.")
    parts = [_t_half(axis) for axis in (by_clip, by_seed) if len(axis) > 1]
    return float(np.hypot.reduce(parts))


def _t_half(values: Float[np.ndarray, " n"]) -> float:
    n = len(values)
    if n < 2:
        raise RequestError("One seed of a figure of a whole set: an interval needs at least two seeds.")
    return float(student.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))


def mean_interval(values: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Mean over repeats and half of its 95 % interval (Student's t); a single repeat has no interval (nan)."""
    array = np.asarray(values, np.float64)
    if array.size == 0:
        raise RequestError("No repeat: a mean of nothing is not zero.")
    return float(array.mean()), _t_half(array) if array.size > 1 else float("nan")
