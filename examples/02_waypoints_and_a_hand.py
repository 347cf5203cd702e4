"""Root waypoints and a hand target: met to the millimetre in the file, and said so."""

import sys
from pathlib import Path

import anchorroute as ar


def main(out: Path, model: str = "open") -> ar.Report:
    anchors = ar.AnchorSet(
        (
            ar.Anchor(0.0, "pelvis", (0.0, None, 0.0), heading=0.0),
            ar.Anchor(2.0, "pelvis", (0.3, None, 1.6)),  # None: the height is the model's business
            ar.Anchor(3.5, "right_wrist", (0.4, 1.2, 2.6), tolerance=0.01),
        )
    )
    for doubt in ar.check(anchors, seconds=4):
        print("doubtful:", doubt)
    result = ar.load(model)("a person walks forward and reaches out", anchors, seconds=4, samples=2)
    report = result.save(out / "reach.glb")
    print(report)
    anchors.save(out / "reach.anchors.json")
    return report


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
