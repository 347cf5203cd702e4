"""HumanML3D's 263 numbers a frame, from joints and back.

`from_joints` expects canonical joints (`canonical.canonicalise`): floor at 0, start at the origin, facing +Z.
`to_joints` reads only the first 67 numbers. N frames of joints give N - 1 rows. Quirks of the data set that are kept,
because every model and metric of the field is built on them:

- `root_yaw` holds *half* the yaw angle per frame;
- the heading is built from hips and shoulders taken with *opposite* signs, and smoothed over the whole clip, so the
  last 80 rows change when a clip is cut (`heading`);
- a foot is in contact when it moves slowly, at any height (`contacts`);
- the heading of the first frame is +Z by definition, whatever the body does.

One quirk is not kept: the original changes the sign of `root_yaw` on the one frame where the heading passes -Z.
"""

import itertools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from anchorroute.motion.filters import gaussian
from anchorroute.motion.rotation import (
    matrix_to_6d,
    normalise,
    quat_about_y,
    quat_apply,
    quat_between,
    quat_inverse,
    quat_multiply,
    quat_to_matrix,
)
from anchorroute.motion.skeleton import CHAINS, CONTACT_JOINTS, RAW_DIRECTIONS

DIM = 263
_HEADING_SIGMA = 20.0
_CONTACT_SQUARED_STEP = 0.002


class Slices(NamedTuple):
    """Where each kind of number stands in a row."""

    root_yaw: slice = slice(0, 1)
    root_velocity: slice = slice(1, 3)
    root_height: slice = slice(3, 4)
    ric: slice = slice(4, 67)
    rotations: slice = slice(67, 193)
    velocities: slice = slice(193, 259)
    contacts: slice = slice(259, 263)


SLICES = Slices()


def heading(joints: Float[Tensor, "*batch time 22 3"]) -> Float[Tensor, "*batch time"]:
    """The yaw that turns each frame's smoothed facing direction onto +Z; zero at the first frame by definition."""
    # Left minus right at the hips, right minus left at the shoulders: the shoulders win because they are wider.
    across = normalise((joints[..., 1, :] - joints[..., 2, :]) + (joints[..., 17, :] - joints[..., 16, :]))
    forward = torch.stack((across[..., 2], torch.zeros_like(across[..., 0]), -across[..., 0]), -1)
    smooth = gaussian(forward, _HEADING_SIGMA)
    yaw = torch.atan2(-smooth[..., 0], smooth[..., 2])
    return torch.cat((torch.zeros_like(yaw[..., :1]), yaw[..., 1:]), -1)


def contacts(joints: Float[Tensor, "*batch time 22 3"]) -> Bool[Tensor, "*batch time-1 4"]:
    """Whether ankles and feet (left, left, right, right) rest: less than 0.894 m/s at 20 fps, at any height."""
    feet = joints[..., list(CONTACT_JOINTS), :]
    return (feet[..., 1:, :, :] - feet[..., :-1, :, :]).square().sum(-1) < _CONTACT_SQUARED_STEP


def from_joints(joints: Float[Tensor, "*batch time 22 3"]) -> Float[Tensor, "*batch time-1 263"]:
    """Features of canonical joints; one row fewer than there are frames."""
    yaw = heading(joints)
    turn = quat_about_y(yaw)
    here, there = turn[..., :-1, :], turn[..., 1:, :]
    root = joints[..., 0, :]
    # The difference of angles wraps at a half turn; the sine's argument brings it back to the short way round.
    step = yaw[..., 1:] - yaw[..., :-1]
    half_yaw = 0.5 * torch.atan2(step.sin(), step.cos())
    travel = quat_apply(there, root[..., 1:, :] - root[..., :-1, :])
    ground = torch.stack((root[..., 0], torch.zeros_like(root[..., 0]), root[..., 2]), -1)
    local = quat_apply(turn[..., None, :], joints - ground[..., None, :])
    motion = quat_apply(here[..., None, :], joints[..., 1:, :, :] - joints[..., :-1, :, :])
    rotations = _chain_rotations(joints, turn)
    return torch.cat(
        (
            half_yaw[..., None],
            travel[..., [0, 2]],
            root[..., :-1, 1:2],
            local[..., :-1, 1:, :].flatten(-2),
            rotations[..., :-1, :, :].flatten(-2),
            motion.flatten(-2),
            contacts(joints).to(joints),
        ),
        -1,
    )


def _chain_rotations(
    joints: Float[Tensor, "*batch time 22 3"], turn: Float[Tensor, "*batch time 4"]
) -> Float[Tensor, "*batch time 21 6"]:
    """Each bone's smallest turn from its raw direction, relative to the bone before it in its chain.

    The first bone of every chain, the arms' too, is relative to the heading. There is no twist in these numbers, so
    they cannot pose a body: `body.rotations` does that.
    """
    raw = torch.tensor(RAW_DIRECTIONS, dtype=joints.dtype, device=joints.device)
    local: dict[int, Tensor] = {}
    for chain in CHAINS:
        before = turn
        for parent, child in itertools.pairwise(chain):
            own = quat_between(raw[child], joints[..., child, :] - joints[..., parent, :])
            local[child] = matrix_to_6d(quat_to_matrix(quat_multiply(quat_inverse(before), own)))
            before = own
    return torch.stack([local[j] for j in range(1, 22)], -2)


def to_root(
    features: Float[Tensor, "*batch time dim"],
) -> tuple[Float[Tensor, "*batch time"], Float[Tensor, "*batch time 3"]]:
    """The yaw by which each frame's body stands turned (from +Z towards -X), and the pelvis's position."""
    half = features[..., 0].cumsum(-1)
    yaw = 2.0 * (half - features[..., 0])
    sine, cosine = yaw.sin(), yaw.cos()
    # Row t-1 moves the root from frame t-1 to t, seen in frame t's heading.
    vx = F.pad(features[..., :-1, 1], (1, 0))
    vz = F.pad(features[..., :-1, 2], (1, 0))
    x = (cosine * vx - sine * vz).cumsum(-1)
    z = (sine * vx + cosine * vz).cumsum(-1)
    return yaw, torch.stack((x, features[..., 3], z), -1)


def to_joints(features: Float[Tensor, "*batch time dim"]) -> Float[Tensor, "*batch time 22 3"]:
    """Joint positions in metres, differentiable; needs only the first 67 numbers of each row."""
    yaw, root = to_root(features)
    ric = features[..., SLICES.ric].unflatten(-1, (21, 3))
    sine, cosine = yaw.sin()[..., None], yaw.cos()[..., None]
    x = cosine * ric[..., 0] - sine * ric[..., 2] + root[..., 0:1]
    z = sine * ric[..., 0] + cosine * ric[..., 2] + root[..., 2:3]
    others = torch.stack((x, ric[..., 1], z), -1)
    return torch.cat((root[..., None, :], others), -2)
