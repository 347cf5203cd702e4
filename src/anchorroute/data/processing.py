"""What happens to a clip's joints on their way into a data set: faults found, mirrored, made canonical, features."""

from functools import cache

import numpy as np
import torch
from jaxtyping import Float

from anchorroute.motion.body import fixed_bones
from anchorroute.motion.canonical import canonicalise
from anchorroute.motion.features import from_joints
from anchorroute.motion.rotation import frame
from anchorroute.motion.skeleton import BONE_LENGTHS, CHEST_GROUP, MIRROR, PARENTS, PELVIS_GROUP, REST_OFFSETS

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
    return fixed_bones(_swapped(joints))


def mirror_rounded(joints: Float[torch.Tensor, "*batch 22 3"]) -> Float[torch.Tensor, "*batch 22 3"]:
    """`mirror_joints` of joints on the canonical body, but gentle to small errors in them.

    Taking directions from short bones makes 0.5 mm into 2; here every bone is stretched by the known ratio of its
    sides, and the rigid groups get the constant by which left and right differ, so an error stays what it is.
    """
    swapped = _swapped(joints)
    bones = torch.cat((swapped[..., :1, :], swapped[..., 1:, :] - swapped[..., list(PARENTS[1:]), :]), -2)
    lengths = torch.tensor(BONE_LENGTHS, dtype=joints.dtype)
    stretch = torch.ones_like(lengths)
    stretch[1:] = lengths[1:] / lengths[list(MIRROR[1:])]
    moved = bones * stretch[:, None]
    for group, frames, constants in zip((PELVIS_GROUP, CHEST_GROUP), _frames(swapped), _asymmetry()):
        turned = torch.einsum("...ij,kj->...ki", frames, constants.to(joints))
        moved[..., list(group), :] = bones[..., list(group), :] + turned
    parts = [moved[..., 0, :]]
    for joint in range(1, len(PARENTS)):
        parts.append(parts[PARENTS[joint]] + moved[..., joint, :])
    return torch.stack(parts, -2)


def _swapped(joints: Float[torch.Tensor, "*batch 22 3"]) -> Float[torch.Tensor, "*batch 22 3"]:
    return joints[..., list(MIRROR), :] * torch.tensor([-1.0, 1.0, 1.0], dtype=joints.dtype)


def _frames(joints: Float[torch.Tensor, "*batch 22 3"]) -> tuple[torch.Tensor, torch.Tensor]:
    """Axes fixed to the pelvis and to the chest."""
    middle = 0.5 * (joints[..., 1, :] + joints[..., 2, :])
    pelvis = frame(joints[..., 1, :] - joints[..., 2, :], joints[..., 3, :] - middle)
    chest = frame(joints[..., 13, :] - joints[..., 14, :], joints[..., 12, :] - joints[..., 9, :])
    return pelvis, chest


@cache
def _asymmetry() -> tuple[torch.Tensor, torch.Tensor]:
    """What `fixed_bones` adds to the bones of a mirrored pelvis and chest, in their own axes: read off the T-pose."""
    rest = torch.from_numpy(REST_OFFSETS.astype(np.float64))
    positions = [rest[0]]
    for joint in range(1, len(PARENTS)):
        positions.append(positions[PARENTS[joint]] + rest[joint])
    swapped = _swapped(torch.stack(positions))
    change = fixed_bones(swapped) - swapped
    change = change - torch.cat((change[:1], change[list(PARENTS[1:])]))
    pelvis, chest = _frames(swapped)
    return change[list(PELVIS_GROUP)] @ pelvis, change[list(CHEST_GROUP)] @ chest


def features_of(joints: Float[torch.Tensor, "clips frames 22 3"]) -> Float[torch.Tensor, "clips frames-1 263"]:
    """Features of clips that stand anywhere; computed in double precision, kept in single."""
    canonical = torch.stack([canonicalise(one)[0] for one in joints.double()])
    return from_joints(canonical).float()
