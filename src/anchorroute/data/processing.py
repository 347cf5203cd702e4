"""What happens to a clip's joints on their way into a data set: faults found, mirrored, made canonical, features."""

import numpy as np
import torch
from jaxtyping import Float

from anchorroute.motion.body import fixed_bones
from anchorroute.motion.canonical import canonicalise
from anchorroute.motion.features import from_joints
from anchorroute.motion.skeleton import MIRROR

_JUMP = 1.0
"""Metres in one frame (20 m/s): what no joint of a person does."""
_POP, _CALM = 0.35, 0.25
"""A joint that moves so many metres in one frame, and less than a quarter of it before and after, was not moved."""
_GLITCH, _RETURN = 0.38, 0.35
"""A joint that leaves by so many metres and is back a frame later, nearly."""


def breaks(joints: Float[np.ndarray, "frames 22 3"]) -> list[int]:
    """The frames after which the motion does not go on: captures that pop, skip or hold one broken frame."""
    if len(joints) < 2:
        return []
    step = np.linalg.norm(np.diff(joints, axis=0), axis=-1)
    around = np.pad(step, ((1, 1), (0, 0)))
    calm = _CALM * step > np.maximum(around[:-2], around[2:])
    broken = ((step > _JUMP) | ((step > _POP) & calm) | ~np.isfinite(step)).any(-1)
    if len(joints) > 2:
        away = np.minimum(step[:-1], step[1:])
        back = np.linalg.norm(joints[2:] - joints[:-2], axis=-1)
        glitch = ((away > _GLITCH) & (back < _RETURN * away)).any(-1)
        broken[:-1] |= glitch
        broken[1:] |= glitch
    return [int(frame) for frame in np.flatnonzero(broken)]


def mirror_joints(joints: Float[torch.Tensor, "frames 22 3"]) -> Float[torch.Tensor, "frames 22 3"]:
    """The motion seen in a mirror, on the canonical body.

    The canonical left and right limbs differ by some millimetres, so swapping joints alone would give a second body:
    like HumanML3D, which mirrors before it puts motion on its skeleton, we keep one.
    """
    swapped = joints[..., list(MIRROR), :] * torch.tensor([-1.0, 1.0, 1.0], dtype=joints.dtype)
    return fixed_bones(swapped)


def features_of(joints: Float[torch.Tensor, "clips frames 22 3"]) -> Float[torch.Tensor, "clips frames-1 263"]:
    """Features of clips that stand anywhere; computed in double precision, kept in single."""
    canonical = torch.stack([canonicalise(one)[0] for one in joints.double()])
    return from_joints(canonical).float()
