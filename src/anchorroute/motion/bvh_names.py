"""What the 22 joints are called elsewhere, and how a file's names are recognised."""

from __future__ import annotations

from typing import Literal

from anchorroute.motion.skeleton import JOINTS

Naming = Literal["mixamo", "smpl"]

#: Mixamo's names in the order of `skeleton.JOINTS`.
MIXAMO: tuple[str, ...] = (
    "Hips",
    "LeftUpLeg",
    "RightUpLeg",
    "Spine",
    "LeftLeg",
    "RightLeg",
    "Spine1",
    "LeftFoot",
    "RightFoot",
    "Spine2",
    "LeftToeBase",
    "RightToeBase",
    "Neck",
    "LeftShoulder",
    "RightShoulder",
    "Head",
    "LeftArm",
    "RightArm",
    "LeftForeArm",
    "RightForeArm",
    "LeftHand",
    "RightHand",
)

#: SMPL's own Maya names; `skeleton.JOINTS` are the other habit.
_SMPL_SHORT: tuple[str, ...] = (
    "Pelvis",
    "L_Hip",
    "R_Hip",
    "Spine1",
    "L_Knee",
    "R_Knee",
    "Spine2",
    "L_Ankle",
    "R_Ankle",
    "Spine3",
    "L_Foot",
    "R_Foot",
    "Neck",
    "L_Collar",
    "R_Collar",
    "Head",
    "L_Shoulder",
    "R_Shoulder",
    "L_Elbow",
    "R_Elbow",
    "L_Wrist",
    "R_Wrist",
)

NAMES: dict[str, tuple[str, ...]] = {"mixamo": MIXAMO, "smpl": JOINTS, "smpl, short": _SMPL_SHORT}

#: Joints that only CMU's skeleton has; with Mixamo's names for the rest it would pass for Mixamo's.
_CMU_ONLY = frozenset({"LHipJoint", "RHipJoint", "LowerBack", "Neck1"})


def is_cmu(names: tuple[str, ...]) -> bool:
    """Whether these are the joints of CMU's skeleton."""
    return set(names) >= _CMU_ONLY


def plain(name: str) -> str:
    """A name without namespace (`mixamorig:`), case and separators, for comparing."""
    return name.rpartition(":")[2].lower().replace("_", "").replace("-", "").replace(" ", "")


def recognise(names: tuple[str, ...]) -> tuple[str, dict[int, int], tuple[str, ...]]:
    """The naming that fits a file's names best, the nodes by joint that were found, and the names that were not."""
    nodes: dict[str, int] = {}
    for node, name in enumerate(names):
        if not name.endswith(":end"):
            nodes.setdefault(plain(name), node)
    found = {
        naming: {joint: nodes[plain(name)] for joint, name in enumerate(table) if plain(name) in nodes}
        for naming, table in NAMES.items()
    }
    best = max(found, key=lambda naming: len(found[naming]))
    missing = tuple(name for joint, name in enumerate(NAMES[best]) if joint not in found[best])
    return best, found[best], missing
