"""Your own path on the floor, from a table of times and places: every row becomes an anchor."""

import csv
import io
import sys
from pathlib import Path

import anchorroute as ar

TABLE = """seconds,x,z
0.0,0.0,0.0
1.0,0.1,0.7
2.0,0.5,1.3
3.0,1.1,1.6
4.0,1.8,1.6
"""


def main(out: Path, model: str = "open") -> ar.Report:
    rows = csv.DictReader(io.StringIO(TABLE))
    path = tuple(ar.Anchor(float(row["seconds"]), "pelvis", (float(row["x"]), None, float(row["z"]))) for row in rows)
    result = ar.load(model)("a person walks along a curve", ar.AnchorSet(path))
    return result.save(out / "curve.bvh", units="m")


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
