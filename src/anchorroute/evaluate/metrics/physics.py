"""Figures that joints alone decide: skating, floor, bones, smoothness.

All take joints in metres, Y up, 20 frames a second, ``[..., frames, 22, 3]`` without padding, and return one value a
clip. Averages over clips are the caller's.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.errors import RequestError
from anchorroute.motion.skeleton import BONE_LENGTHS, FPS, PARENTS

Joints = Float[Tensor, "*batch frames 22 3"]
PerClip = Float[Tensor, "*batch"]

TOES = (10, 11)
CONTACT_HEIGHT = 0.05
SKATING_SPEED = 0.5


def foot_skating(joints: Joints, *, padded_to: int | None = None) -> PerClip:
    """Share of frames in which a toe below 5 cm slides faster than 0.5 m/s, also on a five-frame average.

    ``padded_to=196`` divides by 195 frame pairs whatever the clip's length, which is what published tables that
    measure padded output do when the padding stands still. Unpadded is the honest figure.
    """
    _at_least(joints, 2)
    toes = joints[..., TOES, :]
    steps = toes[..., 1:, :, :] - toes[..., :-1, :, :]
    speed = _length(steps[..., [0, 2]]) * FPS
    low = toes[..., 1] < CONTACT_HEIGHT
    touching = low[..., 1:, :] & low[..., :-1, :]
    sliding = touching & (speed > SKATING_SPEED) & (_box(speed) > SKATING_SPEED)
    frames = sliding.any(dim=-1).sum(dim=-1)
    pairs = joints.shape[-3] - 1 if padded_to is None else padded_to - 1
    if pairs < joints.shape[-3] - 1:
        raise RequestError(f"A clip of {joints.shape[-3]} frames does not fit into {padded_to}.")
    return frames.to(joints.dtype).div(pairs)


def floor_penetration(joints: Joints) -> PerClip:
    """Mean over frames of how far the lowest joint is below the floor (metres)."""
    return (-joints[..., 1].amin(dim=-1)).clamp_min(0).mean(dim=-1)


def floating(joints: Joints, *, tolerance: float = 0.05) -> PerClip:
    """Mean over frames of how far the lowest joint is above ``tolerance`` (metres); jumps count, so compare only."""
    return (joints[..., 1].amin(dim=-1) - tolerance).clamp_min(0).mean(dim=-1)


def bone_length_error(joints: Joints) -> PerClip:
    """Mean absolute deviation of the 21 bones from their canonical lengths (metres)."""
    lengths = _length(joints[..., 1:, :] - joints[..., list(PARENTS[1:]), :])
    canonical = torch.as_tensor(BONE_LENGTHS[1:], dtype=lengths.dtype, device=lengths.device)
    return lengths.sub(canonical).abs().mean(dim=(-2, -1))


def jerk(joints: Joints) -> PerClip:
    """Mean length of the third difference of all joints, in m/s^3."""
    _at_least(joints, 4)
    return _length(joints.diff(n=3, dim=-3)).mean(dim=(-2, -1)).mul(FPS**3)


def joint_acceleration(joints: Joints) -> PerClip:
    """Mean length of the second difference of all joints, in m/s^2."""
    _at_least(joints, 3)
    return _length(joints.diff(n=2, dim=-3)).mean(dim=(-2, -1)).mul(FPS**2)


def root_acceleration(joints: Joints) -> PerClip:
    """Mean length of the second difference of the pelvis, in m/s^2."""
    _at_least(joints, 3)
    return _length(joints[..., 0, :].diff(n=2, dim=-2)).mean(dim=-1).mul(FPS**2)


def _length(vectors: Tensor) -> Tensor:
    return vectors.square().sum(dim=-1).sqrt()


def _box(speed: Tensor, size: int = 5) -> Tensor:
    """Centred moving average in time over ``size`` frames; beyond the ends the speed is zero."""
    moved = speed.movedim(-2, -1)
    flat = torch.nn.functional.pad(moved, (size // 2, size // 2))
    return flat.unfold(-1, size, 1).mean(dim=-1).movedim(-1, -2)


def _at_least(joints: Tensor, frames: int) -> None:
    if joints.shape[-2:] != (22, 3) or joints.ndim < 3:
        raise RequestError(f"Joints of shape {tuple(joints.shape)}: expected [..., frames, 22, 3].")
    if joints.shape[-3] < frames:
        raise RequestError(f"A clip of {joints.shape[-3]} frames: this figure needs at least {frames}.")
