"""KIMODO's constraint list, read and written as far as anchors can say it; what is lost is said.

A KIMODO file is a bare JSON list of {"type", "frame_indices", ...}: metres, Y up, 30 frames a second, headings as
[cos, sin] of the angle from +Z, the first frame above the origin. Three differences matter. Its 2-D root is a
*smoothed* one, around which the pelvis sways, so those anchors get a tolerance of 5 cm. Its hands, feet and full
poses are rotations over its own skeleton: with 22 (SMPL) joints they are posed on this package's body, with 30, 34 or
77 only the root position can be kept. And it has no version, no rate and no names, so nothing guards a mix-up.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from anchorroute.anchor_file import decode, read_document, write_atomically
from anchorroute.anchors import Anchor, AnchorSet, starting_placement
from anchorroute.errors import AnchorError, FormatError
from anchorroute.motion.body import forward_kinematics
from anchorroute.motion.skeleton import JOINTS

FPS = 30.0
#: How far the pelvis may be from KIMODO's smoothed root.
SWAY = 0.05

_GROUPS: dict[str, tuple[str, ...]] = {
    "left-hand": ("left_wrist",),
    "right-hand": ("right_wrist",),
    "left-foot": ("left_ankle", "left_foot"),
    "right-foot": ("right_ankle", "right_foot"),
    "fullbody": JOINTS[1:],
}
_TYPES = ("root2d", "end-effector", *_GROUPS)
_FIELDS = {"type", "frame_indices", "smooth_root_2d", "global_root_heading"}
_POSE_FIELDS = {"local_joints_rot", "root_positions", "joint_names"}


@dataclass(frozen=True)
class Translated:
    """Anchors, and in words what the other format said and they do not."""

    anchors: AnchorSet
    dropped: tuple[str, ...] = ()


def load(path: str | Path) -> Translated:
    """Read a KIMODO constraint file."""
    result: Translated = read_document(Path(path), read)
    return result


def save(anchors: AnchorSet, path: str | Path) -> tuple[str, ...]:
    """Write a KIMODO constraint file; returns what it cannot say."""
    document, dropped = write(anchors)
    write_atomically(json.dumps(document, indent=1) + "\n", Path(path))
    return dropped


def read(document: object) -> Translated:
    """The anchors of a constraint list (JSON text or plain values)."""
    values = decode(document) if isinstance(document, str | bytes) else document
    if not isinstance(values, list) or not all(isinstance(entry, dict) for entry in values):
        raise FormatError("a KIMODO constraint file is a list of objects, each with a 'type' and 'frame_indices'")
    anchors: list[Anchor] = []
    dropped: list[str] = []
    for index, entry in enumerate(values):
        try:
            found, lost = _entry(entry)
        except (AnchorError, FormatError) as error:
            raise type(error)(f"constraint {index}: {error}") from None
        anchors += found
        dropped += [f"constraint {index} ({entry['type']}): {reason}" for reason in lost]
    kept, lost = _without_shadows(anchors)
    return Translated(AnchorSet(tuple(kept)), (*dropped, *lost))


def _without_shadows(anchors: Sequence[Anchor]) -> tuple[list[Anchor], list[str]]:
    """Without the smoothed roots at frames where a pose says where the pelvis itself is."""
    exact = {round(a.at * FPS) for a in anchors if a.joint == "pelvis" and a.position[1] is not None}
    shadows = [a for a in anchors if a.joint == "pelvis" and a.position[1] is None and round(a.at * FPS) in exact]
    lost = [f"smoothed root at frame {round(a.at * FPS)}: a pose sets the pelvis itself there" for a in shadows]
    return [a for a in anchors if not any(a is shadow for shadow in shadows)], lost


def _entry(entry: Mapping[str, Any]) -> tuple[list[Anchor], list[str]]:
    kind = entry.get("type")
    if kind not in _TYPES:
        raise FormatError(f"type {kind!r} is unknown; KIMODO has {', '.join(_TYPES)}")
    frames = entry.get("frame_indices")
    if not isinstance(frames, list) or not all(type(frame) is int and frame >= 0 for frame in frames):
        raise FormatError("'frame_indices' must be a list of whole numbers from 0 on")
    times = [frame / FPS for frame in frames]
    lost = [f"field {name!r} is unknown" for name in sorted(set(entry) - _FIELDS - _POSE_FIELDS)]
    if kind == "root2d":
        path = _numbers(entry, "smooth_root_2d", len(times))
        headings = _headings(entry, len(times))
        anchors = [
            Anchor(at, "pelvis", (float(row[0]), None, float(row[-1])), heading, SWAY)
            for at, row, heading in zip(times, path, headings)
        ]
        return anchors, [*lost, "its smoothed root is taken for the pelvis, with a tolerance of 5 cm"]
    posed, more = _posed(entry, times)
    return posed, lost + more


def _posed(entry: Mapping[str, Any], times: Sequence[float]) -> tuple[list[Anchor], list[str]]:
    """Root positions, and joints as far as their rotations can be posed on this body."""
    root = _numbers(entry, "root_positions", len(times), width=3)
    anchors = [Anchor(at, "pelvis", (float(x), float(y), float(z))) for at, (x, y, z) in zip(times, root)]
    names, lost = _joints(entry)
    rotations = _numbers(entry, "local_joints_rot", len(times))
    if rotations.shape[1:] != (22, 3):
        lost.append(f"{rotations.shape[1]} joints are another skeleton than this one; only the root position is kept")
        return anchors, lost
    joints = _pose(root, rotations)
    for name in names:
        here = joints[:, JOINTS.index(name)]
        anchors += [Anchor(at, name, (float(x), float(y), float(z))) for at, (x, y, z) in zip(times, here)]
    lost.append("positions are those of this package's body; rotations of hands and feet are not kept")
    return anchors, lost


def _joints(entry: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    if entry["type"] != "end-effector":
        return list(_GROUPS[entry["type"]]), []
    names = entry.get("joint_names")
    if not isinstance(names, list) or not names:
        raise FormatError("'end-effector' needs 'joint_names', a list of hands and feet")
    known = {group.replace("-", ""): joints for group, joints in _GROUPS.items()}
    chosen: list[str] = []
    lost: list[str] = []
    for name in names:
        joints = known.get(str(name).lower().replace("-", "").replace("_", "").replace(" ", ""))
        if joints is None:
            lost.append(f"joint name {name!r} is none of {', '.join(_GROUPS)}")
        else:
            chosen += [joint for joint in joints if joint not in chosen]
    return chosen, lost


def _numbers(
    entry: Mapping[str, Any], name: str, count: int, width: int | None = None
) -> Float[np.ndarray, "frames ..."]:
    """A field of numbers with a row for every frame."""
    if name not in entry:
        raise FormatError(f"{name!r} is missing; type {entry['type']!r} needs it")
    try:
        rows = np.asarray(entry[name], dtype=np.float64)
    except (TypeError, ValueError):
        raise FormatError(f"{name!r} must hold rows of numbers, all of one length") from None
    shaped = rows.ndim >= 2 and (width is None or rows.shape[1] == width)
    if len(rows) != count or (count and not shaped):
        raise FormatError(f"{name!r} has shape {list(rows.shape)}; it needs a row for each of {count} frames")
    if not np.isfinite(rows).all():
        raise FormatError(f"{name!r} holds numbers that are not finite")
    return rows


def _headings(entry: Mapping[str, Any], count: int) -> list[float | None]:
    if entry.get("global_root_heading") is None:
        return [None] * count
    pairs = _numbers(entry, "global_root_heading", count, width=2)
    return [math.atan2(sine, cosine) for cosine, sine in pairs]


def _pose(
    root: Float[np.ndarray, "frames 3"], rotations: Float[np.ndarray, "frames 22 3"]
) -> Float[np.ndarray, "frames 22 3"]:
    """Axis-angle rotations on this package's body."""
    angle = np.linalg.norm(rotations, axis=-1, keepdims=True)
    axis = np.divide(rotations, angle, out=np.zeros_like(rotations), where=angle > 0)
    quats = np.concatenate((np.cos(angle / 2), np.sin(angle / 2) * axis), axis=-1)
    joints = forward_kinematics(torch.from_numpy(root).float(), torch.from_numpy(quats).float())
    return np.asarray(joints.numpy(), dtype=np.float64)


def write(anchors: AnchorSet) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The constraint list of a set, and in words what it cannot say.

    KIMODO starts above the origin, so everything is moved there; its first heading is an argument, not in the file.
    """
    placement = starting_placement(anchors)
    dropped: list[str] = []
    if placement.xz != (0.0, 0.0):
        east, north = placement.xz
        dropped.append(f"the start at ({east:g}, {north:g}): all positions are moved so that it lies above the origin")
    if placement.yaw:
        dropped.append(f"the start's heading: pass first_heading_angle={placement.yaw:.6g} to KIMODO")
    if anchors.loop:
        dropped.append("loop: KIMODO has none")
    paths: dict[bool, dict[int, Anchor]] = {False: {}, True: {}}
    for anchor in anchors.anchors:
        x, y, z = anchor.position
        if anchor.joint != "pelvis" or x is None or z is None:
            dropped.append(f"{anchor}: KIMODO sets the root's x and z together, and other joints by full poses only")
            continue
        frame = round(anchor.at * FPS)
        if frame in paths[False] or frame in paths[True]:
            dropped.append(f"{anchor}: frame {frame} at 30 a second is already set by another anchor")
            continue
        if y is not None:
            dropped.append(f"height {y:g} of the {anchor}: KIMODO sets it by full poses only")
        paths[anchor.heading is not None][frame] = anchor.turned(0.0, (-placement.xz[0], -placement.xz[1]))
    entries = [_root2d(path, headed) for headed, path in paths.items() if path]
    return entries, tuple(dropped)


def _root2d(path: Mapping[int, Anchor], headed: bool) -> dict[str, Any]:
    frames = sorted(path)
    entry: dict[str, Any] = {
        "type": "root2d",
        "frame_indices": frames,
        "smooth_root_2d": [[path[frame].position[0], path[frame].position[2]] for frame in frames],
    }
    if headed:
        turns = [path[frame].heading or 0.0 for frame in frames]
        entry["global_root_heading"] = [[math.cos(turn), math.sin(turn)] for turn in turns]
    return entry
