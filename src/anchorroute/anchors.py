"""A_f: what the user fixed. An anchor says "this point of the body is here at this time".

`Anchor` and `AnchorSet` are plain values in the user's world (seconds, metres, radians, Y up). `canonicalise` moves
them to where the model lives (the clip starts at the origin and faces +Z) and hands back the placement that brings
the motion home. `Observed` (the set as tensors at frames, one row an anchor) and `Family` (O_f with its selection)
stand in `observation.py` and are offered here too.

Two surprises. A coordinate may be free (`None`); after canonicalisation its direction may be turned against the
canonical axes, which is why rows carry `axes` and why differences are taken by `Observed.difference` alone.
And agreeing duplicates are merged when a set is made, so that rows and anchors stay in step.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from anchorroute.errors import AnchorError
from anchorroute.motion.canonical import Placement
from anchorroute.motion.rotation import quat_about_y, quat_apply
from anchorroute.motion.skeleton import FPS, JOINTS, joint_index
from anchorroute.observation import BODY, FAMILIES, PLANAR, ROOT3D, Family, Observed, family, split

__all__ = [
    "BODY", "FAMILIES", "PLANAR", "ROOT3D", "Anchor", "AnchorSet", "Family", "Observed",
    "Placement", "canonicalise", "family", "split", "starting_placement",
]  # fmt: skip

Position = tuple[float | None, float | None, float | None]

#: Two times closer than this are one moment, two targets closer than this are one target.
SAME_TIME = 1e-4
SAME_PLACE = 1e-4
#: Beyond this a coordinate is taken for centimetres or for a slip, not for metres.
FARTHEST = 1e5
#: What a start that nobody chose assumes: how fast a body travels, how far a hand reaches from the pelvis.
_FASTEST, _ARM, _STROLL = 3.0, 1.0, 1.4


@dataclass(frozen=True)
class Anchor:
    """A joint's position at a time; `None` leaves a coordinate free.

    `at` in seconds, `position` in metres, `heading` (where the body faces: 0 along +Z, a quarter turn along +X) in
    radians, `tolerance` in metres. `axes` is set by `canonicalise` alone: the yaw of the axes that `position` is
    given along, not zero only where one of x and z is free.
    """

    at: float
    joint: str
    position: Position
    heading: float | None = None
    tolerance: float = 0.005
    axes: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "joint", JOINTS[joint_index(self.joint)])
        if len(tuple(self.position)) != 3:
            raise AnchorError(
                f"{self}: a position has three entries, x, y and z in metres; leave one free with null (None)"
            )
        x, y, z = (None if value is None else float(value) for value in self.position)
        object.__setattr__(self, "position", (x, y, z))
        object.__setattr__(self, "at", float(self.at))
        self._check()

    def _check(self) -> None:
        if not math.isfinite(self.at) or self.at < 0:
            raise AnchorError(f"{self}: the time must be a number of seconds from 0 on, not {self.at}")
        for axis, value in zip("xyz", self.position):
            if value is not None and not math.isfinite(value):
                raise AnchorError(
                    f"{self}: {axis} is {value}; give a finite number of metres, or null (None) to leave it free"
                )
            if value is not None and abs(value) > FARTHEST:
                raise AnchorError(f"{self}: {axis} is {value:g} m, beyond {FARTHEST:g} m; are the units metres?")
        if self.heading is not None and not math.isfinite(self.heading):
            raise AnchorError(f"{self}: the heading is {self.heading}; give radians, or leave it out")
        if self.heading is None and all(value is None for value in self.position):
            raise AnchorError(f"{self}: nothing is fixed; set at least one coordinate or a heading")
        if self.heading is not None and self.joint != "pelvis":
            raise AnchorError(f"{self}: a heading turns the whole body; give it to an anchor of the pelvis")
        if not (math.isfinite(self.tolerance) and self.tolerance > 0):
            raise AnchorError(f"{self}: the tolerance must be a positive number of metres, not {self.tolerance}")

    def __str__(self) -> str:
        place = ", ".join("free" if value is None else f"{value:g}" for value in self.position)
        return f"anchor of {self.joint} at {self.at:g} s ({place})"

    @property
    def free(self) -> tuple[bool, bool, bool]:
        """Which coordinates are left open."""
        x, y, z = self.position
        return (x is None, y is None, z is None)

    def turned(self, yaw: float, shift: tuple[float, float]) -> "Anchor":
        """The anchor after the world turns by `yaw` about the Y axis and then moves by `shift` in x and z."""
        if self.free[0] != self.free[2]:  # a half-free pair cannot be turned: turn its axes instead
            axes = self.axes + yaw
            dx, dz = _turn(-axes, *shift)
            x, y, z = self.position
            turned = (None if x is None else x + dx, y, None if z is None else z + dz)
        else:
            axes = 0.0
            turned = self._turned_point(self.axes + yaw, shift)
        heading = None if self.heading is None else _wrap(self.heading + yaw)
        return replace(self, position=turned, heading=heading, axes=_wrap(axes))

    def _turned_point(self, yaw: float, shift: tuple[float, float]) -> Position:
        x, y, z = self.position
        if x is None or z is None:
            return self.position
        x, z = _turn(yaw, x, z)
        return (x + shift[0], y, z + shift[1])


def _turn(yaw: float, x: float, z: float) -> tuple[float, float]:
    """Turn about Y: +Z goes towards +X."""
    c, s = math.cos(yaw), math.sin(yaw)
    return c * x + s * z, -s * x + c * z


def _wrap(angle: float) -> float:
    return angle if -math.pi <= angle <= math.pi else math.remainder(angle, 2 * math.pi)


@dataclass(frozen=True)
class AnchorSet:
    """Anchors of one motion, where it starts, and whether its last pose is its first.

    `start` is where frame 0 stands and faces; without it, `canonicalise` decides (and says so in the placement).
    Agreeing duplicates are merged; two anchors that contradict each other are an error that names both.
    """

    anchors: tuple[Anchor, ...] = ()
    start: Placement | None = None
    loop: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchors", _merged(tuple(self.anchors)))
        if self.start is not None:
            if not all(math.isfinite(value) for value in (self.start.yaw, *self.start.xz)):
                raise AnchorError(f"start {self.start}: position and heading must be finite numbers")
            _check_start(self.anchors, self.start)

    def __len__(self) -> int:
        return len(self.anchors)

    @classmethod
    def from_points(
        cls,
        points: Iterable[tuple[float, str | int, Sequence[float | None]]],
        *,
        fps: float = FPS,
        start: Placement | None = None,
        loop: bool = False,
        tolerance: float = 0.005,
    ) -> "AnchorSet":
        """A set from (frame, joint name or index, (x, y, z)) triples."""
        anchors = tuple(
            Anchor(frame / fps, JOINTS[joint_index(joint)], _position(point), tolerance=tolerance)
            for frame, joint, point in points
        )
        return cls(anchors, start, loop)

    @classmethod
    def load(cls, path: str | Path) -> "AnchorSet":
        """Read an anchor file (JSON); `anchorroute schema` prints its schema."""
        from anchorroute import anchor_file

        return anchor_file.load(Path(path))

    def save(self, path: str | Path) -> None:
        """Write an anchor file (JSON, seconds, metres, radians)."""
        from anchorroute import anchor_file

        anchor_file.save(self, Path(path))

    @classmethod
    def from_json(cls, document: object) -> "AnchorSet":
        """The set that an anchor file's content means: a JSON text, or the plain values of one."""
        from anchorroute import anchor_file

        return anchor_file.from_json(document)

    def to_json(self) -> dict[str, object]:
        """The set as the plain JSON values of an anchor file."""
        from anchorroute import anchor_file

        return anchor_file.to_json(self)

    def moved(self, placement: Placement) -> "AnchorSet":
        """The set in a world where the canonical frame stands at `placement`: the way back from `canonicalise`."""
        start = None
        if self.start is not None:
            x, z = _turn(placement.yaw, *self.start.xz)
            xz = (x + placement.xz[0], z + placement.xz[1])
            start = Placement(_wrap(self.start.yaw + placement.yaw), xz)
        moved = tuple(anchor.turned(placement.yaw, placement.xz) for anchor in self.anchors)
        return AnchorSet(moved, start, self.loop)

    def observed(self, length: int, *, fps: float = FPS) -> "Observed":
        """The set as tensors on a clip of `length` frames; call it on a canonical set. One row an anchor, in order."""
        last = (length - 1) / fps
        for anchor in self.anchors:
            if anchor.at > last + SAME_TIME:
                raise AnchorError(
                    f"{anchor}: frame {anchor.at * fps:g} lies beyond the clip, whose {length} frames end at frame "
                    f"{length - 1} ({last:g} s); ask for at least {anchor.at + 1 / fps:.2f} s, or move the anchor"
                )
        frames = [min(anchor.at * fps, length - 1.0) for anchor in self.anchors]
        values = torch.tensor(
            [[value or 0.0 for value in anchor.position] for anchor in self.anchors], dtype=torch.float64
        ).reshape(-1, 3)
        axes = torch.tensor([anchor.axes for anchor in self.anchors], dtype=torch.float64)
        headings = [math.nan if anchor.heading is None else anchor.heading for anchor in self.anchors]
        return Observed(
            frames=torch.tensor(frames, dtype=torch.float32),
            joints=torch.tensor([joint_index(anchor.joint) for anchor in self.anchors], dtype=torch.long),
            values=quat_apply(quat_about_y(axes), values).float(),
            free=torch.tensor([anchor.free for anchor in self.anchors], dtype=torch.bool).reshape(-1, 3),
            tolerance=torch.tensor([anchor.tolerance for anchor in self.anchors], dtype=torch.float32),
            heading=torch.tensor(headings, dtype=torch.float32),
            axes=axes.float(),
            loop=self.loop,
        )


def _position(point: Sequence[float | None]) -> Position:
    if len(point) != 3:
        raise AnchorError(f"position {tuple(point)}: three entries are needed, x, y and z in metres")
    x, y, z = point
    return (x, y, z)


def _merged(anchors: tuple[Anchor, ...]) -> tuple[Anchor, ...]:
    """One anchor for each joint and moment; the first of every group keeps its place in the list."""
    order = sorted(range(len(anchors)), key=lambda index: (joint_index(anchors[index].joint), anchors[index].at))
    groups: list[list[int]] = []
    for index in order:
        last = anchors[groups[-1][0]] if groups else None
        here = anchors[index]
        if last is not None and last.joint == here.joint and here.at - last.at <= SAME_TIME:
            groups[-1].append(index)
        else:
            groups.append([index])
    if len(groups) == len(anchors):
        return anchors
    chosen = {min(group): _merge([(index, anchors[index]) for index in sorted(group)]) for group in groups}
    return tuple(chosen[index] for index in sorted(chosen))


def _merge(group: list[tuple[int, Anchor]]) -> Anchor:
    """Anchors of one joint at one moment as one; what only one of them sets is taken over."""
    _, first = group[0]
    if len(group) == 1:
        return first
    position = tuple(
        _agreed(group, axis, [anchor.position["xyz".index(axis)] for _, anchor in group]) for axis in "xyz"
    )
    heading = _agreed(group, "heading", [anchor.heading for _, anchor in group])
    tolerance = min(anchor.tolerance for _, anchor in group)
    at = min(anchor.at for _, anchor in group)
    return replace(first, at=at, position=_position(position), heading=heading, tolerance=tolerance)


def _agreed(group: list[tuple[int, Anchor]], what: str, values: list[float | None]) -> float | None:
    given = sorted((value, index, str(anchor)) for value, (index, anchor) in zip(values, group) if value is not None)
    if not given:
        return None
    (low, i, one), (high, j, other) = given[0], given[-1]
    if high - low > SAME_PLACE:
        raise AnchorError(
            f"anchors[{i}] and anchors[{j}] contradict each other: {one} and {other} set {what} to {low:g} and "
            f"{high:g} at one moment; remove one, or move it in time"
        )
    return low


def _check_start(anchors: tuple[Anchor, ...], start: Placement) -> None:
    """Frame 0 stands where the start says; an anchor of the pelvis at time 0 cannot move it."""
    for anchor in anchors:
        if anchor.joint != "pelvis" or anchor.at > SAME_TIME:
            continue
        x, z = _turn(-anchor.axes, *start.xz)
        for axis, wanted, given in (("x", anchor.position[0], x), ("z", anchor.position[2], z)):
            if wanted is not None and abs(wanted - given) > SAME_PLACE:
                raise AnchorError(
                    f"{anchor} and start {start} contradict each other in {axis}: frame 0 stands where the start "
                    "says; leave out the start, or that coordinate of the anchor"
                )
        if anchor.heading is not None and abs(_wrap(anchor.heading - start.yaw)) > SAME_PLACE:
            raise AnchorError(
                f"{anchor} faces {anchor.heading:g} rad and start {start} {start.yaw:g} rad at the same moment; "
                "leave out one heading"
            )


def canonicalise(anchors: AnchorSet) -> tuple[AnchorSet, Placement]:
    """The set as seen from frame 0, and the placement that puts the finished motion where the user meant it."""
    placement = starting_placement(anchors)
    x, z = _turn(-placement.yaw, *placement.xz)
    moved = tuple(anchor.turned(-placement.yaw, (-x, -z)) for anchor in anchors.anchors)
    return AnchorSet(moved, Placement(), anchors.loop), placement


def starting_placement(anchors: AnchorSet) -> Placement:
    """Where frame 0 stands and faces, by the first rule that applies.

    1. `start`, if it is given. 2. An anchor of the pelvis at time 0 gives the position; its heading, or else the
    way to the next anchor of the pelvis, gives the facing direction. 3. The origin, facing +Z, if every anchor can
    be reached from there. 4. Else (anchors far away) just before the first anchor, on the way that they lead.
    """
    if anchors.start is not None:
        return anchors.start
    ordered = sorted(anchors.anchors, key=lambda anchor: anchor.at)
    route = [(anchor.at, anchor.position[0], anchor.position[2]) for anchor in ordered if anchor.joint == "pelvis"]
    path = [(at, x, z) for at, x, z in route if x is not None and z is not None]
    first = next((anchor for anchor in ordered if anchor.joint == "pelvis" and anchor.at <= SAME_TIME), None)
    if first is not None and not (first.free[0] and first.free[2]):
        xz = (first.position[0] or 0.0, first.position[2] or 0.0)
        return Placement(_direction(xz, path) if first.heading is None else first.heading, xz)
    reachable = all(_reachable(anchor) for anchor in ordered)
    placement = Placement() if reachable else _before_first(ordered, path)
    return placement if first is None or first.heading is None else replace(placement, yaw=first.heading)


def _direction(xz: tuple[float, float], path: list[tuple[float, float, float]]) -> float:
    """The yaw towards the first point of the path that lies clearly away from `xz`; +Z if there is none."""
    for _, x, z in path:
        if math.hypot(x - xz[0], z - xz[1]) > 0.3:
            return math.atan2(x - xz[0], z - xz[1])
    return 0.0


def _reachable(anchor: Anchor) -> bool:
    x, _, z = anchor.position
    reach = _FASTEST * anchor.at + (0.0 if anchor.joint == "pelvis" else _ARM)
    return math.hypot(x or 0.0, z or 0.0) <= reach


def _before_first(ordered: list[Anchor], path: list[tuple[float, float, float]]) -> Placement:
    """A start that leads into the first anchors at the pace that they set, at most a stroll."""
    if not path:
        path = [
            (anchor.at, anchor.position[0] or 0.0, anchor.position[2] or 0.0)
            for anchor in ordered
            if anchor.position[0] is not None or anchor.position[2] is not None
        ]
    at, x, z = path[0]
    for later, next_x, next_z in path[1:]:
        distance = math.hypot(next_x - x, next_z - z)
        if distance > 0.3:
            back = min(distance / max(later - at, 1e-3), _STROLL) * at / distance
            yaw = math.atan2(next_x - x, next_z - z)
            return Placement(yaw, (x - back * (next_x - x), z - back * (next_z - z)))
    return Placement(0.0, (x, z))
