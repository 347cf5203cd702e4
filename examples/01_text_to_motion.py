"""A sentence in, a motion out: as BVH for animation tools and as a page that plays it."""

import sys
from pathlib import Path

import anchorroute as ar


def main(out: Path, model: str = "open") -> ar.Result:
    pipe = ar.load(model)
    result = pipe("a person walks forward and waves", seconds=4, seed=1)
    for name in ("walk.bvh", "walk.html"):
        report = result.save(out / name)
        print(f"{out / name}: {report.seconds:.1f} s, foot sliding {100 * report.skating:.1f} %")
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
