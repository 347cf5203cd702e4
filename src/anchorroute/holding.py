"""What a correction should leave alone, as soft rows for Gauss-Newton: standing feet, and a given motion's own path.

Without them the cheapest way to raise a hand is to raise the whole body. Measured on six motions with a hand target
0.3 m away: feet that stood rose by up to 22 cm, with `planted` they stay within 5 cm of the floor; a given take moved
by 0.1 to 0.17 m on average, with `held` by 0.01 to 0.05 m. The rows are soft: anchors are met as well as before.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute.motion.skeleton import FPS, joint_index
from anchorroute.observation import Observed
from anchorroute.routesolver import Term, plant_term
from anchorroute.routesolver.rows import SOFT, positions

#: Against an anchor's 1: a metre of unwilling motion weighs as much as 5 cm of missed anchor.
WEIGHT = 0.05
HELD = tuple(joint_index(name) for name in ("pelvis", "left_foot", "right_foot", "left_wrist", "right_wrist"))
#: An anchor of the pelvis frees the whole body so long before and after it, any other anchor its own joint.
FREED = 1.0
#: Held poses are this far apart at least, further in long clips: more rows cost more than they hold.
APART, MOST_ROWS = 10, 120


def planted(joints: Float[Tensor, "batch frames 22 3"], lengths: Int[Tensor, " batch"]) -> list[Term]:
    """Feet that stand in a generated motion stay where they stand, at their height."""
    term = plant_term(joints, lengths, WEIGHT)
    return [term] if term.weight.shape[1] else []


def held(joints: Float[Tensor, "frames 22 3"], observed: Observed) -> list[Term]:
    """Pelvis, feet and wrists of a given motion stay where they are, except near the anchors that ask them away."""
    length = len(joints)
    apart = max(APART, math.ceil(3 * len(HELD) * length / MOST_ROWS))
    cells = [
        (frame, joint) for frame in range(0, length, apart) for joint in HELD if not _freed(frame, joint, observed)
    ]
    if not cells:
        return []
    frames, which = torch.tensor(cells).T
    values = joints[frames.to(joints.device), which.to(joints.device)]
    rows = 3 * len(cells)
    data = (frames.float()[None], which[None], values[None].cpu(), torch.zeros(1, len(cells)))
    weight, soft = torch.full((1, rows), WEIGHT), torch.full((1, rows), SOFT)
    return [Term("held", positions, data, weight, soft, torch.zeros(1, 0), target=2).to(joints.device)]


def _freed(frame: int, joint: int, observed: Observed) -> bool:
    anchored: Sequence[tuple[float, int]] = list(zip(observed.frames.tolist(), observed.joints.tolist()))
    return any(abs(at - frame) < FREED * FPS and who in {0, joint} for at, who in anchored)
