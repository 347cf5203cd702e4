"""S_obs -> c_t before generation, and motion -> S_res after it: the paper's "Anchor Scaffold".

Before: `features` writes anchors as one vector a frame, c_t = [m^a a, m^p p, dp, m^p, m^a]: values, an interpolation
prior, its differences, and both masks (metres; the conditioner scales them). After: `residuals` says how far a motion
is from its anchors, `intervals` where corrections may live, `support` which frames the training loss watches.

An anchor between two frames enters c_t at the nearest frame and is observed by interpolating its two neighbours.
A free coordinate has no "unset" value in c_t, so it is filled: from the anchors of the joint that set it, else from
a draft motion. Never from a mean, which would be an invented target.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.interpolate import CubicSpline
from torch import Tensor

from anchorroute.errors import AnchorError
from anchorroute.motion.canonical import facing
from anchorroute.motion.rotation import quat_about_y, quat_apply
from anchorroute.motion.skeleton import JOINTS
from anchorroute.observation import Family, Observed

#: Boundaries closer than this many frames are one.
_SAME_FRAME = 1e-3


@dataclass(frozen=True)
class Layout:
    """Where the five parts of c_t lie."""

    values: slice
    prior: slice
    difference: slice
    prior_mask: slice
    anchor_mask: slice


def layout(family: Family) -> Layout:
    """The slices of a family's c_t."""
    d, m = family.dim, family.masks
    return Layout(
        slice(0, d),
        slice(d, 2 * d),
        slice(2 * d, 3 * d),
        slice(3 * d, 3 * d + m),
        slice(3 * d + m, 3 * d + 2 * m),
    )


def features(
    observed: Observed, family: Family, length: int, draft: Float[Tensor, "frames 22 3"] | None = None
) -> Float[Tensor, "frames channels"]:
    """c_t for one clip of `length` frames. Rows must be the family's joints; `draft` fills what no anchor sets."""
    rows = observed.positional
    points = _filled(rows, family, draft)
    frames = _nearest_frames(rows, length)
    shape = (length, len(family.joints))
    values = np.zeros((*shape, len(family.coords)))
    prior = np.zeros_like(values)
    anchor_mask, prior_mask = np.zeros(shape), np.zeros(shape)
    for knots, columns, targets in _knots(rows, frames, points, family):
        values[np.ix_(knots, columns)] = targets
        anchor_mask[np.ix_(knots, columns)] = 1.0
        inside = np.arange(knots[0], knots[-1] + 1)
        prior[np.ix_(inside, columns)] = interpolate(knots, targets, inside)
        prior[np.ix_(knots, columns)] = targets  # exactly, not up to rounding
        prior_mask[np.ix_(inside, columns)] = 1.0
    difference = np.zeros_like(prior)
    both = (prior_mask[1:] * prior_mask[:-1])[..., None]
    difference[1:] = both * (prior[1:] - prior[:-1])
    parts = (values, prior, difference, prior_mask, anchor_mask)
    return torch.from_numpy(np.concatenate([part.reshape(length, -1) for part in parts], axis=1)).float()


def batch(
    observed: Sequence[Observed],
    family: Family,
    lengths: Sequence[int],
    drafts: Sequence[Float[Tensor, "frames 22 3"] | None] | None = None,
) -> Float[Tensor, "batch frames channels"]:
    """c_t of several clips, zeros after the end of the shorter ones."""
    given = drafts or [None] * len(observed)
    return torch.nn.utils.rnn.pad_sequence(
        [features(*item) for item in zip(observed, [family] * len(observed), lengths, given)], batch_first=True
    )


def needs_draft(observed: Observed, family: Family) -> bool:
    """Whether some free coordinate is set by no anchor of its joint, so that `features` asks for a draft."""
    free = observed.positional.free[:, list(family.coords)]
    joints = observed.positional.joints
    return any(bool(free[joints == joint].all(dim=0).any()) for joint in joints.unique())


def interpolate(
    knots: Float[np.ndarray, " knots"], values: Float[np.ndarray, "knots *dims"], at: Float[np.ndarray, " times"]
) -> Float[np.ndarray, "times *dims"]:
    """Natural cubic through four or more increasing knots, linear through two or three, the value alone for one."""
    if len(knots) == 1:
        return np.repeat(values, len(at), axis=0)
    if len(knots) > 3:
        return np.asarray(CubicSpline(knots, values, axis=0, bc_type="natural")(at))
    left = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
    share = (at - knots[left]) / (knots[left + 1] - knots[left])
    share = share.reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray((1 - share) * values[left] + share * values[left + 1])


def _nearest_frames(rows: Observed, length: int) -> Int[np.ndarray, " anchors"]:
    return np.clip(np.floor(rows.frames.double().numpy() + 0.5), 0, length - 1).astype(np.int64)


def _filled(
    rows: Observed, family: Family, draft: Float[Tensor, "frames 22 3"] | None
) -> Float[np.ndarray, "anchors 3"]:
    """Targets with every coordinate that the family observes set, in canonical axes."""
    if not bool(rows.free[:, list(family.coords)].any()):
        return rows.values.double().numpy()
    axes = torch.zeros(len(rows)) if rows.axes is None else rows.axes
    turn = quat_about_y(axes.double())
    own = quat_apply(quat_about_y(-axes.double()), rows.values.double()).numpy().copy()
    free, joints, frames = rows.free.numpy(), rows.joints.numpy(), rows.frames.double().numpy()
    sketch = None
    if draft is not None:
        at_rows = points(draft.double(), rows.frames, rows.joints)
        sketch = quat_apply(quat_about_y(-axes.double()), at_rows).numpy()
    for coordinate in family.coords:
        for joint in np.unique(joints[free[:, coordinate]]):
            missing = (joints == joint) & free[:, coordinate]
            given = (joints == joint) & ~free[:, coordinate]
            if given.any():
                knots, first = np.unique(frames[given], return_index=True)
                within = np.clip(frames[missing], knots[0], knots[-1])
                own[missing, coordinate] = interpolate(knots, own[given, coordinate][first], within)
            elif sketch is not None:
                own[missing, coordinate] = sketch[missing, coordinate]
            else:
                raise AnchorError(
                    f"no anchor sets {'xyz'[coordinate]} of {JOINTS[joint]}: pass `draft`, a motion generated "
                    "without anchors, to fill it (see `needs_draft`)"
                )
    return quat_apply(turn, torch.from_numpy(own)).numpy()


def _knots(
    rows: Observed, frames: Int[np.ndarray, " anchors"], points: Float[np.ndarray, "anchors 3"], family: Family
) -> list[tuple[Int[np.ndarray, " knots"], Int[np.ndarray, " columns"], Float[np.ndarray, "knots columns coords"]]]:
    """Knot frames with their targets; joints that share their frames share one entry, and so one spline."""
    joints = rows.joints.numpy()
    foreign = set(joints.tolist()) - set(family.joints)
    if foreign:
        names = ", ".join(JOINTS[joint] for joint in sorted(foreign))
        raise AnchorError(f"family {family.name} does not observe {names}; take its rows with `family.select` first")
    # Of several anchors of a joint at one nearest frame the closest counts, the earlier one of two as close.
    times = rows.frames.double().numpy()
    order = np.lexsort((times, np.abs(times - frames), frames))
    groups: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = {}
    for joint in np.unique(joints):
        mine = order[joints[order] == joint]
        knots, first = np.unique(frames[mine], return_index=True)
        groups.setdefault(tuple(knots.tolist()), []).append((int(joint), mine[first]))
    coords = list(family.coords)
    return [
        (
            np.array(knots),
            np.array([family.joints.index(joint) for joint, _ in members]),
            np.stack([points[chosen][:, coords] for _, chosen in members], axis=1),
        )
        for knots, members in groups.items()
    ]


def points(
    motion: Float[Tensor, "*batch frames 22 3"], frames: Float[Tensor, " anchors"], joints: Int[Tensor, " anchors"]
) -> Float[Tensor, "*batch anchors 3"]:
    """Joints at times that may lie between frames, by linear interpolation of the two neighbours."""
    last = motion.shape[-3] - 1
    inside = frames.to(motion.device).clamp(0, last)
    before = inside.floor().long()
    after = (before + 1).clamp(max=last)
    share = (inside - before).to(motion.dtype)[:, None]
    index = joints.to(motion.device)
    return (1 - share) * motion[..., before, index, :] + share * motion[..., after, index, :]


@dataclass(frozen=True)
class Residuals:
    """S_res: the anchors together with what is left of them, one row an anchor.

    `vector` is r_n (zero along free directions), `distance` its length in metres, `heading` the turn in radians from
    the asked heading to the motion's, NaN where none is asked.
    """

    observed: Observed
    vector: Float[Tensor, "anchors 3"]
    distance: Float[Tensor, " anchors"]
    heading: Float[Tensor, " anchors"]

    @property
    def met(self) -> Bool[Tensor, " anchors"]:
        """Which positions lie within their tolerance."""
        return self.distance <= self.observed.tolerance.to(self.distance)

    @property
    def mean(self) -> float:
        """Control Error: the mean distance, 0 without anchors."""
        return float(self.distance.detach().mean()) if len(self.distance) else 0.0

    @property
    def worst(self) -> float:
        """The largest distance, 0 without anchors."""
        return float(self.distance.detach().max()) if len(self.distance) else 0.0


def residuals(joints: Float[Tensor, "frames 22 3"], observed: Observed) -> Residuals:
    """r_n = Pi_m(O_f(x) at tau_n) - y_n for every anchor; differentiable in the joints."""
    vector = observed.difference(points(joints, observed.frames, observed.joints))
    return Residuals(observed, vector, torch.linalg.vector_norm(vector, dim=-1), _turn_left(joints, observed))


def _turn_left(joints: Float[Tensor, "frames 22 3"], observed: Observed) -> Float[Tensor, " anchors"]:
    """The motion's facing direction minus the asked one, within half a turn."""
    if observed.heading is None:
        return joints.new_full((len(observed),), torch.nan)
    body = torch.arange(22).repeat(len(observed))
    poses = points(joints, observed.frames.repeat_interleave(22), body).unflatten(-2, (len(observed), 22))
    asked = observed.heading.to(joints)
    turn = facing(poses) - asked.nan_to_num()  # a NaN here would poison the gradients of every row
    return torch.atan2(turn.sin(), turn.cos()).masked_fill(asked.isnan(), torch.nan)


def intervals(observed: Observed, length: int) -> Float[Tensor, " boundaries"]:
    """The sorted boundaries {0} + anchor frames + {T - 1}: interval i lies between boundaries i and i + 1.

    The stretch before the first anchor is one, too: a root anchor can be reached only through earlier frames.
    """
    inside = observed.frames.clamp(0, length - 1)
    bounds = torch.cat((inside.new_tensor([0.0, length - 1.0]), inside)).sort().values
    keep = torch.cat((bounds.new_ones(1, dtype=torch.bool), bounds.diff() > _SAME_FRAME))
    kept = bounds[keep]
    kept[-1] = length - 1.0
    return kept


@dataclass(frozen=True)
class Support:
    """U_delta with its nearest-anchor assignment: cells (frame, joint) of the motion, and the row that each obeys."""

    frames: Int[Tensor, " cells"]
    joints: Int[Tensor, " cells"]
    rows: Int[Tensor, " cells"]
    observed: Observed

    def __len__(self) -> int:
        return len(self.frames)

    def difference(
        self, motion: Float[Tensor, "frames 22 3"], target: Float[Tensor, "frames 22 3"]
    ) -> Float[Tensor, "cells 3"]:
        """Pi_m of motion minus target, cell by cell; L_anc^sup is the sum of its squares."""
        frames, joints = self.frames.to(motion.device), self.joints.to(motion.device)
        assigned = self.observed[self.rows].to(motion.device)
        gap = motion[frames, joints] - target[frames, joints]
        return assigned.difference(gap + assigned.values.to(gap))


def support(observed: Observed, length: int, radius: int = 2) -> Support:
    """The frames within `radius` of an anchor, each given to the nearest anchor of its joint, to the earlier of two."""
    rows = torch.nonzero(~observed.free.all(dim=-1)).flatten()
    tau = (observed.frames + 0.5).floor().clamp(0, length - 1).long()
    rows = rows[torch.argsort(tau[rows], stable=True)]
    time = torch.arange(length)
    cells: list[tuple[Tensor, Tensor, Tensor]] = []
    for joint in observed.joints[rows].unique():
        mine = rows[observed.joints[rows] == joint]
        gap, nearest = (time[:, None] - tau[mine]).abs().min(dim=1)  # the first, so the earlier, of equal ones
        near = gap <= radius
        cells.append((time[near], joint.expand(int(near.sum())), mine[nearest[near]]))
    if not cells:
        none = torch.zeros(0, dtype=torch.long)
        return Support(none, none, none, observed)
    frames, joints, assigned = (torch.cat(column) for column in zip(*cells))
    return Support(frames, joints, assigned, observed)
