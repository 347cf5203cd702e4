"""Residual rows: what the solver drives to zero, each kind one small pure function of the joints.

A `Term` binds such a function to its tensors, one row of tensors a sample. Rows are metres (an angle counts as the
arc at `LEVER`), so that kinds compare. Rows that state one wish together (x, y, z of an anchor) share a group; a
group has a tolerance, and the solver stops when all groups are met. Rows without a group are soft: they pull, no one
waits for them.

A new kind is a function `kind(joints, *data) -> [batch, rows]` and a builder that returns a `Term`; nothing else in
the solver changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from anchorroute.errors import RequestError
from anchorroute.motion.canonical import facing
from anchorroute.motion.rotation import quat_about_y, quat_apply
from anchorroute.motion.skeleton import FPS, JOINTS, LEFT_FOOT, RIGHT_FOOT
from anchorroute.observation import Observed

Joints = Float[Tensor, "batch frames 22 3"]
Function = Callable[..., Float[Tensor, "batch rows"]]

TOLERANCE = 0.005
"""Metres: what an anchor that says nothing else asks for; rows of this tolerance have weight 1."""

LEVER = 0.3
"""Metres: a heading's error counts as the arc at this radius, so 1 degree is 5 mm."""

SOFT = -1


@dataclass(frozen=True)
class Term:
    """Rows of one kind for a batch. `weight` 0 means that the row is padding or a free coordinate."""

    name: str
    function: Function
    data: tuple[Tensor, ...]
    weight: Float[Tensor, "batch rows"]
    group: Int[Tensor, "batch rows"]
    tolerance: Float[Tensor, "batch groups"]
    """Metres; 0 where a padded group has no rows."""
    target: int | None = None
    """Which entry of `data` is only a target, so that moving it leaves the rows' derivatives nearly as they were."""

    @property
    def places(self) -> tuple[Tensor, ...]:
        """`data` without the target."""
        return tuple(item for index, item in enumerate(self.data) if index != self.target)

    def __call__(self, joints: Joints) -> Float[Tensor, "batch rows"]:
        """The residuals in metres, unweighted."""
        return self.function(joints, *self.data)

    def to(self, device: torch.device | str) -> "Term":
        """The same rows on another device."""
        return replace(
            self,
            data=tuple(item.to(device) for item in self.data),
            weight=self.weight.to(device),
            group=self.group.to(device),
            tolerance=self.tolerance.to(device),
        )

    def __getitem__(self, samples: Int[Tensor, " some"]) -> "Term":
        """The same rows of some of the samples."""
        return replace(
            self,
            data=tuple(item[samples] for item in self.data),
            weight=self.weight[samples],
            group=self.group[samples],
            tolerance=self.tolerance[samples],
        )


# ------------------------------------------------------------------------------------------------- the functions


def at(
    joints: Joints, frames: Float[Tensor, "batch anchors"], which: Int[Tensor, "batch anchors"]
) -> Float[Tensor, "batch anchors 3"]:
    """Joints at times that may lie between frames: linear interpolation of the two neighbours."""
    before = frames.floor().long().clamp(max=joints.shape[1] - 1)
    after = (before + 1).clamp(max=joints.shape[1] - 1)
    share = (frames - before).to(joints)[..., None]
    sample = torch.arange(len(joints), device=joints.device)[:, None]
    return (1 - share) * joints[sample, before, which] + share * joints[sample, after, which]


def positions(
    joints: Joints,
    frames: Float[Tensor, "batch anchors"],
    which: Int[Tensor, "batch anchors"],
    values: Float[Tensor, "batch anchors 3"],
    axes: Float[Tensor, "batch anchors"],
) -> Float[Tensor, "batch rows"]:
    """A point minus its target, along the anchor's own axes (a free direction may be turned)."""
    gap = at(joints, frames, which) - values.to(joints)
    return quat_apply(quat_about_y(-axes.to(joints)), gap).flatten(1)


def headings(
    joints: Joints, frames: Float[Tensor, "batch anchors"], asked: Float[Tensor, "batch anchors"]
) -> Float[Tensor, "batch rows"]:
    """Where the body faces minus where it should, within half a turn, as an arc."""
    parts = [at(joints, frames, torch.full_like(frames, joint, dtype=torch.long)) for joint in (1, 2, 16, 17)]
    across = (parts[1] - parts[0]) + (parts[3] - parts[2])
    turn = torch.atan2(across[..., 2], -across[..., 0]) - asked.to(joints)
    return LEVER * torch.atan2(turn.sin(), turn.cos())


def loop(joints: Joints, last: Int[Tensor, "batch 1"]) -> Float[Tensor, "batch rows"]:
    """The last pose minus the first, each seen from the floor below its pelvis: facing counts, place does not."""
    sample = torch.arange(len(joints), device=joints.device)
    ends = torch.stack((joints[:, 0], joints[sample, last[:, 0]]))
    below = ends[..., :1, :] * ends.new_tensor([1.0, 0.0, 1.0])
    first, final = ends - below
    return (final - first).flatten(1)


def offsets(
    joints: Joints,
    frames: Float[Tensor, "batch holds"],
    one: Int[Tensor, "batch holds"],
    other: Int[Tensor, "batch holds"],
    asked: Float[Tensor, "batch holds 3"],
) -> Float[Tensor, "batch rows"]:
    """`one` seen from `other`, in axes that turn with the body, minus what is asked: two hands on one prop."""
    poses = torch.stack([at(joints, frames, torch.full_like(one, joint)) for joint in range(len(JOINTS))], dim=-2)
    gap = at(joints, frames, one) - at(joints, frames, other)
    return (quat_apply(quat_about_y(-facing(poses)), gap) - asked.to(joints)).flatten(1)


def plants(
    joints: Joints,
    start: Float[Tensor, "batch stances"],
    end: Float[Tensor, "batch stances"],
    foot: Int[Tensor, "batch stances"],
    height: Float[Tensor, "batch stances"],
) -> Float[Tensor, "batch rows"]:
    """How far a planted foot slides between the start and the end of its stance, and how far its height changed."""
    first, last = at(joints, start, foot), at(joints, end, foot)
    slide = last - first
    lift = 0.5 * (first + last)[..., 1] - height.to(joints)
    return torch.stack((slide[..., 0], slide[..., 2], lift), dim=-1).flatten(1)


def bends(
    joints: Joints, which: Int[Tensor, "batch chosen"], before: Float[Tensor, "batch frames chosen 3"]
) -> Float[Tensor, "batch rows"]:
    """The second difference over time of chosen joints, minus the one that the generated motion had."""
    sample = torch.arange(len(joints), device=joints.device)[:, None]
    path = joints[sample, :, which].transpose(1, 2)
    change = path - before.to(joints)
    return (change[:, 2:] - 2 * change[:, 1:-1] + change[:, :-2]).flatten(1)


# -------------------------------------------------------------------------------------------------- their builders


def _weight(tolerance: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    return (TOLERANCE / tolerance.clamp(min=1e-9)).clamp(0.02, 5.0)


def _padded(items: Sequence[Tensor]) -> Tensor:
    return pad_sequence(list(items), batch_first=True)


def anchor_term(observed: Sequence[Observed], lengths: Int[Tensor, " batch"]) -> Term:
    """Every anchor's position; free coordinates weigh nothing, a tolerance is a weight."""
    frames = [item.frames.clamp(0, float(length) - 1) for item, length in zip(observed, lengths.tolist())]
    axes = [torch.zeros(len(item)) if item.axes is None else item.axes.cpu() for item in observed]
    weight = [_weight(item.tolerance)[:, None] * ~item.free for item in observed]
    count = max(len(item) for item in observed)
    group = torch.arange(count).repeat_interleave(3).expand(len(observed), -1)
    tolerance = [torch.where(item.free.all(-1), 0.0, item.tolerance) for item in observed]
    values = [item.values for item in observed]
    return Term(
        "anchor",
        positions,
        (_padded(frames), _padded([item.joints for item in observed]), _padded(values), _padded(axes)),
        _padded(weight).flatten(1),
        group,
        _padded(tolerance),
        target=2,
    )


def heading_term(observed: Sequence[Observed], lengths: Int[Tensor, " batch"]) -> Term:
    """Where the body faces at the anchors that ask for it; 5 mm of tolerance in position are 1 degree here."""
    asked = [torch.full((len(item),), torch.nan) if item.heading is None else item.heading for item in observed]
    frames = [item.frames.clamp(0, float(length) - 1) for item, length in zip(observed, lengths.tolist())]
    tolerance = [torch.where(turn.isnan(), 0.0, item.tolerance) for turn, item in zip(asked, observed)]
    weight = [torch.where(turn.isnan(), 0.0, _weight(item.tolerance)) for turn, item in zip(asked, observed)]
    count = max(len(item) for item in observed)
    group = torch.arange(count).expand(len(observed), -1)
    data = (_padded(frames), _padded(asked).nan_to_num())
    return Term("heading", headings, data, _padded(weight), group, _padded(tolerance), target=1)


def loop_term(wanted: Bool[Tensor, " batch"], lengths: Int[Tensor, " batch"], tolerance: float = TOLERANCE) -> Term:
    """Last pose = first pose where `wanted`; one group a joint."""
    ones = wanted.float()[:, None]
    group = torch.arange(len(JOINTS)).repeat_interleave(3).expand(len(wanted), -1)
    weight = ones.expand(-1, 3 * len(JOINTS)) * _weight(torch.tensor(tolerance))
    return Term("loop", loop, (lengths[:, None] - 1,), weight, group, ones.expand(-1, len(JOINTS)) * tolerance)


def offset_term(
    frames: Float[Tensor, "batch holds"],
    one: Int[Tensor, "batch holds"],
    other: Int[Tensor, "batch holds"],
    asked: Float[Tensor, "batch holds 3"],
    tolerance: float = TOLERANCE,
) -> Term:
    """Joint `one` at a fixed offset from joint `other` (left, up and forward of the body), frame by frame."""
    if bool((one == other).any()):
        raise RequestError("an offset needs two different joints; the distance of a joint from itself is always zero")
    batch, holds = frames.shape
    group = torch.arange(holds).repeat_interleave(3).expand(batch, -1)
    weight = _weight(torch.tensor(tolerance)).expand(batch, 3 * holds)
    data = (frames, one, other, asked)
    return Term("offset", offsets, data, weight, group, torch.full((batch, holds), tolerance), target=3)


def stances(
    joints: Float[Tensor, "frames 22 3"], *, height: float = 0.06, speed: float = 0.4, shortest: int = 4
) -> list[tuple[int, int, int, float]]:
    """(first frame, last frame, foot, mean height) of every stretch in which a foot is low and slow."""
    found = []
    for foot in (LEFT_FOOT, RIGHT_FOOT):
        path = joints[:, foot]
        step = torch.linalg.vector_norm((path[1:] - path[:-1])[:, [0, 2]], dim=-1) * FPS
        rests = ((step < speed) & (path[1:, 1] < height) & (path[:-1, 1] < height)).tolist()
        begin = None
        for frame, rest in enumerate([*rests, False]):
            if rest and begin is None:
                begin = frame
            elif not rest and begin is not None:
                if frame - begin >= shortest:
                    found.append((begin, frame, foot, float(path[begin : frame + 1, 1].mean())))
                begin = None
    return found


def plant_term(joints: Joints, lengths: Int[Tensor, " batch"], weight: float, longest: int = 12) -> Term:
    """Feet that stand in `joints` stay where they stand, at their height; soft rows. A long stance is cut up."""
    tables = []
    for clip, length in zip(joints.detach().cpu(), lengths.tolist()):
        rows = []
        for begin, end, foot, level in stances(clip[:length]):
            pieces = max(1, -(-(end - begin) // longest))
            knots = [begin + (end - begin) * k / pieces for k in range(pieces + 1)]
            rows += [(a, b, foot, level) for a, b in pairwise(knots)]
        tables.append(torch.tensor(rows).reshape(-1, 4))
    table = _padded(tables)
    real = _padded([torch.ones(len(rows)) for rows in tables])
    weights = (weight * real).repeat_interleave(3, dim=1)
    soft = torch.full(weights.shape, SOFT)
    none = torch.zeros(len(weights), 0)
    data = (table[..., 0], table[..., 1], table[..., 2].long(), table[..., 3])
    return Term("plant", plants, data, weights, soft, none).to(joints.device)


def bend_term(joints: Joints, lengths: Int[Tensor, " batch"], weight: float, which: Sequence[int]) -> Term:
    """The correction adds no acceleration to the joints `which`; soft rows, so many that they need the CG solver."""
    batch, frames = joints.shape[:2]
    chosen = torch.tensor(list(which), device=joints.device).expand(batch, -1)
    inside = torch.arange(frames - 2, device=joints.device) < lengths.to(joints.device)[:, None] - 2
    weights = weight * inside.float().repeat_interleave(3 * len(which), dim=1)
    soft = torch.full(weights.shape, SOFT, device=joints.device)
    none = torch.zeros(batch, 0, device=joints.device)
    return Term("bend", bends, (chosen, joints[:, :, list(which)].detach()), weights, soft, none)


# ------------------------------------------------------------------------------------------------------ all of them


@dataclass(frozen=True)
class Rows:
    """The rows of several terms side by side, rows that weigh nothing left out; groups are numbered through.

    `slot` says where the kept rows stand among all rows; a padded slot has weight 0.
    """

    terms: tuple[Term, ...]
    slot: Int[Tensor, "batch rows"]
    weight: Float[Tensor, "batch rows"]
    group: Int[Tensor, "batch rows"]
    tolerance: Float[Tensor, "batch groups"]

    @classmethod
    def of(cls, terms: Sequence[Term]) -> "Rows":
        """Join terms; the k-th group of a term gets the number k + groups of the terms before it."""
        weight = torch.cat([term.weight for term in terms], dim=1)
        groups, before = [], 0
        for term in terms:
            groups.append(torch.where(term.group >= 0, term.group + before, SOFT))
            before += term.tolerance.shape[1]
        group = torch.cat(groups, dim=1)
        kept = max(int((weight > 0).sum(1).max()), 1) if weight.numel() else 0
        slot = (weight > 0).int().argsort(dim=1, descending=True, stable=True)[:, :kept]
        tolerance = torch.cat([term.tolerance for term in terms], dim=1)
        return cls(tuple(terms), slot, weight.gather(1, slot), group.gather(1, slot), tolerance)

    def __len__(self) -> int:
        return self.slot.shape[1]

    def __getitem__(self, samples: Int[Tensor, " some"]) -> "Rows":
        """The rows of some of the samples."""
        return Rows(
            tuple(term[samples] for term in self.terms),
            self.slot[samples],
            self.weight[samples],
            self.group[samples],
            self.tolerance[samples],
        )

    def __call__(self, joints: Joints) -> Float[Tensor, "batch rows"]:
        """The residuals in metres, unweighted; a padded slot is zero."""
        values = torch.cat([term(joints) for term in self.terms], dim=1).gather(1, self.slot)
        return torch.where(self.weight > 0, values, 0.0)

    def errors(self, residual: Float[Tensor, "batch rows"]) -> Float[Tensor, "batch groups"]:
        """Each group's distance in metres."""
        hard = torch.where(self.group >= 0, residual.square(), 0.0)
        total = residual.new_zeros(self.tolerance.shape)
        return total.scatter_add(1, self.group.clamp(min=0), hard).sqrt()

    def names(self) -> list[tuple[str, int]]:
        """What each group is: the term's name and the number within it."""
        return [(term.name, k) for term in self.terms for k in range(term.tolerance.shape[1])]

    def group_weights(self) -> Float[Tensor, "batch groups"]:
        """The weight that the rows of a group share."""
        seen = torch.where(self.group >= 0, self.weight, 0.0)
        return torch.zeros_like(self.tolerance).scatter_reduce(1, self.group.clamp(min=0), seen, "amax")

    def same_places(self, other: "Rows") -> bool:
        """Whether only targets differ: the same rows at the same times, so that a Jacobian of one serves the other."""
        if len(self.terms) != len(other.terms) or self.slot.shape != other.slot.shape:
            return False
        if not (torch.equal(self.slot, other.slot) and torch.equal(self.weight, other.weight)):
            return False
        pairs = list(zip(self.terms, other.terms))
        if any(a.name != b.name or len(a.data) != len(b.data) for a, b in pairs):
            return False
        places = [(one, two) for a, b in pairs for one, two in zip(a.places, b.places)]
        return all(one.shape == two.shape and torch.equal(one, two) for one, two in places)
