"""Progress: one kind of step for callers, whichever stage reports it, by callback or as an iterator to loop over."""

from collections.abc import Callable, Iterator
from queue import Queue
from threading import Event, Thread

from anchorroute.errors import Cancelled
from anchorroute.result import Result, Step
from anchorroute.routesolver import Step as SolverStep

OnStep = Callable[[Step], None]


def token_progress(on_step: OnStep | None, cancel: Callable[[], bool] | None) -> Callable[[int, int], None]:
    """For the token sampler, which knows nothing of cancelling: raising stops it."""

    def report(done: int, total: int) -> None:
        if cancel is not None and cancel():
            raise Cancelled("stopped while drawing tokens")
        if on_step is not None:
            on_step(Step("tokens", done, total))

    return report


def solver_progress(on_step: OnStep | None) -> Callable[[SolverStep], None] | None:
    """For RouteSolver: the mean distance in millimetres, and the body as it stands."""
    if on_step is None:
        return None

    def report(step: SolverStep) -> None:
        on_step(Step("solving", step.index, step.of, 1000 * float(step.error.mean()), step.joints))

    return report


def streamed(work: Callable[[OnStep], Result]) -> Iterator[Step | Result]:
    """Run `work` in a thread; yield every step that it reports, then its result. Leaving the loop stops it."""
    events: Queue[Step | Result | BaseException] = Queue()
    left = Event()

    def on_step(step: Step) -> None:
        if left.is_set():
            raise Cancelled("nobody listens any more")
        events.put(step)

    def run() -> None:
        try:
            events.put(work(on_step))
        except BaseException as error:  # noqa: BLE001 - raised again where the caller is
            events.put(error)

    Thread(target=run, daemon=True).start()
    try:
        while True:
            event = events.get()
            if isinstance(event, BaseException):
                raise event
            yield event
            if isinstance(event, Result):
                return
    finally:
        left.set()
