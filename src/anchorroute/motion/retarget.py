"""Other people's skeletons to the 22 joints: bone directions from the capture, canonical lengths, root to scale.

CMU's skeleton needs care: its LeftShoulder, RightShoulder and Neck all start on the chest joint itself, so by name
alone the shoulders sit in mid-trunk. The pelvis and the chest are therefore rigid groups hung from frames that the
capture does give; every other bone keeps its captured direction. The result is not yet put on the floor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from anchorroute.errors import FormatError
from anchorroute.motion import body
from anchorroute.motion.bvh_names import is_cmu, recognise
from anchorroute.motion.bvh_raw import RawBvh
from anchorroute.motion.skeleton import BONE_LENGTHS, CHEST_GROUP, JOINTS, PARENTS, PELVIS_GROUP, REST_OFFSETS

Array = np.ndarray[Any, np.dtype[Any]]

CMU_UNIT = 0.056444
"""Metres in one length unit of the CMU conversions; the mapping itself scales by the legs and does not need it."""

_BLOCK = 4096
_KNEE, _ANKLE = JOINTS.index("right_knee"), JOINTS.index("right_ankle")

#: For each joint outside the two rigid groups, the capture's bone that gives its direction: from, to.
_CMU_BONES: dict[str, tuple[str, str]] = {
    "spine2": ("Spine", "Spine1"),
    "spine3": ("Spine", "Spine1"),
    "left_knee": ("LeftUpLeg", "LeftLeg"),
    "right_knee": ("RightUpLeg", "RightLeg"),
    "left_ankle": ("LeftLeg", "LeftFoot"),
    "right_ankle": ("RightLeg", "RightFoot"),
    "left_foot": ("LeftFoot", "LeftToeBase"),
    "right_foot": ("RightFoot", "RightToeBase"),
    "head": ("Neck1", "Head:end"),
    "left_shoulder": ("Neck", "LeftArm"),
    "right_shoulder": ("Neck", "RightArm"),
    "left_elbow": ("LeftArm", "LeftForeArm"),
    "right_elbow": ("RightArm", "RightForeArm"),
    "left_wrist": ("LeftForeArm", "LeftHand"),
    "right_wrist": ("RightForeArm", "RightHand"),
}


def cmu_to_22(raw: RawBvh) -> Float[np.ndarray, "frames 22 3"]:
    """CMU's skeleton as the 22 joints, metres, float32; works in blocks of frames, so long takes stay small."""
    nodes = {name: raw.index(name) for pair in _CMU_BONES.values() for name in pair}
    right_leg = ("RightUpLeg", "RightLeg", "RightFoot")
    lengths = [np.linalg.norm(raw.offsets[nodes[name]]) for name in right_leg[1:]]
    if min(lengths) == 0.0:
        raise _zero_length(raw, right_leg[1 + int(np.argmin(lengths))])
    scale = (BONE_LENGTHS[_KNEE] + BONE_LENGTHS[_ANKLE]) / sum(lengths)
    up = _up_axis(raw, raw.index("Hips"), raw.index("Head"))
    joints = np.empty((raw.frames, len(JOINTS), 3), dtype=np.float32)
    for start in range(0, raw.frames, _BLOCK):
        positions, turns = _upright(raw.world(start, start + _BLOCK), up)
        joints[start : start + _BLOCK] = _cmu_block(raw, nodes, positions, turns, float(scale))
    return joints


def to_22(raw: RawBvh) -> Float[np.ndarray, "frames 22 3"]:
    """CMU's, Mixamo's or SMPL's joints as the 22, metres, on canonical bones; other names are refused."""
    return cmu_to_22(raw) if is_cmu(raw.names) else named_to_22(raw)


def named_to_22(raw: RawBvh) -> Float[np.ndarray, "frames 22 3"]:
    """A skeleton that has the 22 joints under Mixamo's or SMPL's names, whatever its proportions and its unit."""
    naming, nodes, missing = recognise(raw.names)
    if missing:
        raise FormatError(
            f"{raw.source}: the joint names fit {naming} best, but these are missing: {', '.join(missing)}; "
            "rename the file's joints to CMU's, Mixamo's or SMPL's"
        )
    order = [nodes[joint] for joint in range(len(JOINTS))]
    up = _up_axis(raw, order[0], order[JOINTS.index("head")])
    scale: float | None = None
    joints = np.empty((raw.frames, len(JOINTS), 3), dtype=np.float32)
    for start in range(0, raw.frames, _BLOCK):
        positions = _upright(raw.world(start, start + _BLOCK), up)[0][:, order]
        bones = np.linalg.norm(positions[:, 1:] - positions[:, PARENTS[1:]], axis=-1)
        if not bones.all():
            joint = 1 + int(np.flatnonzero(~bones.all(axis=0))[0])
            raise _zero_length(raw, raw.names[order[joint]])
        scale = scale or (BONE_LENGTHS[_KNEE] + BONE_LENGTHS[_ANKLE]) / float(
            bones[0, _KNEE - 1] + bones[0, _ANKLE - 1]
        )
        fixed = body.fixed_bones(torch.from_numpy(positions)).numpy()
        middle = scale * positions[:, [1, 2]].mean(1) - fixed[:, [1, 2]].mean(1)
        joints[start : start + _BLOCK] = fixed + middle[:, None]
    return joints


def _up_axis(raw: RawBvh, hips: int, head: int) -> str:
    """ "z" if the head is along Z from the hips both in the rest pose and, on the whole, in the motion; else "y".

    BVH is Y up by habit, but Blender writes its own Z-up axes. One sign alone would not do: a body may lie down.
    """
    rest, node = np.zeros(3), head
    while node != hips and node >= 0:
        rest += raw.offsets[node]
        node = raw.parents[node]
    if rest[2] <= 2.0 * abs(rest[1]):
        return "y"
    positions, _ = raw.world(0, _BLOCK)
    moved = (positions[:, head] - positions[:, hips]).mean(0)
    return "z" if moved[2] > abs(moved[1]) else "y"


def _upright(world: tuple[Array, Array], up: str) -> tuple[Array, Array]:
    """Positions and rotations with Y up: Blender's (x, y, z) are this body's (x, z, -y)."""
    if up == "y":
        return world
    axes = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    positions, turns = world
    return positions @ axes.T, axes @ turns @ axes.T


def _cmu_block(raw: RawBvh, nodes: dict[str, int], positions: Array, turns: Array, scale: float) -> Array:
    at = {name: positions[:, node] for name, node in nodes.items()}
    middle = 0.5 * (at["LeftUpLeg"] + at["RightUpLeg"])
    pelvis = _frame(at["LeftUpLeg"] - at["RightUpLeg"], at["Spine"] - middle)
    chest = turns[:, nodes["Spine1"]]
    offsets = np.zeros((len(positions), len(JOINTS), 3))
    for joint in PELVIS_GROUP:
        offsets[:, joint] = pelvis @ REST_OFFSETS[joint]
    for joint in CHEST_GROUP:
        offsets[:, joint] = chest @ REST_OFFSETS[joint]
    for name, (start, end) in _CMU_BONES.items():
        bone = at[end] - at[start]
        length = np.linalg.norm(bone, axis=-1, keepdims=True)
        if not length.all():
            raise _zero_length(raw, end)
        joint = JOINTS.index(name)
        offsets[:, joint] = bone / length * BONE_LENGTHS[joint]
    offsets[:, 0] = scale * middle - 0.5 * (offsets[:, 1] + offsets[:, 2])
    for joint in range(1, len(JOINTS)):
        offsets[:, joint] += offsets[:, PARENTS[joint]]
    return offsets


def _frame(x: Array, y: Array) -> Array:
    """Rotation matrices [T, 3, 3] with the first axis along x, the second nearest to y."""
    first = x / np.linalg.norm(x, axis=-1, keepdims=True)
    second = y - (first * y).sum(-1, keepdims=True) * first
    second /= np.linalg.norm(second, axis=-1, keepdims=True)
    return np.stack((first, second, np.cross(first, second)), axis=-1)


def _zero_length(raw: RawBvh, name: str) -> FormatError:
    line = raw.lines[raw.index(name)]
    return FormatError(
        f"{raw.source}, line {line}: the bone that ends in {name!r} has no length, so it points nowhere; "
        "give its joint an OFFSET"
    )
