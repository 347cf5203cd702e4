"""Background work of a session: one worker, one job at a time, the newest request wins."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from anchorroute.errors import AnchorRouteError, Cancelled

log = logging.getLogger(__name__)

State = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass
class Job:
    """One piece of work as others see it."""

    kind: str
    state: State = "waiting"
    stage: str = ""
    done: int = 0
    total: int = 0
    message: str = ""
    curve: list[float] = field(default_factory=list)
    """The mean distance to the anchors in millimetres, step by step."""
    seconds: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _changed: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def share(self) -> float:
        """Progress within the stage, 0 to 1."""
        return self.done / self.total if self.total else 0.0

    def cancel(self) -> None:
        """Ask it to stop; it does so between two steps."""
        self._stop.set()

    def cancelled(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    def progress(self, stage: str, done: int, total: int, error_mm: float | None = None) -> None:
        """Called by the work, step by step."""
        self.stage, self.done, self.total = stage, done, total
        if error_mm is not None:
            self.curve.append(error_mm)
        self._changed()


class Runner:
    """A thread that works off jobs. A job that has not begun gives way to a newer one of its kind."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._condition = threading.Condition()
        self._waiting: list[tuple[Job, Callable[[Job], None]]] = []
        self._current: Job | None = None
        self._last: Job | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="studio-worker", daemon=True)
        self._thread.start()

    @property
    def job(self) -> Job | None:
        """The running job, else the one that waits, else the last one."""
        with self._condition:
            if self._current is not None:
                return self._current
            return self._waiting[0][0] if self._waiting else self._last

    def start(self, kind: str, work: Callable[[Job], None]) -> Job:
        """Queue work; returns at once."""
        job = Job(kind, _changed=self._changed)
        with self._condition:
            if self._closed:
                raise AnchorRouteError("this session is closed; reload the page")
            for older, _ in self._waiting:
                if older.kind == kind:
                    older.state = "cancelled"
            self._waiting = [(older, do) for older, do in self._waiting if older.kind != kind]
            self._waiting.append((job, work))
            self._condition.notify_all()
        self._changed()
        return job

    def cancel(self) -> None:
        """Stop the running job and forget the waiting ones."""
        with self._condition:
            for job, _ in self._waiting:
                job.state = "cancelled"
            self._waiting.clear()
            if self._current is not None:
                self._current.cancel()
            self._condition.notify_all()
        self._changed()

    def wait(self, timeout: float | None = None) -> bool:
        """Until there is no work left; False when the time is over first."""
        with self._condition:
            return self._condition.wait_for(lambda: self._current is None and not self._waiting, timeout)

    def close(self) -> None:
        """Stop for good."""
        self.cancel()
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10.0)

    def _loop(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: bool(self._waiting) or self._closed)
                if self._closed:
                    return
                self._current, work = self._waiting.pop(0)
                job = self._current
                job.state = "running"
            self._run(job, work)
            with self._condition:
                self._last, self._current = job, None
                self._condition.notify_all()
            self._changed()

    def _run(self, job: Job, work: Callable[[Job], None]) -> None:
        began = time.monotonic()
        self._changed()
        try:
            work(job)
            job.state = "done"
        except Cancelled:
            job.state = "cancelled"
        except AnchorRouteError as error:
            job.state, job.message = "failed", str(error)
        except Exception as error:
            # The worker must outlive a fault in the work; the person sees it, the log has the trace.
            log.exception("job %s failed", job.kind)
            job.state, job.message = "failed", f"unexpected fault: {type(error).__name__}: {error}"
        job.seconds = time.monotonic() - began
