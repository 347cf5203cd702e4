"""How well anchors are met, from the distances of one sample's anchors.

The order of the means is part of the definition: over a sample's anchors, then over samples (then over K and over
repeats, by the tables). A sample with many anchors therefore weighs no more than one with few.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.errors import RequestError
from anchorroute.observation import Observed


def control_distances(joints: Float[Tensor, "frames 22 3"], observed: Observed) -> Float[Tensor, " n"]:
    """Distance in metres from each anchor to the motion, over its set coordinates; between frames, linearly."""
    frames = observed.frames.double()
    if len(frames) and (float(frames.max()) > len(joints) - 1 or float(frames.min()) < 0):
        raise RequestError(f"An anchor outside frames 0..{len(joints) - 1}: {frames.tolist()}.")
    low = frames.floor().long()
    high = (low + 1).clamp_max(len(joints) - 1)
    motion = joints.double()
    points = torch.lerp(motion[low, observed.joints], motion[high, observed.joints], (frames - low)[:, None])
    return observed.difference(points).square().sum(dim=-1).sqrt()


def control_error(distances: Sequence[Float[Tensor, " n"]]) -> float:
    """Mean over samples of the mean distance of a sample's anchors (metres)."""
    return _mean_over_samples([each.double().mean() for each in distances])


def trajectory_error_rate(distances: Sequence[Float[Tensor, " n"]], threshold: float) -> float:
    """Share of samples in which any anchor is farther than ``threshold`` metres."""
    return _mean_over_samples([(each > threshold).any().double() for each in distances])


def location_error_rate(distances: Sequence[Float[Tensor, " n"]], threshold: float) -> float:
    """Share of anchors farther than ``threshold`` metres, per sample, then the mean over samples."""
    return _mean_over_samples([(each > threshold).double().mean() for each in distances])


def _mean_over_samples(values: Sequence[Tensor]) -> float:
    if not values:
        raise RequestError("No sample: an error of nothing is not zero.")
    return float(torch.stack(list(values)).mean())
