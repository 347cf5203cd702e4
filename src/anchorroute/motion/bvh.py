"""BVH in and out.

Out: a standing T-pose at rest, End Sites, Mixamo's or SMPL's joint names, centimetres or metres, any rate; angles in
the order Z X Y without jumps between frames. In: CMU, Mixamo or SMPL names (see `retarget`); a file on this package's
own skeleton is taken rotation for rotation, any other by where its joints are. Captures keep their place in the
world: nothing is put on the floor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from anchorroute.errors import FormatError
from anchorroute.motion import retarget, rotation
from anchorroute.motion.bvh_names import MIXAMO, Naming, is_cmu, recognise
from anchorroute.motion.bvh_raw import RawBvh, read_raw
from anchorroute.motion.files import write_checked
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import JOINTS, PARENTS, REST_OFFSETS

Array = np.ndarray[Any, np.dtype[Any]]
Units = Literal["cm", "m"]

TOLERANCE = 1e-3
"""Metres by which joints read back may differ from those written."""

_PER_METRE: dict[str, float] = {"cm": 100.0, "m": 1.0}
_DECIMALS: dict[str, int] = {"cm": 5, "m": 7}
#: Where the body goes on beyond its last joints, metres: crown, toes, finger tips.
_ENDS = {15: (0.0, 0.19, 0.0), 10: (0.0, 0.0, 0.07), 11: (0.0, 0.0, 0.07), 20: (0.18, 0.0, 0.0), 21: (-0.18, 0.0, 0.0)}
_SAME_OFFSET = 1e-4
_BLOCK = 4096


def load(path: str | Path | bytes) -> Motion:
    """Read a BVH file (or its bytes, or its text) with CMU's, Mixamo's or SMPL's joint names, at its own rate."""
    raw = read_raw(path)
    if raw.frames < 2:
        raise FormatError(f"{raw.source}: one frame is a pose; a motion takes two frames or more")
    own = _own_skeleton(raw)
    if own is not None:
        return own
    fps, joints = raw.fps, retarget.to_22(raw)
    del raw  # the largest thing in memory when the capture is long
    return Motion.from_joints(joints, fps)


def _own_skeleton(raw: RawBvh) -> Motion | None:
    """The motion as it was written, if the file's skeleton is this package's in any of its namings and units."""
    if is_cmu(raw.names):
        return None
    _, nodes, missing = recognise(raw.names)
    if missing or len(raw.channels) - sum(name.endswith(":end") for name in raw.names) != len(JOINTS):
        return None
    order = [nodes[joint] for joint in range(len(JOINTS))]
    parents = [raw.parents[node] for node in order]
    if parents != [-1 if parent < 0 else order[parent] for parent in PARENTS] or raw.offsets[order[0]].any():
        return None
    if any(name.endswith("position") for node in order[1:] for name in raw.channels[node]):
        return None
    for per_metre in _PER_METRE.values():
        if np.allclose(raw.offsets[order] / per_metre, REST_OFFSETS, atol=_SAME_OFFSET):
            return _as_written(raw, order, per_metre)
    return None


def _as_written(raw: RawBvh, order: list[int], per_metre: float) -> Motion:
    root = np.empty((raw.frames, 3), dtype=np.float32)
    turns = np.empty((raw.frames, len(JOINTS), 4), dtype=np.float32)
    for start in range(0, raw.frames, _BLOCK):
        window = (start, start + _BLOCK)
        root[slice(*window)] = raw.world(*window)[0][:, order[0]] / per_metre
        matrices = np.stack([raw.local_rotations(node, *window) for node in order], axis=1)
        turns[slice(*window)] = rotation.matrix_to_quat(torch.from_numpy(matrices)).numpy()
    return Motion(root=root, rotations=rotation.quat_continuous(torch.from_numpy(turns)).numpy(), fps=raw.fps)


def save(
    motion: Motion, path: str | Path, *, names: Naming = "mixamo", units: Units = "cm", fps: float | None = None
) -> Path:
    """Write a BVH file, read it back, and only then put it in its place."""
    if not Path(path).name.lower().endswith(".bvh"):
        raise FormatError(f"{path}: BVH is written to a path that ends in .bvh")
    if names not in ("mixamo", "smpl") or units not in _PER_METRE:
        raise FormatError(f"names={names!r}, units={units!r}: names are 'mixamo' or 'smpl', units 'cm' or 'm'")
    written = motion if fps is None else motion.resample(fps)

    def check(file: Path) -> None:
        check_joints(load(file), written, file)

    return write_checked(path, _text(written, names, units).encode(), check)


def check_joints(found: Motion, written: Motion, file: Path) -> None:
    """Refuse a file whose joints are not those of the motion that it was written from."""
    if found.frames != written.frames or abs(found.fps - written.fps) > 1e-3 * written.fps:
        raise FormatError(
            f"{file}: {found.frames} frames at {found.fps:g} fps were read back, "
            f"{written.frames} at {written.fps:g} were written"
        )
    error = float(np.linalg.norm(found.joints - written.joints, axis=-1).max())
    if not error <= TOLERANCE:
        raise FormatError(
            f"{file}: joints read back differ by {1000 * error:.2f} mm; {1000 * TOLERANCE:g} mm is allowed"
        )


def _text(motion: Motion, names: Naming, units: Units) -> str:
    per_metre, decimals = _PER_METRE[units], _DECIMALS[units]
    labels = MIXAMO if names == "mixamo" else JOINTS
    lines, order = _hierarchy(labels, per_metre, decimals)
    lines += ["MOTION", f"Frames: {motion.frames}", f"Frame Time: {1.0 / motion.fps:.8f}"]
    root = motion.root.astype(np.float64) * per_metre
    angles = euler_zxy(motion.rotations)[:, order].reshape(motion.frames, -1)
    row = " ".join([f"%.{decimals}f"] * 3 + ["%.5f"] * angles.shape[1])
    lines += [row % tuple(values) for values in np.concatenate((root, angles), axis=1).tolist()]
    return "\n".join(lines) + "\n"


def _hierarchy(labels: tuple[str, ...], per_metre: float, decimals: int) -> tuple[list[str], list[int]]:
    """The text of HIERARCHY, and the joints in the order in which it names them."""
    lines, order = ["HIERARCHY"], []

    def offset(vector: Any) -> str:
        return "OFFSET " + " ".join(f"{value * per_metre + 0.0:.{decimals}f}" for value in map(float, vector))

    def write(joint: int, depth: int) -> None:
        tab = "\t" * depth
        order.append(joint)
        position = "" if depth else "Xposition Yposition Zposition "
        lines.extend((
            f"{tab}{'JOINT' if depth else 'ROOT'} {labels[joint]}",
            f"{tab}{{",
            f"{tab}\t{offset(REST_OFFSETS[joint])}",
            f"{tab}\tCHANNELS {3 if depth else 6} {position}Zrotation Xrotation Yrotation",
        ))  # fmt: skip
        for child in (child for child, parent in enumerate(PARENTS) if parent == joint):
            write(child, depth + 1)
        if joint in _ENDS:
            lines.extend((f"{tab}\tEnd Site", f"{tab}\t{{", f"{tab}\t\t{offset(_ENDS[joint])}", f"{tab}\t}}"))
        lines.append(f"{tab}}}")

    write(0, 0)
    return lines, order


def euler_zxy(rotations: Float[np.ndarray, "frames joints 4"]) -> Float[np.ndarray, "frames joints 3"]:
    """Degrees (z, x, y) with R = Rz Rx Ry, of the two sets and their full turns the one nearest the frame before."""
    quats = torch.from_numpy(rotations.astype(np.float64))
    m = rotation.quat_to_matrix(rotation.normalise(quats)).numpy()
    cos_x = np.hypot(m[..., 0, 1], m[..., 1, 1])
    locked = cos_x < 1e-7
    x = np.arctan2(m[..., 2, 1], cos_x)
    z = np.where(locked, np.arctan2(m[..., 1, 0], m[..., 0, 0]), np.arctan2(-m[..., 0, 1], m[..., 1, 1]))
    y = np.where(locked, 0.0, np.arctan2(-m[..., 2, 0], m[..., 2, 2]))
    one = np.stack((z, x, y), axis=-1)
    other = np.stack((z + np.pi, np.pi - x, y + np.pi), axis=-1)
    angles = np.empty_like(one)
    before = np.zeros_like(one[0])
    for frame, choices in enumerate(zip(one, other)):
        near = np.stack([choice + 2 * np.pi * np.round((before - choice) / (2 * np.pi)) for choice in choices])
        best = np.abs(near - before).sum(-1).argmin(0)
        before = np.take_along_axis(near, best[None, :, None], axis=0)[0]
        angles[frame] = before
    return np.rad2deg(angles)
