"""What is being authored, as one immutable value: prompt, settings, anchors, results. No GUI, no threads.

Every edit is a method that returns a new `Document`; a document that cannot mean anything (two anchors of one joint
at one moment in two places) is refused when it is made, so it never reaches the history.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.errors import AnchorError, RequestError
from anchorroute.motion.canonical import Placement
from anchorroute.motion.skeleton import JOINTS, joint_index
from anchorroute.request import LONGEST, SHORTEST
from anchorroute.result import Sample

Point = tuple[float, float, float]

FPS = 20.0
SOLVERS = ("gauss-newton", "adam", "none")
MOST_SAMPLES = 8
#: Results that stay at hand; older ones live on in the undo history alone.
MOST_TAKES = 20
#: Anchors made from a freehand path: one every so many seconds, no more than so many.
PATH_STEP, MOST_PATH_ANCHORS = 0.5, 16


@dataclass(frozen=True)
class Mark:
    """An anchor while it is edited: it has an identity, and a freed coordinate remembers its value."""

    id: int
    at: float
    joint: str
    position: Point
    free: tuple[bool, bool, bool] = (False, False, False)
    heading: float | None = None
    tolerance: float = 0.005

    def anchor(self) -> Anchor:
        """The anchor that it stands for."""
        x, y, z = (None if free else value for value, free in zip(self.position, self.free))
        return Anchor(self.at, self.joint, (x, y, z), self.heading, self.tolerance)

    @staticmethod
    def of(id_: int, anchor: Anchor) -> "Mark":
        """A mark for an anchor from a file; a free coordinate starts at zero."""
        x, y, z = (0.0 if value is None else value for value in anchor.position)
        return Mark(id_, anchor.at, anchor.joint, (x, y, z), anchor.free, anchor.heading, anchor.tolerance)


@dataclass(frozen=True)
class Take:
    """One result: its samples, which of them is chosen, and what they were made from."""

    id: int
    text: str
    samples: tuple[Sample, ...]
    chosen: int = 0
    kept: bool = False

    @property
    def sample(self) -> Sample:
        """The chosen sample."""
        return self.samples[self.chosen]


@dataclass(frozen=True)
class Document:
    """Everything that undo brings back."""

    text: str = "a person walks forward"
    seconds: float = 6.0
    seed: int = 0
    samples: int = 1
    guidance: float | None = None
    solver: str = "gauss-newton"
    strength: int = 200
    """Steps of the Adam solver; the others find their own."""
    loop: bool = False
    start: Placement | None = None
    marks: tuple[Mark, ...] = ()
    takes: tuple[Take, ...] = field(default=(), repr=False)
    shown: int | None = None
    """The id of the take on stage."""
    next_id: int = 1

    def __post_init__(self) -> None:
        if not SHORTEST / FPS <= self.seconds <= LONGEST / FPS:
            raise RequestError(
                f"{self.seconds:g} s: a clip lasts {SHORTEST / FPS:g} to {LONGEST / FPS:g} s; choose a length between"
            )
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise RequestError(f"{self.samples} samples: choose 1 to {MOST_SAMPLES}")
        if self.solver not in SOLVERS:
            raise RequestError(f"solver {self.solver!r} is unknown; there are {', '.join(SOLVERS)}")
        if not 0 <= self.strength <= 2000:
            raise RequestError(f"strength {self.strength}: choose 0 to 2000 steps")
        if self.seed < 0:
            raise RequestError(f"seed {self.seed}: give a whole number from 0 on")
        late = [mark for mark in self.marks if mark.at > self.last_time + 1e-6]
        if late:
            raise AnchorError(
                f"{late[0].anchor()} lies after the clip's last frame at {self.last_time:.2f} s; "
                "make the clip longer, or move the anchor"
            )
        self.anchor_set()

    @property
    def last_time(self) -> float:
        """The moment of the last frame: frames come in fours, so it can lie a little before `seconds`."""
        frames = min(math.ceil(round(self.seconds * FPS, 6) / 4) * 4, LONGEST)
        return (frames - 1) / FPS

    @property
    def take(self) -> Take | None:
        """The take on stage."""
        return next((take for take in self.takes if take.id == self.shown), None)

    def anchor_set(self) -> AnchorSet:
        """The anchors as the pipeline takes them, in the marks' order."""
        anchors = AnchorSet(tuple(mark.anchor() for mark in self.marks), self.start, self.loop)
        if len(anchors) != len(self.marks):
            raise AnchorError("two anchors of one joint stand at one moment; move one of them in time")
        return anchors

    def mark(self, id_: int) -> Mark:
        """The mark of this identity."""
        for mark in self.marks:
            if mark.id == id_:
                return mark
        raise AnchorError(f"there is no anchor {id_}; it may have been deleted")

    # ------------------------------------------------------------------------------------------------------ anchors

    def add(self, at: float, joint: str | int, position: Point, **more: object) -> "Document":
        """One more anchor, its time put on the nearest frame of the clip."""
        mark = Mark(self.next_id, self._on_frame(at), JOINTS[joint_index(joint)], position)
        return replace(self, marks=(*self.marks, replace(mark, **more)), next_id=self.next_id + 1)  # type: ignore[arg-type]

    def find(self, joint: str, at: float) -> Mark | None:
        """The anchor of a joint at a moment, if there is one."""
        frame = round(self._on_frame(at) * FPS)
        return next((one for one in self.marks if one.joint == joint and round(one.at * FPS) == frame), None)

    def waypoint(self, at: float, x: float, z: float) -> "Document":
        """A place on the floor to be at; its height is the motion's business. One that stands there at that moment
        is moved."""
        there = self.find("pelvis", at)
        if there is not None:
            return self.change(there.id, position=(x, there.position[1], z))
        return self.add(at, "pelvis", (x, 0.95, z), free=(False, True, False))

    def target(self, at: float, joint: str | int, position: Point) -> "Document":
        """A target for a joint; one that there is already stays as it is."""
        name = JOINTS[joint_index(joint)]
        return self if self.find(name, at) is not None else self.add(at, name, position)

    def change(self, id_: int, **changes: object) -> "Document":
        """An anchor with other values (`at`, `joint`, `position`, `free`, `heading`, `tolerance`)."""
        if "at" in changes:
            changes["at"] = self._on_frame(float(changes["at"]))  # type: ignore[arg-type]
        changed = replace(self.mark(id_), **changes)  # type: ignore[arg-type]
        return replace(self, marks=tuple(changed if mark.id == id_ else mark for mark in self.marks))

    def remove(self, id_: int) -> "Document":
        """Without that anchor."""
        self.mark(id_)
        return replace(self, marks=tuple(mark for mark in self.marks if mark.id != id_))

    def duplicate(self, id_: int, at: float) -> "Document":
        """The same target again at another time."""
        twin = replace(self.mark(id_), id=self.next_id, at=self._on_frame(at))
        return replace(self, marks=(*self.marks, twin), next_id=self.next_id + 1)

    def draw(self, path: Sequence[tuple[float, float]], start: float, stop: float) -> "Document":
        """A freehand path on the floor as planar anchors: even in time and in arc length from `start` to `stop`."""
        points = along(path, start, stop)
        taken = {round(mark.at * FPS) for mark in self.marks if mark.joint == "pelvis"}
        document = self
        for at, x, z in points:
            if round(at * FPS) not in taken:
                document = document.add(at, "pelvis", (x, 0.95, z), free=(False, True, False))
        return document

    def with_anchors(self, anchors: AnchorSet) -> "Document":
        """An opened anchor file in place of the anchors there are; the clip grows to hold them."""
        marks = tuple(Mark.of(self.next_id + k, anchor) for k, anchor in enumerate(anchors.anchors))
        needed = max((mark.at for mark in marks), default=0.0) + 1 / FPS
        seconds = max(self.seconds, math.ceil(needed * 5) / 5)
        return replace(
            self,
            marks=marks,
            start=anchors.start,
            loop=anchors.loop,
            seconds=seconds,
            next_id=self.next_id + len(marks),
        )

    def _on_frame(self, at: float) -> float:
        frame = round(at * FPS)
        return min(max(frame / FPS, 0.0), self.last_time)

    # ------------------------------------------------------------------------------------------------------ results

    def with_take(self, samples: Sequence[Sample], text: str) -> "Document":
        """A new result on stage; the oldest that nobody kept falls out when there are too many."""
        takes = [*self.takes, Take(self.next_id, text, tuple(samples))]
        while len(takes) > MOST_TAKES and any(not take.kept for take in takes[:-1]):
            takes.remove(next(take for take in takes[:-1] if not take.kept))
        return replace(self, takes=tuple(takes), shown=self.next_id, next_id=self.next_id + 1)

    def with_import(self, samples: Sequence[Sample], text: str) -> "Document":
        """A motion from elsewhere on stage; the clip grows to hold it."""
        longest = max(sample.motion.frames / sample.motion.fps for sample in samples)
        seconds = min(max(self.seconds, math.ceil(round(longest * 5, 6)) / 5), LONGEST / FPS)
        return replace(self.with_take(samples, text), seconds=seconds)

    def with_sample(self, take: int, index: int, sample: Sample) -> "Document":
        """A sample solved again; a take that has gone meanwhile changes nothing."""
        return self._with_takes(take, lambda old: replace(old, samples=_put(old.samples, index, sample)))

    def choose(self, take: int, index: int = 0) -> "Document":
        """Another take, and one of its samples, on stage."""
        chosen = self._with_takes(take, lambda old: replace(old, chosen=min(max(index, 0), len(old.samples) - 1)))
        return replace(chosen, shown=take) if any(t.id == take for t in self.takes) else self

    def show(self, take: int) -> "Document":
        """Another take on stage, with the sample that was chosen there."""
        return replace(self, shown=take) if any(t.id == take for t in self.takes) else self

    def keep(self, take: int, index: int) -> "Document":
        """One sample stays, its siblings go (undo brings them back)."""
        return self._with_takes(take, lambda old: replace(old, samples=(old.samples[index],), chosen=0, kept=True))

    def _with_takes(self, id_: int, change: Callable[[Take], Take]) -> "Document":
        return replace(self, takes=tuple(change(take) if take.id == id_ else take for take in self.takes))


def along(path: Sequence[tuple[float, float]], start: float, stop: float) -> list[tuple[float, float, float]]:
    """(time, x, z) at even steps of arc length along a polyline, both ends included."""
    if len(path) < 2 or stop <= start:
        raise AnchorError("a path needs two points and some time to walk it; draw a longer one")
    lengths = [math.dist(a, b) for a, b in zip(path, path[1:])]  # noqa: RUF007 - pairs of one list
    total = sum(lengths)
    if total < 0.05:
        raise AnchorError(f"the path is {100 * total:.0f} cm long; draw one that a body can walk")
    count = min(max(2, round((stop - start) / PATH_STEP) + 1), MOST_PATH_ANCHORS)
    points, segment, passed = [], 0, 0.0
    for k in range(count):
        wanted = total * k / (count - 1)
        while segment < len(lengths) - 1 and passed + lengths[segment] < wanted:
            passed += lengths[segment]
            segment += 1
        share = min((wanted - passed) / max(lengths[segment], 1e-9), 1.0)
        (ax, az), (bx, bz) = path[segment], path[segment + 1]
        at = start + (stop - start) * k / (count - 1)
        points.append((at, ax + share * (bx - ax), az + share * (bz - az)))
    return points


def _put(samples: tuple[Sample, ...], index: int, sample: Sample) -> tuple[Sample, ...]:
    return (*samples[:index], sample, *samples[index + 1 :]) if index < len(samples) else samples
