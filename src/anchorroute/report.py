"""How well a motion meets its anchors, in millimetres, and how natural it is.

`measure` takes a motion or the path of a written file: everything that the product prints or hands out comes
from the second, because what counts is the file that somebody opens. A time between two frames is observed by
linear interpolation of its neighbours (the rule that the solver follows too); at a frame rate that does not
hold an anchor's time, the line says which written frame is nearest.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.motion.canonical import facing
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import FPS, joint_index

Array = np.ndarray[Any, np.dtype[Any]]

TOES = (10, 11)
CONTACT_HEIGHT = 0.05
SLIDE_SPEED = 0.5
#: Speeds are averaged over a quarter of a second too, so that one fast frame is no slide.
SLIDE_WINDOW = 0.25
HEADING_TOLERANCE_DEG = 1.0


@dataclass(frozen=True)
class AnchorLine:
    """One anchor, where the motion really is at its time, and the distance between the two."""

    index: int
    at: float
    joint: str
    target: tuple[float | None, float | None, float | None]
    reached: tuple[float, float, float]
    error_mm: float
    tolerance_mm: float
    heading_error_deg: float | None = None
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the point lies within the anchor's tolerance (and the heading within one degree)."""
        turned = self.heading_error_deg is not None and abs(self.heading_error_deg) > HEADING_TOLERANCE_DEG
        return self.error_mm <= self.tolerance_mm and not turned


@dataclass(frozen=True)
class Report:
    """What came out: one line an anchor, and the figures that tell whether the motion looks alive.

    `skating` is the share of frames in which a toe on the ground slides, `jerk` the mean third derivative of the
    joints in m/s3 (real motion: about 0.05 and 60). `source` names the file that was read back; it is empty for a
    motion in memory.
    """

    anchors: tuple[AnchorLine, ...]
    seconds: float
    fps: float
    skating: float
    jerk: float
    source: str = ""
    solver: str = ""
    warnings: tuple[str, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def met(self) -> int:
        """How many anchors are met."""
        return sum(line.met for line in self.anchors)

    @property
    def all_met(self) -> bool:
        """Whether every anchor is met; true without anchors."""
        return self.met == len(self.anchors)

    @property
    def worst_mm(self) -> float:
        """The largest distance, 0 without anchors."""
        return max((line.error_mm for line in self.anchors), default=0.0)

    @property
    def mean_mm(self) -> float:
        """The mean distance, 0 without anchors."""
        return float(np.mean([line.error_mm for line in self.anchors])) if self.anchors else 0.0

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON, the verdicts included."""
        lines = [{**asdict(line), "met": line.met} for line in self.anchors]
        summary = {"met": self.met, "of": len(self.anchors), "worst_mm": self.worst_mm, "mean_mm": self.mean_mm}
        return {**asdict(self), **summary, "anchors": lines}

    def to_json(self) -> str:
        """`to_dict` as indented JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def noting(self, other: "Report") -> "Report":
        """This report with the solver, warnings and timings of another of the same motion."""
        return replace(self, solver=other.solver, warnings=other.warnings, timings=other.timings)

    def rows(self) -> list[tuple[str, str, str, str, str, str, str]]:
        """The table's cells: anchor, time, joint, target, reached, mm, met or not."""
        return [
            (
                str(line.index),
                f"{line.at:.2f} s",
                line.joint,
                _point(line.target),
                _point(line.reached),
                f"{line.error_mm:.2f}" if line.error_mm < 1000 else f"{line.error_mm:.0f}",
                "met" if line.met else "NOT MET",
            )
            for line in self.anchors
        ]

    def __str__(self) -> str:
        """The table as plain text with a closing line."""
        header = ("anchor", "time", "joint", "target", "reached", "mm", "verdict")
        rows = [header, *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        notes = [f"  anchor {line.index}: {line.note}" for line in self.anchors if line.note]
        closing = f"{self.met} of {len(self.anchors)} anchors met, worst {self.worst_mm:.2f} mm"
        measured = f"; foot sliding {100 * self.skating:.1f} %, jerk {self.jerk:.0f} m/s3"
        body = table + notes if self.anchors else []
        return "\n".join([*body, (closing if self.anchors else "no anchors") + measured])


def measure(motion: Motion | str | Path, anchors: AnchorSet | Sequence[Anchor] | None = None) -> Report:
    """Measure a motion, or a file after reading it, against anchors; a file's own anchors are the default."""
    source = "" if isinstance(motion, Motion) else str(motion)
    taken = motion if isinstance(motion, Motion) else Motion.load(motion)
    chosen = _own_anchors(taken) if anchors is None else anchors
    listed = chosen.anchors if isinstance(chosen, AnchorSet) else tuple(chosen)
    plain = taken.resample(FPS)  # the figures mean the same at any rate
    return Report(
        anchors=tuple(_line(index, anchor, taken) for index, anchor in enumerate(listed)),
        seconds=taken.seconds,
        fps=taken.fps,
        skating=foot_skating(plain.joints, FPS),
        jerk=mean_jerk(plain.joints, FPS),
        source=source,
    )


def _own_anchors(motion: Motion) -> AnchorSet:
    return AnchorSet.from_json({"version": 1, "anchors": [dict(anchor) for anchor in motion.anchors]})


def _line(index: int, anchor: Anchor, motion: Motion) -> AnchorLine:
    pose = motion.at(anchor.at)
    x, y, z = (float(value) for value in pose[joint_index(anchor.joint)])
    gaps = [here - wanted for here, wanted in zip((x, y, z), anchor.position) if wanted is not None]
    return AnchorLine(
        index=index,
        at=anchor.at,
        joint=anchor.joint,
        target=anchor.position,
        reached=(x, y, z),
        error_mm=1000 * math.hypot(*gaps),
        tolerance_mm=1000 * anchor.tolerance,
        heading_error_deg=None if anchor.heading is None else _turned(pose, anchor.heading),
        note=_note(anchor.at * motion.fps, motion),
    )


def _turned(pose: Float[Array, "22 3"], heading: float) -> float:
    faces = float(facing(torch.from_numpy(np.array(pose, dtype=np.float64))))
    return math.degrees(math.remainder(faces - heading, 2 * math.pi))


def _note(frame: float, motion: Motion) -> str:
    last = motion.frames - 1
    if frame > last + 1e-3:
        return f"the motion's last frame is at {last / motion.fps:.3f} s; measured there"
    nearest = round(frame)
    if abs(frame - nearest) < 1e-3:
        return ""
    return f"between two frames at {motion.fps:g} fps; nearest written frame {nearest} ({nearest / motion.fps:.3f} s)"


def foot_skating(joints: Float[Array, "frames 22 3"], fps: float) -> float:
    """The share of frames in which a toe lower than 5 cm slides faster than half a metre a second."""
    toes = joints[:, TOES].astype(np.float64)
    speed = np.linalg.norm(np.diff(toes[..., [0, 2]], axis=0), axis=-1) * fps
    window = max(1, round(SLIDE_WINDOW * fps))
    box = np.full(window, 1 / window)
    average = np.stack([np.convolve(np.pad(foot, window), box, "same")[window:-window] for foot in speed.T], axis=1)
    low = (toes[:-1, :, 1] < CONTACT_HEIGHT) & (toes[1:, :, 1] < CONTACT_HEIGHT)
    return float((low & (speed > SLIDE_SPEED) & (average > SLIDE_SPEED)).any(axis=1).mean())


def mean_jerk(joints: Float[Array, "frames 22 3"], fps: float) -> float:
    """Mean length of the joints' third difference, in m/s3; 0 for a clip too short to have one."""
    if len(joints) < 4:
        return 0.0
    return float(np.linalg.norm(np.diff(joints.astype(np.float64), n=3, axis=0), axis=-1).mean() * fps**3)


def _point(values: Sequence[float | None]) -> str:
    return ", ".join("_" if value is None else f"{value:.3f}" for value in values)
