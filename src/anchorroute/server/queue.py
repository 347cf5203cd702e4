"""Jobs and the one queue that they wait in.

Everything here runs in the event loop, except the pipeline and `deliver` (what a result is turned into), which run in
one thread of their own. So no state is shared but what is read: the thread asks `cancel`, and reports progress through
`call_soon_threadsafe`. While a batch runs, jobs gather; all that agree (`Work.key`) go together in the next one.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from anchorroute.errors import Cancelled
from anchorroute.pipeline import AnchorRoute
from anchorroute.result import Result, Step
from anchorroute.server.limits import Limits
from anchorroute.server.problems import Problem, busy, problem, stopping, too_slow
from anchorroute.server.work import Outcome, Work, perform

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Deliver = Callable[[Result], Any]

_LOG = logging.getLogger(__name__)
#: Seconds a row is taken to need before the first was measured.
_FIRST_GUESS = 2.0


@dataclass(eq=False)
class Job:
    """One piece of work on its way. Only the queue changes it."""

    work: Work
    deliver: Deliver
    kept: bool = True
    """Whether it can be asked for once it has ended."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: State = "waiting"
    progress: dict[str, Any] = field(default_factory=dict)
    result: Result | None = None
    answer: Any = None
    error: Problem | None = None
    since: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in {"done", "failed", "cancelled"}

    def describe(self) -> dict[str, Any]:
        """The job as plain values."""
        error = None if self.error is None else {"code": self.error.code, "message": self.error.message}
        return {"id": self.id, "state": self.state, "progress": self.progress, "error": error}

    def change(self, state: State | None = None, **values: Any) -> None:
        """Set what is new and wake whoever watches."""
        for name, value in values.items():
            setattr(self, name, value)
        if state is not None:
            self.state = state
            self.since = time.monotonic()
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()

    async def watch(self) -> AsyncIterator[dict[str, Any]]:
        """The job now, and again whenever it changes, until it has ended."""
        while True:
            changed = self._changed
            ended = self.ended
            yield self.describe()
            if ended:
                return
            await changed.wait()


class Queue:
    """A bounded queue before one pipeline."""

    def __init__(self, pipe: AnchorRoute, limits: Limits) -> None:
        self.pipe, self.limits = pipe, limits
        self.stopping = False
        self.answered = 0
        self.batches = 0
        self._waiting: deque[Job] = deque()
        self._running: Sequence[Job] = ()
        self._ended: OrderedDict[str, Job] = OrderedDict()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "anchorroute-batch")
        self._worker: asyncio.Task[None] | None = None
        self._seconds_a_row = _FIRST_GUESS
        self._out_of_time = False

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Jobs in the batch that is being computed."""
        return sum(not job.ended for job in self._running)

    def submit(self, work: Work, deliver: Deliver, *, kept: bool = True) -> Job:
        """A checked job in the queue; refused if it is wrong, or the queue full, or the server about to stop."""
        if self.stopping:
            raise stopping()
        work.check(self.limits)
        if len(self._waiting) >= self.limits.waiting:
            rows = sum(job.work.rows for job in (*self._waiting, *self._running))
            raise busy(min(rows * self._seconds_a_row, self.limits.job_seconds), len(self._waiting))
        job = Job(work, deliver, kept)
        self._waiting.append(job)
        self._arrived.set()
        return job

    async def finished(self, job: Job) -> Job:
        """The job once it has ended well; its error otherwise. Who stops waiting cancels it."""
        try:
            async for _ in job.watch():
                pass
        except asyncio.CancelledError:
            self.cancel(job)
            raise
        if job.state == "cancelled":
            raise Problem(409, "cancelled", f"job {job.id} was cancelled")
        if job.error is not None:
            raise job.error
        return job

    def find(self, name: str) -> Job:
        """A job by its id, while it is known."""
        known = (*self._waiting, *self._running)
        found = self._ended.get(name) or next((job for job in known if job.id == name), None)
        if found is None:
            raise Problem(
                404, "unknown_job", "there is no job of this id (any more); results are kept for a while only"
            )
        return found

    def cancel(self, job: Job) -> None:
        """End a job that has not ended; the batch that it runs in goes on for the others."""
        if not job.ended:
            self._end(job, "cancelled")
            with contextlib.suppress(ValueError):
                self._waiting.remove(job)

    def start(self) -> None:
        """Begin to work; call it inside the event loop."""
        self._worker = asyncio.create_task(self._work(), name="anchorroute-queue")

    def stop(self) -> None:
        """Take no more jobs and tell those that wait; the running batch goes on."""
        self.stopping = True
        while self._waiting:
            self._end(self._waiting.popleft(), "failed", error=problem(stopping()))
        self._arrived.set()

    async def close(self) -> None:
        """`stop`, then wait for the running batch, at most as long as the limits say."""
        self.stop()
        if self._worker is not None:
            done, _ = await asyncio.wait({self._worker}, timeout=self.limits.grace_seconds)
            for job in () if done else self._running:
                if not job.ended:
                    self._end(job, "failed", error=problem(stopping()))
            await self._worker  # the pipeline asks between steps whether to go on: it ends soon
        self._thread.shutdown()

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self._waiting and self.limits.batch > 1:
                await asyncio.sleep(self.limits.gather_seconds)
            while self._waiting:
                await self._compute(self._take())
            if self.stopping:
                return

    def _take(self) -> list[Job]:
        """The first job, and of those behind it the ones that can go along, in their order."""
        first = self._waiting[0]
        chosen: list[Job] = []
        rows = 0
        for job in self._waiting:
            fits = len(chosen) < self.limits.batch and rows + job.work.rows <= self.limits.rows
            if job is first or (fits and job.work.key == first.work.key):
                chosen.append(job)
                rows += job.work.rows
        taken = set(map(id, chosen))
        self._waiting = deque(job for job in self._waiting if id(job) not in taken)
        return chosen

    async def _compute(self, batch: list[Job]) -> None:
        loop, began = asyncio.get_running_loop(), time.monotonic()
        self._running, self._out_of_time = batch, False
        self.batches += 1
        for job in batch:
            job.change("running")

        def on_step(step: Step) -> None:
            loop.call_soon_threadsafe(self._progress, batch, step)

        def cancel() -> bool:
            self._out_of_time = time.monotonic() - began > self.limits.job_seconds
            return self._out_of_time or all(job.ended for job in batch)

        def run() -> list[tuple[Outcome, Any]]:
            outcomes = perform(self.pipe, [job.work for job in batch], on_step, cancel)
            return [_delivered(job, outcome) for job, outcome in zip(batch, outcomes, strict=True)]

        try:
            ends = await loop.run_in_executor(self._thread, run)
        except Exception as error:  # noqa: BLE001 - the queue must outlive whatever a batch does
            _LOG.error("a batch failed", exc_info=error)
            ends = [(error, None)] * len(batch)
        for job, (outcome, answer) in zip(batch, ends, strict=True):
            self._settle(job, outcome, answer)
        spent = (time.monotonic() - began) / sum(job.work.rows for job in batch)
        self._seconds_a_row += 0.3 * (spent - self._seconds_a_row)
        self._running = ()

    def _progress(self, batch: Sequence[Job], step: Step) -> None:
        told: dict[str, Any] = {"stage": step.stage, "done": step.done, "total": step.total}
        if step.error_mm is not None and len(batch) == 1:  # of a batch it is everybody's mean
            told["error_mm"] = step.error_mm
        for job in batch:
            if job.state == "running":
                job.change(progress=told)

    def _settle(self, job: Job, outcome: Outcome, answer: Any) -> None:
        if job.ended:  # cancelled meanwhile
            return
        if isinstance(outcome, Cancelled):
            error = too_slow(self.limits.job_seconds) if self._out_of_time else stopping()
            self._end(job, "failed", error=problem(error))
        elif isinstance(outcome, Exception):
            self._end(job, "failed", error=problem(outcome))
        else:
            self.answered += 1
            self._end(job, "done", result=_light(outcome) if job.kept else None, answer=answer)

    def _end(self, job: Job, state: State, **values: Any) -> None:
        job.change(state, **values)
        if job.kept:
            self._ended[job.id] = job
        oldest = time.monotonic() - self.limits.kept_seconds
        while self._ended:
            name, first = next(iter(self._ended.items()))
            if len(self._ended) <= self.limits.kept_jobs and first.since >= oldest:
                return
            del self._ended[name]


def _light(result: Result) -> Result:
    """The result without the solver's matrices, which only dragging an anchor would use again."""
    samples = (replace(sample, state=replace(sample.state, solution=None)) for sample in result.samples)
    return replace(result, samples=tuple(samples))


def _delivered(job: Job, outcome: Outcome) -> tuple[Outcome, Any]:
    if isinstance(outcome, Exception) or job.ended:
        return outcome, None
    try:
        return outcome, job.deliver(outcome)
    except Exception as error:  # noqa: BLE001 - one job's answer that cannot be written
        if not isinstance(error, Problem):
            _LOG.error("a result could not be delivered", exc_info=error)
        return error, None
