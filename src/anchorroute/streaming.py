"""Progress as an iterator: work that reports through a callback, turned into a loop that a caller can leave."""

from collections.abc import Callable, Iterator
from queue import Queue
from threading import Event, Thread

from anchorroute.errors import Cancelled
from anchorroute.result import Result, Step


def streamed(work: Callable[[Callable[[Step], None]], Result]) -> Iterator[Step | Result]:
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
