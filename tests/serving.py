"""What the server's tests share: a stand-in for the pipeline, and a server on a real socket."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from anchorroute.anchors import AnchorSet
from anchorroute.errors import Cancelled, RequestError
from anchorroute.motion.canonical import Placement
from anchorroute.motion.motion import Motion
from anchorroute.report import measure
from anchorroute.request import checked
from anchorroute.result import Result, Sample, State, Step
from anchorroute.server.app import Server
from anchorroute.server.running import Running

from motions import walk


class StandIn:
    """Answers like the pipeline, at once, with one and the same motion; `calls` lists the texts of every call.

    `gate`: each call waits for it, asking `cancel` meanwhile. A text with "fail" in it fails the call it is in.
    """

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.models = SimpleNamespace(name="stand-in")
        self.calls: list[list[str]] = []
        self.gate = gate
        self.entered = threading.Event()
        self.motion = Motion.from_joints(walk(40).numpy())

    def __call__(self, text: str | Sequence[str], anchors: Any = None, **options: Any) -> Any:
        single = isinstance(text, str)
        texts = [text] if isinstance(text, str) else list(text)
        seeds = [options["seed"]] if single else options["seed"]
        sets = [anchors] if single else anchors
        self.calls.append(texts)
        self.entered.set()
        options["on_step"](Step("tokens", 1, 2))
        while self.gate is not None and not self.gate.wait(0.002):
            if options["cancel"]():
                raise Cancelled("stopped")
        if any("fail" in one for one in texts):
            raise RequestError("this text fails")
        if any("explode" in one for one in texts):
            raise RuntimeError("a secret path")
        made = [self._result(*row, options["samples"]) for row in zip(texts, sets, seeds)]
        return made[0] if single else made

    def refine(self, motion: Any, anchors: AnchorSet, **options: Any) -> Result:
        return self._result(motion.text or "refined", anchors, 0, 1)

    def _result(self, text: str, anchors: AnchorSet, seed: int, samples: int) -> Result:
        return Result(text, anchors, tuple(self._sample(text, anchors, seed + k) for k in range(samples)))

    def _sample(self, text: str, anchors: AnchorSet, seed: int) -> Sample:
        motion = replace(self.motion, text=text, seed=seed)
        state = State(checked(text, None, frames=40, seed=seed), np.zeros(1), None)  # type: ignore[arg-type]
        return Sample(motion, measure(motion, anchors), (), (), Placement(), state)


@contextmanager
def live(server: Server) -> Iterator[str]:
    """The server on a free port of this machine; its address."""
    running = Running(server, "127.0.0.1", 0)
    running.config.log_level = "warning"
    running.config.configure_logging()
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    wait_until(lambda: running.started)
    try:
        yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)
