"""S_obs and O_f: anchors as tensors at frames, and the control families that observe a motion.

Everything here lives in the canonical frame (the clip starts at the origin and faces +Z), in frames and metres.
Differences between a motion and its anchors are taken by `Observed.difference` alone: a free direction may be turned
against the canonical axes, which that one place knows.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorroute.errors import AnchorError
from anchorroute.motion.rotation import quat_about_y, quat_apply
from anchorroute.motion.skeleton import JOINTS


@dataclass(frozen=True)
class Observed:
    """S_obs: anchors as tensors in the canonical frame, one row an anchor; a batch is a list of these.

    `frames` may lie between frames. `values` are canonical points (0 along a free direction); `free` marks
    directions along axes turned by `axes`. `heading` is NaN where none is asked. `loop` asks for first pose = last.
    """

    frames: Float[Tensor, " anchors"]
    joints: Int[Tensor, " anchors"]
    values: Float[Tensor, "anchors 3"]
    free: Bool[Tensor, "anchors 3"]
    tolerance: Float[Tensor, " anchors"]
    heading: Float[Tensor, " anchors"] | None = None
    axes: Float[Tensor, " anchors"] | None = None
    loop: bool = False

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, rows: Tensor | slice | list[int]) -> "Observed":
        """Some of the rows."""
        return Observed(
            self.frames[rows],
            self.joints[rows],
            self.values[rows],
            self.free[rows],
            self.tolerance[rows],
            None if self.heading is None else self.heading[rows],
            None if self.axes is None else self.axes[rows],
            self.loop,
        )

    def to(self, device: torch.device | str) -> "Observed":
        """The same rows on another device."""
        return Observed(
            self.frames.to(device),
            self.joints.to(device),
            self.values.to(device),
            self.free.to(device),
            self.tolerance.to(device),
            None if self.heading is None else self.heading.to(device),
            None if self.axes is None else self.axes.to(device),
            self.loop,
        )

    @property
    def positional(self) -> "Observed":
        """The rows that set at least one coordinate; a row may ask for a heading alone."""
        return self[~self.free.all(dim=-1)]

    def difference(self, points: Float[Tensor, "*batch anchors 3"]) -> Float[Tensor, "*batch anchors 3"]:
        """Pi_m of points minus targets: zero along free directions. One row of `points` an anchor."""
        gap = points - self.values.to(points)
        if self.axes is not None and bool(self.axes.any()):
            gap = quat_apply(quat_about_y(-self.axes.to(points)), gap)
        return gap.masked_fill(self.free.to(points.device), 0.0)


@dataclass(frozen=True)
class Family:
    """f: a control family with its observation operator O_f (which joints, which of x, y, z)."""

    name: str
    joints: tuple[int, ...]
    coords: tuple[int, ...]

    @property
    def dim(self) -> int:
        """d_f: how many numbers O_f observes at a frame."""
        return len(self.joints) * len(self.coords)

    @property
    def masks(self) -> int:
        """Mask entries of each kind: one for the root families, one a joint for the body."""
        return len(self.joints)

    @property
    def channels(self) -> int:
        """The width of c_t: values, prior and differences, and two masks."""
        return 3 * self.dim + 2 * self.masks

    def observe(self, joints: Float[Tensor, "*batch frames 22 3"]) -> Float[Tensor, "*batch frames joints coords"]:
        """O_f: the observed coordinates of the observed joints, at every frame."""
        return joints[..., list(self.joints), :][..., list(self.coords)]

    def select(self, observed: Observed) -> Observed:
        """The rows that are this family's: every row that sets a coordinate belongs to exactly one family."""
        root = observed.joints == 0
        free = observed.free
        full = ~free.any(dim=-1)
        planar = free[:, 1] & ~free[:, 0] & ~free[:, 2]
        rows = {
            "root3d": root & full,
            "planar": root & planar,
            "body": ~(root & (full | planar)) & ~free.all(dim=-1),
        }
        return observed[rows[self.name]]


ROOT3D = Family("root3d", (0,), (0, 1, 2))
PLANAR = Family("planar", (0,), (0, 2))
BODY = Family("body", tuple(range(len(JOINTS))), (0, 1, 2))
FAMILIES: dict[str, Family] = {family.name: family for family in (ROOT3D, PLANAR, BODY)}


def family(name: str) -> Family:
    """A family by its name."""
    if name not in FAMILIES:
        raise AnchorError(f"control family {name!r} is unknown; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]


def split(observed: Observed) -> dict[str, Observed]:
    """The rows by family, families without rows left out: one memory each stands side by side in the prior."""
    parts = {name: member.select(observed) for name, member in FAMILIES.items()}
    return {name: part for name, part in parts.items() if len(part)}
