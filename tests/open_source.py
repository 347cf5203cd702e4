"""Tiny sources for `data build`: joints in an npz, or BVH files with CMU's joint names, and the two tables."""

import json
import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np

# name, parent, offset: the joints of CMU's skeleton that the mapping reads, and those between them.
_SKELETON: tuple[tuple[str, str, tuple[float, float, float]], ...] = (
    ("Hips", "", (0, 0, 0)),
    ("LeftUpLeg", "Hips", (1.6, -1.8, 0.6)),
    ("LeftLeg", "LeftUpLeg", (2.6, -7.1, 0)),
    ("LeftFoot", "LeftLeg", (2.5, -6.8, 0)),
    ("LeftToeBase", "LeftFoot", (0.2, -0.5, 2.1)),
    ("RightUpLeg", "Hips", (-1.6, -1.8, 0.6)),
    ("RightLeg", "RightUpLeg", (-2.6, -7.1, 0)),
    ("RightFoot", "RightLeg", (-2.5, -6.8, 0)),
    ("RightToeBase", "RightFoot", (-0.2, -0.6, 2.1)),
    ("LowerBack", "Hips", (0, 0, 0)),
    ("Spine", "LowerBack", (0, 2.0, -0.1)),
    ("Spine1", "Spine", (0, 2.0, 0)),
    ("Neck", "Spine1", (0, 0, 0)),
    ("Neck1", "Neck", (0, 1.5, 0.1)),
    ("Head", "Neck1", (0, 1.5, -0.1)),
    ("LeftArm", "Spine1", (3.5, 0.9, -0.2)),
    ("LeftForeArm", "LeftArm", (4.9, 0, 0)),
    ("LeftHand", "LeftForeArm", (3.4, 0, 0)),
    ("RightArm", "Spine1", (-3.5, 0.8, -0.3)),
    ("RightForeArm", "RightArm", (-5.0, 0, 0)),
    ("RightHand", "RightForeArm", (-3.4, 0, 0)),
)


def segment(ident: str, take: str, start: int, end: int, use: str = "train", *captions: str, **more: Any) -> dict:
    return {"id": ident, "take": take, "start": start, "end": end, "use": use, "captions": list(captions), **more}


def take(name: str, **more: Any) -> dict:
    return {"take": name, "fps": 120, "fps_source": "inferred", "subject": "walk", "description": "walk left", **more}


def tables(folder: Path, takes: list[dict], segments: list[dict]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("takes", takes), ("segments", segments)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def npz_source(folder: Path, motions: dict[str, np.ndarray], segments: list[dict], **about: dict) -> Path:
    tables(folder, [take(name, **about.get(name, {})) for name in motions], segments)
    np.savez(folder / "joints.npz", **{name: np.rint(1200 * j).astype(np.int16) for name, j in motions.items()})
    return folder


def small_source(folder: Path) -> Path:
    """Two takes with a train, a val and a test clip, one clip too short, and stretches that no segment covers."""
    segments = [
        segment("000001", "01_01", 0, 80, "train", "a person walks left.", "someone turns clockwise"),
        segment("000002", "01_01", 80, 140, "val", "a man walks"),
        segment("000003", "01_02", 10, 70, "test", "a person strolls", strict=False),
        segment("000004", "01_02", 70, 100, "train", "too short"),
        segment("000005", "01_02", 60, 120, "none", "overlaps the test clip"),
        segment("000006", "01_02", 120, 180, "train"),
    ]
    tables(folder, [take("01_01"), take("01_02")], segments)
    (folder / "01_01.bvh").write_text(cmu_bvh(330, 20, seed=1))
    (folder / "01_02.bvh.xz").write_bytes(lzma.compress(cmu_bvh(260, 20, seed=2).encode()))
    return folder


def cmu_bvh(frames: int, fps: float, *, seed: int = 0) -> str:
    """A BVH file with CMU's names whose joints swing smoothly."""
    phases = np.random.default_rng(seed).uniform(0, 2 * math.pi, (len(_SKELETON), 3))
    children: dict[str, list[int]] = {}
    for i, (_, parent, _) in enumerate(_SKELETON):
        children.setdefault(parent, []).append(i)
    order: list[int] = []

    def node(i: int) -> str:
        name, _, offset = _SKELETON[i]
        order.append(i)
        channels = "6 Xposition Yposition Zposition" if i == 0 else "3"
        inside = "".join(node(child) for child in children.get(name, [])) or "End Site\n{\nOFFSET 0 1 0\n}\n"
        x, y, z = offset
        word = "JOINT" if i else "ROOT"
        return f"{word} {name}\n{{\nOFFSET {x} {y} {z}\nCHANNELS {channels} Zrotation Yrotation Xrotation\n{inside}}}\n"

    hierarchy = node(0)
    t = np.arange(frames) / fps
    columns = [3 * np.sin(t), 17 + 0 * t, 10 * t]
    for i in order:
        columns += [20 * np.sin(2 * t + phase) for phase in phases[i]]
    rows = "\n".join(" ".join(f"{value:.4f}" for value in row) for row in np.stack(columns, 1))
    return f"HIERARCHY\n{hierarchy}MOTION\nFrames: {frames}\nFrame Time: {1 / fps:.7f}\n{rows}\n"
