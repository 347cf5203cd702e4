"""A motion as the browser's bones want it: where every joint is and how it is turned, at the display's rate."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float

from anchorroute.motion import mannequin
from anchorroute.motion.motion import Motion
from anchorroute.motion.rotation import quat_multiply
from anchorroute.motion.skeleton import JOINTS, PARENTS

#: Frames a second that are sent to the browser: twice HumanML3D's rate looks smooth and costs 0.2 MB/s.
DISPLAY_FPS = 40.0


@dataclass(frozen=True, eq=False)
class Poses:
    """Joint positions and global rotations (w, x, y, z) at `DISPLAY_FPS`."""

    positions: Float[np.ndarray, "frames 22 3"]
    turns: Float[np.ndarray, "frames 22 4"]

    @property
    def last(self) -> float:
        """The moment of the last frame."""
        return (len(self.positions) - 1) / DISPLAY_FPS

    def index(self, seconds: float) -> int:
        """The frame nearest to a time."""
        return int(np.clip(round(seconds * DISPLAY_FPS), 0, len(self.positions) - 1))


@lru_cache(maxsize=64)
def _poses(key: "MotionKey") -> Poses:
    """The poses of a motion; kept, because scrubbing asks for them again and again."""
    motion = key.motion.resample(DISPLAY_FPS)
    local = torch.from_numpy(motion.rotations.copy())
    turns = [local[:, 0]]
    for joint in range(1, len(JOINTS)):
        turns.append(quat_multiply(turns[PARENTS[joint]], local[:, joint]))
    return Poses(motion.joints.astype(np.float64), torch.stack(turns, 1).numpy().astype(np.float64))


class MotionKey:
    """A motion by identity: motions are immutable, and comparing their arrays would cost more than the poses."""

    def __init__(self, motion: Motion) -> None:
        self.motion = motion

    def __hash__(self) -> int:
        return id(self.motion)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MotionKey) and other.motion is self.motion


def of(motion: Motion) -> Poses:
    """The poses of a motion."""
    return _poses(MotionKey(motion))


@lru_cache(maxsize=1)
def skin_weights() -> Float[np.ndarray, "vertices 22"]:
    """The mannequin's weights, one column a joint."""
    body = mannequin.build()
    weights = np.zeros((len(body.vertices), len(JOINTS)), dtype=np.float32)
    rows = np.arange(len(body.vertices))
    for side in range(body.bones.shape[1]):
        np.add.at(weights, (rows, body.bones[:, side]), body.weights[:, side])
    return weights


def nearest_joint(
    joints: Float[np.ndarray, "22 3"], origin: tuple[float, float, float], direction: tuple[float, float, float]
) -> int:
    """The joint nearest to a ray from the eye."""
    ray = np.asarray(direction) / np.linalg.norm(direction)
    away = joints - np.asarray(origin)
    along = (away @ ray).clip(min=0.0)
    return int(np.linalg.norm(away - along[:, None] * ray, axis=-1).argmin())


def on_floor(origin: tuple[float, float, float], direction: tuple[float, float, float]) -> tuple[float, float] | None:
    """Where a ray from the eye meets the floor (x, z); None if it does not, or only far away."""
    if abs(direction[1]) < 1e-6:
        return None
    distance = -origin[1] / direction[1]
    x, z = origin[0] + distance * direction[0], origin[2] + distance * direction[2]
    return (x, z) if distance > 0 and abs(x) < 50 and abs(z) < 50 else None
