"""Simple ways to meet anchors, as any animator or textbook would: they show what the learned parts must beat.

- `warp`: the root path of a finished motion is bent through the anchors; hands and feet reach the rest by two-bone
  inverse kinematics that fades out over half a second.
- `project`: the smallest change of all joint positions at once that meets the anchors exactly, "small" measured by
  R = I + 10 L (L: Laplacian of the skeleton's tree) and a chain of frames. It is exact and cheap, and bends bones;
  `body.fixed_bones` afterwards shows what is left of the exactness.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.interpolate import PchipInterpolator
from torch import Tensor

from anchorroute.motion import features as feats
from anchorroute.motion.skeleton import FPS, PARENTS
from anchorroute.observation import Observed

Clip = Float[Tensor, "frames 22 3"]

SKELETON_WEIGHT = 10.0
TIME_WEIGHT = 100.0
"""A body's correction then fades over sqrt(100) = 10 frames."""
FADE_SECONDS = 0.5

#: shoulder or hip, elbow or knee, wrist or ankle, what hangs on the end.
LIMBS = {
    20: (16, 18, 20, ()),
    21: (17, 19, 21, ()),
    7: (1, 4, 7, (10,)),
    8: (2, 5, 8, (11,)),
    10: (1, 4, 7, (10,)),
    11: (2, 5, 8, (11,)),
}


def warp(joints: Clip, observed: Observed) -> Clip:
    """Bend the root path through all anchors, then reach with hands and feet."""
    bent = _bend_path(joints, observed)
    return _reach(bent, observed)


def _bend_path(joints: Clip, observed: Observed) -> Clip:
    """Shift the whole body by a smooth offset; the height follows pelvis anchors alone."""
    gap = _gap(joints, observed)
    offset = torch.zeros(len(joints), 3, dtype=joints.dtype)
    for axis in range(3):
        rows = ~observed.free[:, axis] & ((observed.joints == 0) | (axis != 1))
        offset[:, axis] = _through(observed.frames[rows], gap[rows, axis], len(joints)).to(joints)
    return joints + offset[:, None]


def _through(frames: Tensor, values: Tensor, length: int) -> Tensor:
    """A curve through the mean value at each frame, flat beyond the first and last."""
    if not len(frames):
        return torch.zeros(length, dtype=torch.float64)
    times, where = torch.unique(frames.double(), return_inverse=True)
    mean = torch.zeros(len(times), dtype=torch.float64).index_add_(0, where, values.double())
    mean = mean / torch.bincount(where)
    grid = np.clip(np.arange(length), float(times[0]), float(times[-1]))
    curve = PchipInterpolator(times.numpy(), mean.numpy())(grid) if len(times) > 1 else np.full(length, float(mean[0]))
    return torch.from_numpy(curve)


def _reach(joints: Clip, observed: Observed) -> Clip:
    out = joints.clone()
    time = torch.arange(len(joints), dtype=joints.dtype)
    for end, (top, middle, tip, hanging) in LIMBS.items():
        rows = observed.joints == end
        if not bool(rows.any()):
            continue
        limb = observed[rows]
        gap = _gap(out, limb).to(joints)
        distance = (time[:, None] - limb.frames.to(joints)[None]).abs() / (FADE_SECONDS * FPS)
        weight = 0.5 + 0.5 * torch.cos(math.pi * distance.clamp(max=1))
        share = weight / weight.sum(dim=1, keepdim=True).clamp_min(1.0)
        # An anchor's own frame belongs to it alone, whatever its neighbours ask.
        share = torch.where((distance == 0).any(dim=1, keepdim=True), (distance == 0).to(joints), share)
        share = share / share.sum(dim=1, keepdim=True).clamp_min(1.0)
        target = out[:, tip] + share @ gap
        knee, hand = two_bones(out[:, top], out[:, middle], out[:, tip], target)
        moved = hand - out[:, tip]
        out[:, middle], out[:, tip] = knee, hand
        for joint in hanging:
            out[:, joint] += moved
    return out


def two_bones(
    top: Float[Tensor, "n 3"], middle: Float[Tensor, "n 3"], tip: Float[Tensor, "n 3"], target: Float[Tensor, "n 3"]
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3"]]:
    """Middle and tip of a two-bone chain that reaches for the target in the plane it is bent in; lengths are kept."""
    upper, lower = _length(middle - top), _length(tip - middle)
    aim = target - top
    reach = _length(aim).clamp_min(1e-6)
    direction = aim / reach
    longest, shortest = (upper + lower) * 0.9999, (upper - lower).abs() * 1.0001
    reach = torch.minimum(torch.maximum(reach, shortest), longest)
    along = (upper.square() - lower.square() + reach.square()) / (2 * reach)
    across = (upper.square() - along.square()).clamp_min(0).sqrt()
    pole = (middle - top) - direction * ((middle - top) * direction).sum(dim=-1, keepdim=True)
    spare = torch.linalg.cross(direction, torch.tensor([1.0, 0.3, 0.2], dtype=top.dtype).expand_as(direction))
    pole = torch.where(_length(pole) > 1e-4, pole, spare)
    pole = pole / _length(pole).clamp_min(1e-9)
    return top + direction * along + pole * across, top + direction * reach


def project(joints: Clip, observed: Observed) -> Clip:
    """x + R^-1 A' (A R^-1 A')^-1 (y - A x), coordinate by coordinate; frames between samples are not asked for."""
    length = len(joints)
    inverse = _inverse_norm(length)
    out = joints.double().clone()
    frames, which = observed.frames.round().long(), observed.joints.long()
    gap = _gap(joints, observed).double()
    for axis in range(3):
        rows = ~observed.free[:, axis]
        if not bool(rows.any()):
            continue
        places = torch.unique(frames[rows] * 22 + which[rows], return_inverse=True)
        cells, order = places
        wanted = torch.zeros(len(cells), dtype=torch.float64)
        wanted[order] = gap[rows, axis]
        columns = inverse(cells)
        multipliers = torch.linalg.solve(columns[cells], wanted)
        out[..., axis] += (columns @ multipliers).reshape(length, 22)
    return out.to(joints)


class _inverse_norm:  # noqa: N801 - used as a function of the cells
    """Columns of R^-1 for R = (I + 10 L) x I + 100 (I x chain), through the eigenvectors of both Laplacians."""

    def __init__(self, length: int) -> None:
        self.space = torch.linalg.eigh(_laplacian([(j, p) for j, p in enumerate(PARENTS) if p >= 0], 22))
        self.time = torch.linalg.eigh(_laplacian([(t, t + 1) for t in range(length - 1)], length))

    def __call__(self, cells: Tensor) -> Float[Tensor, "all cells"]:
        (ls, vs), (lt, vt) = self.space, self.time
        frames, joints = cells // 22, cells % 22
        weight = 1 / (1 + SKELETON_WEIGHT * ls[None, :] + TIME_WEIGHT * lt[:, None])
        mixed = vt[frames][:, :, None] * vs[joints][:, None, :] * weight
        spread = torch.einsum("ta,cab,jb->tjc", vt, mixed, vs)
        return spread.reshape(-1, len(cells))


def _laplacian(edges: Sequence[tuple[int, int]], size: int) -> Float[Tensor, "n n"]:
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for a, b in edges:
        matrix[a, a] += 1
        matrix[b, b] += 1
        matrix[a, b] -= 1
        matrix[b, a] -= 1
    return matrix


def _gap(joints: Clip, observed: Observed) -> Float[Tensor, "anchors 3"]:
    """Target minus motion at the anchors' nearest frames, zero along free coordinates."""
    frames = observed.frames.round().long().clamp_max(len(joints) - 1)
    return -observed.difference(joints[frames, observed.joints])


def _length(vectors: Tensor) -> Tensor:
    return vectors.square().sum(dim=-1, keepdim=True).sqrt()


def to_features(joints: Clip) -> Float[Tensor, "frames 263"]:
    """As many rows as frames: a last frame is added that goes on as the motion went, since features look ahead."""
    ahead = 2 * joints[-1:] - joints[-2:-1]
    return feats.from_joints(torch.cat([joints, ahead]))
