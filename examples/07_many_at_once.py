"""Lists in, list out: several texts in one call, each with its own length, seed and anchors."""

import sys
from pathlib import Path

import anchorroute as ar


def main(out: Path, model: str = "open") -> list[ar.Result]:
    texts = ["a person walks forward", "a person waves with the right hand", "a person walks and turns around"]
    ahead = ar.AnchorSet((ar.Anchor(2.5, "pelvis", (0.0, None, 2.5)),))
    results = ar.load(model)(texts, [ahead, None, None], seconds=[3, 2, 4], seed=[1, 2, 3])
    for place, result in enumerate(results, 1):
        report = result.save(out / f"{place:02d}.npz")
        print(f"{result.text}: {report.met} of {len(report.anchors)} anchors met")
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
