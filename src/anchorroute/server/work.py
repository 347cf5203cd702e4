"""What a job asks the pipeline for. Generations that agree in everything but their rows go through it together."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from anchorroute.anchors import AnchorSet, canonicalise
from anchorroute.errors import AnchorRouteError, Cancelled, RequestError
from anchorroute.feasibility import check
from anchorroute.motion.motion import Motion
from anchorroute.pipeline import AnchorRoute
from anchorroute.request import checked
from anchorroute.result import Result, Step
from anchorroute.server.limits import Limits

Outcome = Result | Exception
OnStep = Callable[[Step], None]
Cancel = Callable[[], bool]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Generation:
    """The arguments of one call of the pipeline."""

    text: str
    anchors: AnchorSet = field(default_factory=AnchorSet)
    seconds: float | None = None
    frames: int | None = None
    seed: int = 0
    samples: int = 1
    solver: str = "gauss-newton"
    guidance: float | None = None
    steps: int | None = None
    strict: bool = False

    @property
    def rows(self) -> int:
        """Clips that it makes."""
        return self.samples

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for generations that one call can answer."""
        return (self.samples, self.solver, self.guidance, self.steps)

    def check(self, limits: Limits) -> None:
        """Refuse before queueing whatever the pipeline would refuse."""
        _few_enough(self.anchors, limits)
        if self.samples > limits.samples:
            raise RequestError(f"{self.samples} samples; this server makes at most {limits.samples} at once")
        request = checked(self.text, self.anchors, seconds=self.seconds, frames=self.frames, seed=self.seed)
        canonicalise(request.anchors)[0].observed(request.frames)
        doubts = check(request.anchors, request.seconds) if self.strict else []
        if doubts:
            raise RequestError(f"{len(doubts)} doubts about these anchors: " + " | ".join(map(str, doubts)))


@dataclass(frozen=True)
class Refinement:
    """A motion that is to meet anchors."""

    motion: Motion
    anchors: AnchorSet
    solver: str = "gauss-newton"
    strict: bool = False
    rows: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        """Unlike any other: motions are refined alone."""
        return (id(self),)

    def check(self, limits: Limits) -> None:
        """Refuse before queueing what could not be refined."""
        _few_enough(self.anchors, limits)
        if not len(self.anchors) and not self.anchors.loop:
            raise RequestError("nothing to refine: give anchors, or a loop")


Work = Generation | Refinement


def _few_enough(anchors: AnchorSet, limits: Limits) -> None:
    if len(anchors) > limits.anchors:
        raise RequestError(f"{len(anchors)} anchors; this server takes at most {limits.anchors} in one request")


def perform(pipe: AnchorRoute, batch: Sequence[Work], on_step: OnStep, cancel: Cancel) -> list[Outcome]:
    """One outcome a job. If a batch fails, each job is tried alone, so that no job fails for another's sake."""
    try:
        return list(_together(pipe, batch, on_step, cancel))
    except Exception as error:  # noqa: BLE001 - becomes the answer to whoever asked
        if len(batch) == 1 or isinstance(error, Cancelled):
            return [_told(error)] * len(batch)
        _LOG.warning("a batch of %d failed (%s); trying its jobs one by one", len(batch), error)
    return [outcome for work in batch for outcome in perform(pipe, [work], on_step, cancel)]


def _together(pipe: AnchorRoute, batch: Sequence[Work], on_step: OnStep, cancel: Cancel) -> Sequence[Result]:
    first = batch[0]
    if isinstance(first, Refinement):
        refined = pipe.refine(
            first.motion, first.anchors, solver=first.solver, strict=first.strict, on_step=on_step, cancel=cancel
        )
        return [refined]
    rows = [work for work in batch if isinstance(work, Generation)]
    common: dict[str, Any] = {
        "samples": first.samples, "solver": first.solver, "guidance": first.guidance, "steps": first.steps,
        "on_step": on_step, "cancel": cancel,
    }  # fmt: skip
    if len(rows) == 1:
        result: Result = pipe(
            first.text, first.anchors, seconds=first.seconds, frames=first.frames, seed=first.seed, **common
        )
        return [result]
    return pipe(
        [work.text for work in rows],
        [work.anchors for work in rows],
        seconds=[work.seconds for work in rows],
        frames=[work.frames for work in rows],
        seed=[work.seed for work in rows],
        **common,
    )


def _told(error: Exception) -> Exception:
    if not isinstance(error, AnchorRouteError):
        _LOG.error("a job failed", exc_info=error)
    return error
