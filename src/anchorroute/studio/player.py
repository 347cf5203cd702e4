"""Playback at true speed: the clock decides which moment is shown, frames that come too late are skipped."""

import threading
import time
from collections.abc import Callable


class Player:
    """Moves a time cursor along a clip on its own thread; `show` is told of every new moment and must not wait."""

    def __init__(self, show: Callable[[float], None], rate: float) -> None:
        self._show, self._rate = show, rate
        self._condition = threading.Condition()
        self._playing = self._closed = False
        self._time, self._last, self.loop, self.speed = 0.0, 0.0, True, 1.0
        self._thread = threading.Thread(target=self._run, name="studio-player", daemon=True)
        self._thread.start()

    @property
    def playing(self) -> bool:
        """Whether the cursor moves."""
        return self._playing

    @property
    def time(self) -> float:
        """Where the cursor stands, in seconds."""
        return self._time

    @property
    def last(self) -> float:
        """The moment of the clip's last frame."""
        return self._last

    def set_length(self, last: float) -> None:
        """The moment of the clip's last frame."""
        with self._condition:
            self._last = last
            self._time = min(self._time, last)

    def toggle(self) -> None:
        """Play or pause; at the end of a clip that does not loop, from the beginning."""
        with self._condition:
            self._playing = not self._playing and self._last > 0
            if self._playing and not self.loop and self._time >= self._last:
                self._time = 0.0
            self._condition.notify_all()
        self._show(self._time)

    def pause(self) -> None:
        """Stop the cursor where it is."""
        with self._condition:
            self._playing = False

    def seek(self, seconds: float) -> None:
        """Put the cursor at a time, playing or not."""
        with self._condition:
            self._time = min(max(seconds, 0.0), self._last)
        self._show(self._time)

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._closed = True
            self._playing = False
            self._condition.notify_all()

    def _run(self) -> None:
        before = time.monotonic()
        while True:
            with self._condition:
                if not self._playing and not self._closed:
                    self._condition.wait_for(lambda: self._playing or self._closed)
                    before = time.monotonic()
                if self._closed:
                    return
                now = time.monotonic()
                self._advance(now - before)
                before, moment = now, self._time
            self._show(moment)
            with self._condition:
                self._condition.wait(max(0.0, 1.0 / self._rate - (time.monotonic() - now)))

    def _advance(self, seconds: float) -> None:
        ahead = self._time + self.speed * seconds
        if ahead <= self._last:
            self._time = ahead
        elif self.loop and self._last > 0:
            self._time = ahead % self._last
        else:
            self._time, self._playing = self._last, False
