"""One thread that does what a page asks for, in order: so a page needs no locks, and never draws an older state last.

Events come from the server's loop, from the player and from the session's worker. All of them post here and go on;
what would be out of date before its turn came (a drag's earlier positions, a second redraw) is replaced while it
waits.
"""

import logging
import threading
from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)

Act = Callable[[], object]


class Inbox:
    """Acts in the order of posting, on one thread."""

    def __init__(self, name: str) -> None:
        self._condition = threading.Condition()
        self._waiting: dict[Hashable, Act] = {}
        self._closed = self._busy = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, act: Act, key: Hashable = None) -> None:
        """Do it when its turn comes. With a key: in place of an act of that key which still waits."""
        with self._condition:
            if not self._closed:
                self._waiting[object() if key is None else key] = act
                self._condition.notify_all()

    def holds(self, key: Hashable) -> bool:
        """Whether an act of that key waits."""
        with self._condition:
            return key in self._waiting

    def wait(self, timeout: float | None = None) -> bool:
        """Until all is done; False when the time is over first."""
        with self._condition:
            return self._condition.wait_for(lambda: self._closed or not (self._waiting or self._busy), timeout)

    def close(self) -> None:
        """Do no more; an act that runs is finished."""
        with self._condition:
            self._closed = True
            self._waiting.clear()
            self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._busy = False
                self._condition.notify_all()
                self._condition.wait_for(lambda: bool(self._waiting) or self._closed)
                if self._closed:
                    return
                act = self._waiting.pop(next(iter(self._waiting)))
                self._busy = True
            try:
                act()
            except Exception:
                # A page that has gone refuses writes; one fault must not end what comes after it.
                if not self._closed:
                    log.exception("the page could not be brought up to date")
