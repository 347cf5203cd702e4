"""The fixed-bone body: the one that a file can hold, and the one whose millimetres are reported.

Decoded features give joints whose bones stretch by a centimetre. `fixed_bones` puts them on canonical bones: the
pelvis's and the chest's three bones are rigid groups, every other joint lies along its decoded direction.
`rotations` poses the T-pose skeleton so that `forward_kinematics` returns exactly those joints. The twist about a
limb, which positions leave open, follows the bend of the knee or elbow, so that hinges look like hinges.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.motion.filters import gaussian
from anchorroute.motion.rotation import (
    frame,
    matrix_to_quat,
    normalise,
    quat_apply,
    quat_between,
    quat_continuous,
    quat_inverse,
    quat_multiply,
    quat_slerp,
)
from anchorroute.motion.skeleton import BONE_LENGTHS, CHEST_GROUP, PARENTS, PELVIS_GROUP, REST_OFFSETS

_PELVIS, _CHEST = 0, 9
#: How strongly the bend, the foot and the unbent limb pull on a limb's twist.
_BEND, _TOE, _STRAIGHT = 1.0, 0.3, 0.15
_TWIST_SIGMA = 3.0


def _ancestry() -> Tensor:
    """`[j, k]` is 1 where joint k lies on the way from the root to joint j, both ends counted."""
    matrix = torch.zeros(22, 22)
    for joint in range(22):
        k = joint
        while k >= 0:
            matrix[joint, k] = 1.0
            k = PARENTS[k]
    return matrix


_ANCESTRY = _ancestry()
_REST = torch.from_numpy(REST_OFFSETS.copy())
_LENGTHS = torch.tensor(BONE_LENGTHS)
_PARENT_INDEX = torch.tensor([0, *PARENTS[1:]])


def _pelvis_frame(joints: Float[Tensor, "*batch 22 3"]) -> Float[Tensor, "*batch 3 3"]:
    across = joints[..., 1, :] - joints[..., 2, :]
    return frame(across, joints[..., 3, :] - 0.5 * (joints[..., 1, :] + joints[..., 2, :]))


def _chest_frame(joints: Float[Tensor, "*batch 22 3"]) -> Float[Tensor, "*batch 3 3"]:
    return frame(joints[..., 13, :] - joints[..., 14, :], joints[..., 12, :] - joints[..., _CHEST, :])


def _rest_joints() -> Tensor:
    return _ANCESTRY @ _REST


_PELVIS_REST = _pelvis_frame(_rest_joints())
_CHEST_REST = _chest_frame(_rest_joints())


def _group_rotations(joints: Float[Tensor, "*batch 22 3"]) -> tuple[Tensor, Tensor]:
    """The turn of pelvis and chest from the T-pose, as matrices."""
    pelvis = _pelvis_frame(joints) @ _PELVIS_REST.to(joints).T
    chest = _chest_frame(joints) @ _CHEST_REST.to(joints).T
    return pelvis, chest


def fixed_bones(joints: Float[Tensor, "*batch 22 3"]) -> Float[Tensor, "*batch 22 3"]:
    """The same pose on canonical bones; differentiable, and a second time it changes nothing."""
    pelvis, chest = _group_rotations(joints)
    rest = _REST.to(joints)
    parents = joints[..., _PARENT_INDEX.to(joints.device), :]
    offsets = normalise(joints - parents) * _LENGTHS.to(joints)[:, None]
    parts = list(offsets.unbind(-2))
    parts[0] = joints[..., 0, :]
    for j in PELVIS_GROUP:
        parts[j] = pelvis @ rest[j]
    for j in CHEST_GROUP:
        parts[j] = chest @ rest[j]
    return _ANCESTRY.to(joints) @ torch.stack(parts, -2)


def rotations(
    joints: Float[Tensor, "*batch time 22 3"],
) -> tuple[Float[Tensor, "*batch time 3"], Float[Tensor, "*batch time 22 4"]]:
    """Root positions and local rotations that pose the T-pose skeleton as `fixed_bones(joints)`."""
    fixed = fixed_bones(joints)
    turns = _global_rotations(fixed)
    local = [turns[0]]
    local += [quat_multiply(quat_inverse(turns[PARENTS[j]]), turns[j]) for j in range(1, 22)]
    return fixed[..., 0, :], quat_continuous(torch.stack(local, -2))


def _global_rotations(joints: Float[Tensor, "*batch 22 3"]) -> list[Float[Tensor, "*batch 4"]]:
    pelvis, chest = (matrix_to_quat(m) for m in _group_rotations(joints))
    turns: list[Tensor] = [pelvis] * 22
    turns[_CHEST] = chest
    # The spine shares the twist between pelvis and chest.
    turns[3] = _swing(quat_slerp(pelvis, chest, 1 / 3), joints, 3, 6)
    turns[6] = _swing(quat_slerp(pelvis, chest, 2 / 3), joints, 6, 9)
    turns[12] = _swing(chest, joints, 12, 15)
    turns[15] = turns[12]
    for hip, knee, ankle, foot in ((1, 4, 7, 10), (2, 5, 8, 11)):
        turns[hip] = _limb(pelvis, joints, (hip, knee, ankle), -_BEND, foot)
        turns[knee] = _swing(turns[hip], joints, knee, ankle)
        turns[ankle] = _swing(turns[knee], joints, ankle, foot)
        turns[foot] = turns[ankle]
    for collar, shoulder, elbow, wrist in ((13, 16, 18, 20), (14, 17, 19, 21)):
        turns[collar] = _swing(chest, joints, collar, shoulder)
        turns[shoulder] = _limb(turns[collar], joints, (shoulder, elbow, wrist), _BEND, None)
        turns[elbow] = _swing(turns[shoulder], joints, elbow, wrist)
        turns[wrist] = turns[elbow]
    return turns


def _swing(base: Float[Tensor, "*batch 4"], joints: Tensor, joint: int, child: int) -> Float[Tensor, "*batch 4"]:
    """`base`, turned as little as possible so that the bone to `child` points where it does."""
    resting = quat_apply(base, _REST[child].to(joints))
    return quat_multiply(quat_between(resting, joints[..., child, :] - joints[..., joint, :]), base)


def _limb(
    base: Float[Tensor, "*batch time 4"],
    joints: Float[Tensor, "*batch time 22 3"],
    chain: tuple[int, int, int],
    bend: float,
    toe: int | None,
) -> Float[Tensor, "*batch time 4"]:
    """An upper limb's rotation: along its bone, its front to where the lower limb bends (knees: away from it).

    A straight limb says nothing of its twist, so the wish is averaged over neighbouring frames by its strength:
    without that the twist jumps by a quarter turn where an arm passes through straight.
    """
    top, middle, end = chain
    along = normalise(joints[..., middle, :] - joints[..., top, :])
    front = bend * normalise(joints[..., end, :] - joints[..., middle, :])
    if toe is not None:
        front = front + _TOE * normalise(joints[..., toe, :] - joints[..., end, :])
    unbent = _swing(base, joints, top, middle)
    ahead = quat_apply(unbent, torch.tensor([0.0, 0.0, 1.0]).to(joints))
    aside = torch.linalg.cross(along, ahead)
    wish = torch.stack(((front * ahead).sum(-1) + _STRAIGHT, (front * aside).sum(-1)), -1)
    wish = gaussian(wish, _TWIST_SIGMA)
    half = 0.5 * torch.atan2(wish[..., 1], wish[..., 0])[..., None]
    return quat_multiply(torch.cat((half.cos(), half.sin() * along), -1), unbent)


def forward_kinematics(
    root: Float[Tensor, "*batch 3"], local: Float[Tensor, "*batch 22 4"]
) -> Float[Tensor, "*batch 22 3"]:
    """Joint positions of the T-pose skeleton under local rotations."""
    rest = _REST.to(local)
    turns, places = [local[..., 0, :]], [root]
    for j in range(1, 22):
        parent = PARENTS[j]
        places.append(places[parent] + quat_apply(turns[parent], rest[j]))
        turns.append(quat_multiply(turns[parent], local[..., j, :]))
    return torch.stack(places, -2)
