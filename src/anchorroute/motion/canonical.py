"""The frame in which everything is learned, and the way back to where the user stands.

Canonical: the lowest joint of the clip touches the floor (y = 0), the pelvis starts above the origin, the body faces
+Z in the first frame. A `Placement` is what was taken away; `place` gives it back.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.motion.rotation import quat_about_y, quat_apply


@dataclass(frozen=True)
class Placement:
    """Where a canonical motion stands in the world: turned by `yaw` radians (+Z towards +X), then moved to `xz`."""

    yaw: float = 0.0
    xz: tuple[float, float] = (0.0, 0.0)


def facing(joints: Float[Tensor, "*batch 22 3"]) -> Float[Tensor, "*batch"]:
    """The yaw of a pose's facing direction: 0 towards +Z, a quarter turn towards +X."""
    across = (joints[..., 2, :] - joints[..., 1, :]) + (joints[..., 17, :] - joints[..., 16, :])
    return torch.atan2(across[..., 2], -across[..., 0])


def canonicalise(
    joints: Float[Tensor, "time 22 3"],
) -> tuple[Float[Tensor, "time 22 3"], Placement, float]:
    """Joints in the canonical frame, the placement that was removed, and the height of the floor that was removed."""
    floor = joints[..., 1].min()
    yaw = facing(joints[0])
    origin = torch.stack((joints[0, 0, 0], floor, joints[0, 0, 2]))
    moved = quat_apply(quat_about_y(-yaw), joints - origin)
    return moved, Placement(float(yaw), (float(joints[0, 0, 0]), float(joints[0, 0, 2]))), float(floor)


def place(points: Float[Tensor, "*batch 3"], placement: Placement) -> Float[Tensor, "*batch 3"]:
    """Canonical points put where the placement says; the inverse of `canonicalise`, the floor apart."""
    yaw = torch.tensor(placement.yaw, dtype=points.dtype, device=points.device)
    offset = torch.tensor((placement.xz[0], 0.0, placement.xz[1]), dtype=points.dtype, device=points.device)
    return quat_apply(quat_about_y(yaw), points) + offset


def unplace(points: Float[Tensor, "*batch 3"], placement: Placement) -> Float[Tensor, "*batch 3"]:
    """World points seen from the canonical frame: the inverse of `place`."""
    yaw = torch.tensor(-placement.yaw, dtype=points.dtype, device=points.device)
    offset = torch.tensor((placement.xz[0], 0.0, placement.xz[1]), dtype=points.dtype, device=points.device)
    return quat_apply(quat_about_y(yaw), points - offset)
