"""What a call hands back: samples with their reports, the best first, and progress while it runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor

from anchorroute.anchors import AnchorSet
from anchorroute.feasibility import limits
from anchorroute.given import Given
from anchorroute.motion.canonical import Placement
from anchorroute.motion.motion import Motion
from anchorroute.report import Report, measure
from anchorroute.request import Request
from anchorroute.routesolver import Solution


@dataclass(frozen=True)
class Step:
    """Progress: `done` of `total` steps of a stage; while solving also the mean distance to the anchors.

    `joints` is the body at this step in the canonical frame, for callers that show it.
    """

    stage: Literal["tokens", "solving"]
    done: int
    total: int
    error_mm: float | None = None
    joints: Float[Tensor, "batch frames 22 3"] | None = None


@dataclass(frozen=True, eq=False)
class State:
    """Where a sample stands in latent space, so that it can be solved again: see `AnchorRoute.adjust`."""

    request: Request
    start: Float[Tensor, "1 tokens d_u"]
    solution: Solution | None
    source: Given | None = None
    """The motion that was refined, if it was given and not generated."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One motion with its report. `before_mm`: each anchor's distance before the solver; `trace`: the mean distance
    in mm before and after each of its steps; `placement`: where the canonical frame stands in the world."""

    motion: Motion
    report: Report
    before_mm: tuple[float, ...]
    trace: tuple[float, ...]
    placement: Placement
    state: State

    @property
    def seed(self) -> int:
        """The seed that gives this sample alone."""
        return self.state.request.seed

    @property
    def unnaturalness(self) -> float:
        """How far jerk and foot skating are from real motion's: 0 is as good as real; a frozen pose is not."""
        real = limits()
        jerk = abs(math.log(max(self.report.jerk, 1.0) / real.jerk))
        return jerk + max(0.0, self.report.skating - real.skating) / real.skating


@dataclass(frozen=True, eq=False)
class Result:
    """The samples of one request, the best first: most anchors met, then nearest to real motion."""

    text: str
    anchors: AnchorSet
    samples: tuple[Sample, ...]

    @property
    def motion(self) -> Motion:
        """The best sample's motion."""
        return self.samples[0].motion

    @property
    def report(self) -> Report:
        """The best sample's report."""
        return self.samples[0].report

    def save(self, path: str | Path, **options: Any) -> Report:
        """Write the best motion in the format that the ending says, and measure the file that was written."""
        written = self.motion.save(path, **options)
        return measure(written, self.anchors).noting(self.report)


def ranked(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Most anchors met first; among equals the most natural; ties keep their order."""
    return tuple(sorted(samples, key=lambda s: (len(s.report.anchors) - s.report.met, s.unnaturalness)))
