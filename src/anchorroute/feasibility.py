"""What the anchors ask of a body, before anything runs: speed, reach, floor and the clip's bounds.

The limits are what people do: 99th percentiles over the training data, kept in `assets/feasibility.json` (written by
`benchmarks/feasibility_limits.py`). A finding is a warning, because a request beyond the 99th percentile may still
be meant; an anchor outside of the clip is an error, because it cannot mean anything.

Speed has no single limit: a wrist may do 3 m/s for a tenth of a second and not for two. So limits are a curve over
the time between two anchors, and a suggestion is read off that curve.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Literal

import numpy as np

from anchorroute.anchors import Anchor, AnchorSet, starting_placement
from anchorroute.errors import CheckpointError, RequestError
from anchorroute.motion.skeleton import FPS

#: Two anchors of different joints closer than this in time say something about one pose.
SAME_POSE = 0.11
#: The floor is where the training data's feet are; a target may lie this far under it.
FLOOR_SLACK = 0.03


@dataclass(frozen=True)
class Limits:
    """The training data's 99th percentiles, by joint name; `speed` is a curve over `horizons` (seconds)."""

    horizons: tuple[float, ...]
    speed: Mapping[str, tuple[float, ...]]
    reach: Mapping[str, float]
    lowest: Mapping[str, float]
    highest: Mapping[str, float]
    jerk: float = 60.0
    """Mean over the training clips, m/s3; a sample is judged by how far it is from real motion."""
    skating: float = 0.05

    def fastest(self, joint: str, seconds: float) -> float:
        """The mean speed over so many seconds that 99 % of the data stay below, in m/s."""
        return float(np.interp(math.log(max(seconds, 1e-6)), np.log(self.horizons), self.speed[joint]))

    def farthest(self, joint: str, seconds: float) -> float:
        """How far a joint comes in so many seconds."""
        return self.fastest(joint, seconds) * seconds


@dataclass(frozen=True)
class Finding:
    """Something that the anchors ask and a body hardly does: which anchors, what the rule is, what to do."""

    kind: Literal["speed", "reach", "floor", "height", "clip"]
    anchors: tuple[int, ...]
    message: str
    suggestion: str
    error: bool = False

    def __str__(self) -> str:
        return f"{self.message}; {self.suggestion}"


@lru_cache(maxsize=1)
def limits() -> Limits:
    """The limits that ship with the package."""
    source = files("anchorroute") / "assets" / "feasibility.json"
    try:
        table = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{source} cannot be read ({error}); install the package again") from error
    return Limits(
        tuple(table["horizons"]),
        {joint: tuple(curve) for joint, curve in table["speed"].items()},
        table["reach"],
        table["lowest"],
        table["highest"],
        table["jerk"],
        table["skating"],
    )


def check(anchors: AnchorSet, seconds: float, within: Limits | None = None) -> list[Finding]:
    """Everything that is doubtful about anchors on a clip of so many seconds; empty when nothing is."""
    rules = within or limits()
    order = sorted(range(len(anchors)), key=lambda index: anchors.anchors[index].at)
    numbered = [(index, anchors.anchors[index]) for index in order]
    last = seconds - 1 / FPS
    found = [*_bounds(numbered, last), *_heights(numbered, rules)]
    found += _speeds(numbered, rules, last)
    found += _from_start(numbered, anchors, rules)
    found += _reaches(numbered, rules)
    return sorted(found, key=lambda finding: (not finding.error, finding.anchors))


def doubts(anchors: AnchorSet, seconds: float, *, strict: bool) -> tuple[str, ...]:
    """The findings as sentences; with `strict` they are an error."""
    found = check(anchors, seconds)
    if strict and found:
        raise RequestError(f"{len(found)} doubts about these anchors: " + " | ".join(map(str, found)))
    return tuple(map(str, found))


Numbered = list[tuple[int, Anchor]]


def _bounds(numbered: Numbered, last: float) -> Iterator[Finding]:
    for index, anchor in numbered:
        if anchor.at > last + 1e-4:
            wanted = math.ceil((anchor.at + 1 / FPS) * 10 - 1e-9) / 10
            yield Finding(
                "clip",
                (index,),
                f"anchors[{index}] ({anchor.joint}) is at {anchor.at:g} s, but the clip's last frame is at {last:g} s",
                f"ask for {wanted:g} s or more, or move the anchor",
                error=True,
            )


def _heights(numbered: Numbered, rules: Limits) -> Iterator[Finding]:
    for index, anchor in numbered:
        y = anchor.position[1]
        if y is None:
            continue
        low, high = rules.lowest[anchor.joint], rules.highest[anchor.joint]
        who = f"anchors[{index}] puts {anchor.joint} at a height of {y:.2f} m"
        if y < min(low, 0.0) - FLOOR_SLACK:
            yield Finding("floor", (index,), f"{who}, below the floor", f"raise it to {max(low, 0.0):.2f} m or more")
        elif not low - FLOOR_SLACK <= y <= high + FLOOR_SLACK:
            rule = f"{who}; in 98 % of the training data it is between {low:.2f} and {high:.2f} m"
            yield Finding("height", (index,), rule, "bring it between the two, or leave the height free with null")


def _speeds(numbered: Numbered, rules: Limits, last: float) -> Iterator[Finding]:
    """Consecutive anchors of one joint: the mean speed between them."""
    by_joint: dict[str, Numbered] = {}
    for index, anchor in numbered:
        by_joint.setdefault(anchor.joint, []).append((index, anchor))
    for joint, own in by_joint.items():
        for (i, one), (j, other) in pairwise(own):
            apart, dt = _distance(one, other), other.at - one.at
            if apart > rules.farthest(joint, dt):
                yield Finding("speed", (i, j), _too_fast(i, j, joint, apart, dt, rules), _later(
                    f"move anchors[{j}]", one.at, joint, apart, rules, last
                ))  # fmt: skip


def _from_start(numbered: Numbered, anchors: AnchorSet, rules: Limits) -> Iterator[Finding]:
    """The first pelvis anchor must be within reach of where frame 0 stands."""
    first = next(((i, anchor) for i, anchor in numbered if anchor.joint == "pelvis"), None)
    if first is None or first[1].at <= 1e-4:
        return
    index, anchor = first
    x, z = starting_placement(anchors).xz
    apart = _distance(Anchor(0.0, "pelvis", (x, None, z)), anchor)
    if apart > rules.farthest("pelvis", anchor.at):
        speed, fastest = apart / anchor.at, rules.fastest("pelvis", anchor.at)
        yield Finding(
            "speed",
            (index,),
            f"anchors[{index}] asks the pelvis to come {apart:.2f} m from its start in {anchor.at:g} s "
            f"({speed:.1f} m/s; 99 % of the training data stays below {fastest:.1f})",
            "start nearer (`start` in the anchor file), or set the anchor later",
        )


def _reaches(numbered: Numbered, rules: Limits) -> Iterator[Finding]:
    """Anchors of two joints in one pose, or a joint and the pelvis anchors just before and after it."""
    root = [(i, anchor) for i, anchor in numbered if anchor.joint == "pelvis"]
    times = [anchor.at for _, anchor in root]
    for place, (j, anchor) in enumerate(numbered):
        if anchor.joint == "pelvis":
            continue
        after = int(np.searchsorted(times, anchor.at))
        near = root[max(0, after - 1) : after + 1]
        near += [
            (i, other) for i, other in numbered[max(0, place - 8) : place]
            if other.joint not in {"pelvis", anchor.joint} and anchor.at - other.at <= SAME_POSE
        ]  # fmt: skip
        for i, other in near:
            yield from _reach(i, other, j, anchor, rules)


def _reach(i: int, other: Anchor, j: int, anchor: Anchor, rules: Limits) -> Iterator[Finding]:
    dt = abs(anchor.at - other.at)
    span = rules.reach[anchor.joint] + (0.0 if other.joint == "pelvis" else rules.reach[other.joint])
    possible = span + rules.farthest("pelvis", max(dt, 1e-6))
    apart = _distance(other, anchor)
    if apart > possible:
        when = "at the same time" if dt < 1e-4 else f"{dt:.2f} s apart"
        yield Finding(
            "reach",
            (min(i, j), max(i, j)),
            f"anchors[{i}] ({other.joint}) and anchors[{j}] ({anchor.joint}) are {apart:.2f} m from each other {when}; "
            f"a body spans {possible:.2f} m in the training data",
            f"bring them within {possible:.2f} m, or further apart in time",
        )


def _distance(one: Anchor, other: Anchor) -> float:
    """Distance along the coordinates that both set: what is left free never counts."""
    gaps = [b - a for a, b in zip(one.position, other.position) if a is not None and b is not None]
    return math.hypot(*gaps)


def _too_fast(i: int, j: int, joint: str, apart: float, dt: float, rules: Limits) -> str:
    speed, fastest = apart / max(dt, 1e-6), rules.fastest(joint, dt)
    return (
        f"anchors[{i}] and anchors[{j}] ask {joint} for {apart:.2f} m in {dt:.2f} s ({speed:.1f} m/s; "
        f"99 % of the training data stays below {fastest:.1f} over that time)"
    )


def _later(do: str, start: float, joint: str, apart: float, rules: Limits, last: float) -> str:
    """The earliest later time that the limits allow, or the distance to keep when the clip is too short for it."""
    frames = np.arange(1, 1 + max(0, math.floor((last - start) * FPS + 1e-6)))
    for seconds in frames / FPS:
        if apart <= rules.farthest(joint, float(seconds)):
            return f"{do} to {start + seconds:.2f} s or later, or nearer"
    longest = rules.farthest(joint, max(last - start, 1 / FPS))
    return f"{do} nearer: by the clip's end a body comes {longest:.2f} m far"
