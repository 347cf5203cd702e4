"""A motion that was not generated here, made to meet an anchor; everything else stays as it was."""

import sys
from pathlib import Path

import numpy as np

import anchorroute as ar


def main(out: Path, model: str = "open", take: Path | None = None) -> float:
    pipe = ar.load(model)
    if take is None:  # no take at hand: generate one and pretend
        take = out / "take.bvh"
        pipe("a person walks", seconds=3, seed=4).save(take)
    motion = ar.Motion.load(take)
    x, y, z = (float(value) for value in motion.at(1.5)[20])
    wanted = ar.Anchor(1.5, "left_wrist", (x + 0.05, y + 0.05, z))
    result = pipe.refine(motion, ar.AnchorSet((wanted,)))
    print(result.save(out / "fixed.bvh"))
    changed = float(np.linalg.norm(result.motion.joints[:, 8] - motion.resample(20).joints[:, 8], axis=-1).max())
    print(f"the right ankle moved by at most {1000 * changed:.1f} mm")
    return result.report.worst_mm


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    main(arguments[0] if arguments else Path(), take=arguments[1] if len(arguments) > 1 else None)
