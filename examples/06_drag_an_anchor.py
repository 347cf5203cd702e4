"""What an editor does: watch the solver, move an anchor, solve again from where the body stands."""

import sys
import time
from dataclasses import replace

import anchorroute as ar


def main(model: str = "open") -> list[float]:
    pipe = ar.load(model)
    start = ar.Anchor(0.0, "pelvis", (0.0, None, 0.0), heading=0.0)
    anchors = ar.AnchorSet((start, ar.Anchor(2.0, "pelvis", (0.1, None, 1.8))))
    sample = None
    for event in pipe.stream("a person walks forward", anchors, seconds=3, seed=1):
        if isinstance(event, ar.Result):
            sample = event.samples[0]
        elif event.error_mm is not None:
            print(f"step {event.done}: {event.error_mm:.1f} mm")
    assert sample is not None
    worst = []
    for centimetres in (2, 4, 6):
        moved = ar.Anchor(2.0, "pelvis", (0.1 + centimetres / 100, None, 1.8))
        began = time.perf_counter()
        sample = pipe.adjust(sample, replace(anchors, anchors=(start, moved)))
        print(f"dragged {centimetres} cm: {sample.report.worst_mm:.2f} mm after {time.perf_counter() - began:.2f} s")
        worst.append(sample.report.worst_mm)
    return worst


if __name__ == "__main__":
    main(*sys.argv[1:])
