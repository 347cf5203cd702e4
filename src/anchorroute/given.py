"""A motion that was given, not generated: brought to where the model lives, and back to where it came from.

The model's clips stand on the floor at the origin, face +Z, run at 20 fps and are whole tokens long. A given motion
is resampled, moved there and its last pose held for the few frames that are missing. Its anchors move along.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.errors import RequestError
from anchorroute.motion.canonical import Placement
from anchorroute.motion.canonical import canonicalise as canonical_joints
from anchorroute.motion.motion import Motion
from anchorroute.motion.rotation import quat_about_y, quat_apply
from anchorroute.motion.skeleton import FPS
from anchorroute.request import SHORTEST, TOKEN, Request, checked_text

#: Frames at 20 fps; longer motions are cut by hand.
LONGEST_GIVEN = 2400


@dataclass(frozen=True)
class Given:
    """A given motion in the canonical frame. `joints` has one frame more than the request: features are differences."""

    request: Request
    joints: Float[Tensor, "frames 22 3"]
    placement: Placement
    floor: float
    motion: Motion | None = None
    """As it was given; without it, results stay at 20 fps."""

    def anchors(self, anchors: AnchorSet) -> AnchorSet:
        """Anchors of the motion's world in the canonical frame."""
        lowered = tuple(_raised(anchor, -self.floor) for anchor in anchors.anchors)
        back = quat_about_y(torch.tensor(-self.placement.yaw, dtype=torch.float64))
        x, z = self.placement.xz
        shift = quat_apply(back, torch.tensor([-x, 0.0, -z], dtype=torch.float64)).tolist()
        home = Placement(-self.placement.yaw, (shift[0], shift[2]))
        return AnchorSet(lowered, None, anchors.loop).moved(home)

    def returned(self, placed: Motion) -> Motion:
        """A placed motion on the floor, and at the rate, that the given one had."""
        raised = replace(placed, root=placed.root + np.array([0.0, self.floor, 0.0], dtype=np.float32))
        return raised if self.motion is None else at_own_rate(self.motion, raised)


def at_own_rate(motion: Motion, refined: Motion) -> Motion:
    """The refined motion at the rate of the one that was given: its own frames, moved by what the solver changed.

    The change is interpolated between the 20 frames a second that the solver saw, so the take keeps its fine detail.
    """
    if motion.fps == refined.fps:
        return refined
    change = refined.joints.astype(np.float64) - motion.resample(FPS).joints
    where = np.minimum(np.arange(motion.frames) * (FPS / motion.fps), len(change) - 1.0)
    before = np.minimum(where.astype(int), len(change) - 2)
    share = (where - before)[:, None, None]
    moved = motion.joints + (1 - share) * change[before] + share * change[before + 1]
    about = Motion.from_joints(moved, motion.fps)
    return replace(refined, root=about.root, rotations=about.rotations, fps=motion.fps, contacts=about.contacts)


def given(motion: Motion, anchors: AnchorSet) -> Given:
    """Into the canonical frame; refused is what is too short or too long for it."""
    plain = motion.resample(FPS)
    if not SHORTEST // 2 <= plain.frames <= LONGEST_GIVEN:
        raise RequestError(
            f"the motion has {plain.seconds:g} s; {SHORTEST / 2 / FPS:g} to {LONGEST_GIVEN / FPS:g} s can be refined: "
            "trim it, or refine it in pieces"
        )
    joints, placement, floor = canonical_joints(torch.from_numpy(plain.joints.copy()))
    made = -(-plain.frames // TOKEN) * TOKEN
    held = torch.cat((joints, joints[-1:].expand(made + 1 - plain.frames, -1, -1)))
    text = checked_text(motion.text) if motion.text else ""
    return Given(Request(text, anchors, made, plain.frames, motion.seed or 0), held, placement, floor, motion)


def _raised(anchor: Anchor, by: float) -> Anchor:
    x, y, z = anchor.position
    return replace(anchor, position=(x, None if y is None else y + by, z))


def staying(anchors: AnchorSet, placement: Placement) -> AnchorSet:
    """The anchors with the start that the body has, unless an anchor of the pelvis at time 0 moves it."""
    first = next((a for a in anchors.anchors if a.joint == "pelvis" and a.at <= 1e-4), None)
    if anchors.start is not None:
        return anchors
    if first is None:
        return replace(anchors, start=placement)
    x, _, z = first.position
    xz = (placement.xz[0] if x is None else x, placement.xz[1] if z is None else z)
    return replace(anchors, start=Placement(placement.yaw if first.heading is None else first.heading, xz))
