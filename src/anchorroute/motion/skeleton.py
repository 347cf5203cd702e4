"""The body: HumanML3D's 22 SMPL joints, its canonical bone lengths, and a standing T-pose.

Y is up, the body faces +Z, so its left side is +X; metres. Two different sets of directions live here and must not
be mixed up: `RAW_DIRECTIONS` are HumanML3D's bookkeeping axes (arms hanging, head forward), used only by the rotation
channels of the features; `REST_OFFSETS` are a T-pose that a person would recognise, used by files and by the
fixed-bone body.
"""

from difflib import get_close_matches

import numpy as np
from jaxtyping import Float

from anchorroute.errors import AnchorError

FPS = 20.0

JOINTS: tuple[str, ...] = (
    "pelvis",
    "left_hip",
    "right_hip",
    "spine1",
    "left_knee",
    "right_knee",
    "spine2",
    "left_ankle",
    "right_ankle",
    "spine3",
    "left_foot",
    "right_foot",
    "neck",
    "left_collar",
    "right_collar",
    "head",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
)

PARENTS: tuple[int, ...] = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19)

#: Right leg, left leg, spine, right arm, left arm: the order in which HumanML3D walks the body.
CHAINS: tuple[tuple[int, ...], ...] = (
    (0, 2, 5, 8, 11),
    (0, 1, 4, 7, 10),
    (0, 3, 6, 9, 12, 15),
    (9, 14, 17, 19, 21),
    (9, 13, 16, 18, 20),
)

BONE_LENGTHS: tuple[float, ...] = (
    0.0, 0.1031, 0.1099, 0.1316, 0.3936, 0.3901, 0.1432, 0.4322, 0.4257, 0.0574, 0.1434,
    0.1495, 0.2193, 0.1375, 0.1434, 0.1031, 0.1316, 0.1230, 0.2569, 0.2631, 0.2660, 0.2697,
)  # fmt: skip

RAW_DIRECTIONS: tuple[tuple[int, int, int], ...] = (
    (0, 0, 0), (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, -1, 0), (0, 1, 0), (0, -1, 0), (0, -1, 0),
    (0, 1, 0), (0, 0, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0), (-1, 0, 0), (0, 0, 1), (0, -1, 0), (0, -1, 0),
    (0, -1, 0), (0, -1, 0), (0, -1, 0), (0, -1, 0),
)  # fmt: skip

#: The pelvis's and the chest's three bones never move against each other: these are their directions at rest.
PELVIS_GROUP: tuple[int, ...] = (1, 2, 3)
CHEST_GROUP: tuple[int, ...] = (12, 13, 14)

_REST_DIRECTIONS: dict[str, tuple[float, float, float]] = {
    "left_hip": (0.5655, -0.7905, -0.2353),
    "right_hip": (-0.5655, -0.7905, -0.2353),
    "spine1": (-0.0197, 0.9998, 0.0),
    "left_knee": (0, -1, 0),
    "right_knee": (0, -1, 0),
    "spine2": (0, 1, 0),
    "left_ankle": (0, -1, 0),
    "right_ankle": (0, -1, 0),
    "spine3": (0, 1, 0),
    "left_foot": (0, 0, 1),
    "right_foot": (0, 0, 1),
    "neck": (0.0046, 1.0, 0.0),
    "left_collar": (0.5116, 0.8524, -0.1078),
    "right_collar": (-0.5116, 0.8524, -0.1078),
    "head": (0, 1, 0),
    "left_shoulder": (1, 0, 0),
    "right_shoulder": (-1, 0, 0),
    "left_elbow": (1, 0, 0),
    "right_elbow": (-1, 0, 0),
    "left_wrist": (1, 0, 0),
    "right_wrist": (-1, 0, 0),
}


def _rest_offsets() -> Float[np.ndarray, "22 3"]:
    directions = np.array([(0.0, 0.0, 0.0), *(_REST_DIRECTIONS[name] for name in JOINTS[1:])])
    norms = np.linalg.norm(directions, axis=-1, keepdims=True)
    unit = np.divide(directions, norms, out=np.zeros_like(directions), where=norms > 0)
    return (unit * np.array(BONE_LENGTHS)[:, None]).astype(np.float32)


#: Offset of every joint from its parent in the T-pose, metres.
REST_OFFSETS: Float[np.ndarray, "22 3"] = _rest_offsets()


def _mirrored(name: str) -> str:
    side, _, rest = name.partition("_")
    return {"left": f"right_{rest}", "right": f"left_{rest}"}.get(side, name)


#: `joints[..., MIRROR, :]` swaps left and right; the x coordinates still have to change sign.
MIRROR: tuple[int, ...] = tuple(JOINTS.index(_mirrored(name)) for name in JOINTS)

LEFT_ANKLE, RIGHT_ANKLE, LEFT_FOOT, RIGHT_FOOT = 7, 8, 10, 11
#: The four joints whose ground contact the features store, in the features' order.
CONTACT_JOINTS: tuple[int, ...] = (LEFT_ANKLE, LEFT_FOOT, RIGHT_ANKLE, RIGHT_FOOT)


#: What people and other skeletons call these joints; only ever a hint, since a hand is not exactly a wrist.
_ALSO_CALLED: dict[str, str] = {
    "hand": "wrist", "toe": "foot", "toebase": "foot", "heel": "ankle", "forearm": "elbow", "arm": "shoulder",
    "clavicle": "collar", "thigh": "hip", "shin": "knee", "leg": "knee", "root": "pelvis", "hips": "pelvis",
    "hip": "pelvis", "chest": "spine3",
}  # fmt: skip


def joint_index(joint: str | int) -> int:
    """The index of a joint given by name or by index; an unknown one is an error that names the nearest."""
    if isinstance(joint, int):
        if 0 <= joint < len(JOINTS):
            return joint
        raise AnchorError(f"joint {joint}: the body has joints 0 to {len(JOINTS) - 1}")
    name = joint.strip().lower().replace("-", "_").replace(" ", "_")
    if name in JOINTS:
        return JOINTS.index(name)
    side, _, part = name.rpartition("_")
    meant = f"{side}_{_ALSO_CALLED.get(part, part)}".lstrip("_")
    near = [meant] if meant in JOINTS else get_close_matches(name, JOINTS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise AnchorError(f"joint {joint!r} is not one of this body's; {hint}it has {', '.join(JOINTS)}")
