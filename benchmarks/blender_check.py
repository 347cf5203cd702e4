"""Does Blender see the same joints? Runs inside a Python that has `bpy` (its own environment; it is GPL and large).

    python benchmarks/blender_check.py joints.npy motion.glb motion.bvh

`joints.npy` holds the joints [T, 22, 3] that were exported at 20 fps, as `numpy.save` writes them; the files are what
`Motion.save` wrote. Prints one JSON object: per file the largest and the mean distance in millimetres between those
joints and the bones' heads after Blender's own importer; and writes what Blender's own exporter makes of the imported
BVH to `motion.blender.bvh`. Imports nothing of this package, so no error is shared.
"""

import json
import sys
from pathlib import Path

import bpy
import numpy as np

NAMES = (
    "Hips", "LeftUpLeg", "RightUpLeg", "Spine", "LeftLeg", "RightLeg", "Spine1", "LeftFoot", "RightFoot", "Spine2",
    "LeftToeBase", "RightToeBase", "Neck", "LeftShoulder", "RightShoulder", "Head", "LeftArm", "RightArm",
    "LeftForeArm", "RightForeArm", "LeftHand", "RightHand",
)  # fmt: skip
FPS = 20


def imported(path: Path) -> tuple[object, float, int]:
    """The armature, metres in one of its units, and the scene frame of the first pose."""
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.context.scene.render.fps = FPS
    if path.suffix == ".glb":
        bpy.ops.import_scene.gltf(filepath=str(path))
        unit, start = 1.0, 0
    else:
        bpy.ops.import_anim.bvh(filepath=str(path), frame_start=1, update_scene_fps=False)
        unit, start = 0.01, 1
    return next(item for item in bpy.data.objects if item.type == "ARMATURE"), unit, start


def heads(path: Path, frames: int) -> np.ndarray:
    """Bone heads [T, 22, 3] in this package's axes (Y up)."""
    armature, unit, start = imported(path)
    out = np.empty((frames, len(NAMES), 3))
    for frame in range(frames):
        bpy.context.scene.frame_set(start + frame)
        evaluated = armature.evaluated_get(bpy.context.evaluated_depsgraph_get())
        for joint, name in enumerate(NAMES):
            x, y, z = evaluated.matrix_world @ evaluated.pose.bones[name].head
            out[frame, joint] = (x * unit, z * unit, -y * unit)
    return out


def main() -> None:
    """Compare every file named on the command line."""
    joints = np.load(sys.argv[1], allow_pickle=False)
    result = {"blender": bpy.app.version_string, "frames": len(joints)}
    for name in sys.argv[2:]:
        away = 1000 * np.linalg.norm(heads(Path(name), len(joints)) - joints, axis=-1)
        if name.endswith(".bvh"):  # the armature is still there
            again = str(Path(name).with_suffix(".blender.bvh"))
            bpy.ops.export_anim.bvh(filepath=again, frame_start=1, frame_end=len(joints))
        result[Path(name).suffix] = {"max_mm": round(float(away.max()), 4), "mean_mm": round(float(away.mean()), 4)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
