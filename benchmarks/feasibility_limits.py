"""Write the table behind the feasibility check: what bodies do in the training data, at the 99th percentile.

    python benchmarks/feasibility_limits.py runs/data/open src/anchorroute/assets/feasibility.json

Train split only. Speeds are mean speeds over windows of several lengths (displacement by time); reach is the distance
from the pelvis; heights are the 1st and 99th percentile; jerk and foot skating are means over clips. Frames are
subsampled by a fixed stride, so that the table is the same from run to run.
"""

import json
import sys
from pathlib import Path

import numpy as np

from anchorroute.data.layout import JOINTS as FOLDER
from anchorroute.data.layout import fingerprint, read_split
from anchorroute.motion.files import write_checked
from anchorroute.motion.skeleton import FPS, JOINTS
from anchorroute.report import foot_skating, mean_jerk

WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128)
STRIDE = 2


def percentiles(clips: list[np.ndarray]) -> dict[str, object]:
    """The table of a list of clips, joints [frames, 22, 3] in metres."""
    speeds = []
    for window in WINDOWS:
        steps = [
            np.linalg.norm(clip[window::STRIDE] - clip[:-window:STRIDE], axis=-1)
            for clip in clips
            if len(clip) > window
        ]
        speeds.append(np.percentile(np.concatenate(steps), 99, axis=0) * FPS / window)
    poses = np.concatenate([clip[::STRIDE] for clip in clips])
    reach = np.percentile(np.linalg.norm(poses - poses[:, :1], axis=-1), 99, axis=0)
    low, high = np.percentile(poses[..., 1], (1, 99), axis=0)
    by_joint = np.stack(speeds, axis=1).astype(np.float64).round(3)
    return {
        "jerk": round(float(np.mean([mean_jerk(clip, FPS) for clip in clips])), 2),
        "skating": round(float(np.mean([foot_skating(clip, FPS) for clip in clips])), 4),
        "horizons": [window / FPS for window in WINDOWS],
        "speed": {joint: row.tolist() for joint, row in zip(JOINTS, by_joint)},
        "reach": dict(zip(JOINTS, reach.astype(np.float64).round(3).tolist())),
        "lowest": dict(zip(JOINTS, low.astype(np.float64).round(3).tolist())),
        "highest": dict(zip(JOINTS, high.astype(np.float64).round(3).tolist())),
    }


def main(folder: Path, target: Path) -> None:
    """Read the train split, write the table."""
    ids = read_split(folder, "train")
    clips = [np.load(folder / FOLDER / f"{name}.npy").astype(np.float32) for name in ids]
    head = {"percentile": 99, "clips": len(clips), "data": fingerprint(folder)}
    table = {**head, **percentiles(clips)}
    write_checked(target, (json.dumps(table, indent=1) + "\n").encode(), lambda path: json.loads(path.read_bytes()))
    print(f"{target}: {len(clips)} clips")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
