"""The open data set's source: takes (motion), segments (which frames are a clip, and its captions), and the plan.

A source folder holds `takes.jsonl`, `segments.jsonl` and the motion: BVH files (`.bvh` or `.bvh.xz`, anywhere below
it) at 20 fps, or at the original 60 or 120 fps, which all claim 120: `takes.jsonl` knows the true rate. A folder with
`joints.npz` instead holds joints (int16, 1/1200 m) that need no retargeting. `extra/NAME/` are sources of the same
kind that only ever give training clips.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from anchorroute.errors import DataError
from anchorroute.motion.bvh_raw import read_raw
from anchorroute.motion.retarget import cmu_to_22
from anchorroute.motion.skeleton import FPS

KNOWN_BREAKS: dict[tuple[str, str], tuple[int, ...]] = {
    ("cmu-long", "17_05"): (416, 417, 418),
    ("cmu-long", "132_56"): (880, 881, 882),
}
"""Feet that jump for one frame, as the source's notes say, too gently for `processing.breaks` to be sure."""

_NPZ_UNITS = 1200.0
_BVH_SUFFIXES = (".bvh", ".bvh.xz")


@dataclass(frozen=True)
class Segment:
    """Frames of a take that somebody cut out and perhaps described."""

    id: str
    take: str
    start: int
    end: int
    use: str
    strict: bool
    captions: tuple[str, ...]


@dataclass(frozen=True)
class Take:
    """One recording: where its motion lies, its true rate, what its index says of it, and its segments."""

    name: str
    source: str
    path: Path | None
    fps: float
    fps_source: str
    subject: str
    description: str
    segments: tuple[Segment, ...]


def read_source(folder: Path, *, extra: Sequence[str] = ()) -> list[Take]:
    """All takes below `folder`, ordered by source and name; `extra` names folders in `extra/` to take in as well."""
    takes = _read_one(folder, "cmu")
    for name in extra:
        if not (folder / "extra" / name).is_dir():
            have = sorted(p.name for p in (folder / "extra").glob("*") if p.is_dir())
            raise DataError(f"{folder}: no extra source {name!r}; it has {', '.join(have) or 'none'}")
        takes += _read_one(folder / "extra" / name, name)
    return takes


def _read_one(folder: Path, source: str) -> list[Take]:
    segments: dict[str, list[Segment]] = defaultdict(list)
    for where, row in _rows(folder / "segments.jsonl"):
        segment = _segment(row, where)
        segments[segment.take].append(segment)
    joints = folder / "joints.npz"
    files = {} if joints.exists() else _motion_files(folder)
    takes: dict[str, Take] = {}
    for where, row in _rows(folder / "takes.jsonl"):
        name, fps = _field(row, "take", str, where), float(_field(row, "fps", (int, float), where))
        if name in takes:
            raise DataError(f"{where}: take {name!r} stands in this file twice; remove one line")
        own = tuple(sorted(segments.pop(name, []), key=lambda s: (s.start, s.end, s.id)))
        path = joints if joints.exists() else files.get(name)
        fps_source, subject, description = (str(row.get(k, "")) for k in ("fps_source", "subject", "description"))
        takes[name] = Take(name, source, path, fps, fps_source, subject, description, own)
    if segments:
        lost = sorted(segments)
        raise DataError(f"{folder}/segments.jsonl: takes {', '.join(lost[:5])} are not in takes.jsonl; add their lines")
    return [takes[name] for name in sorted(takes)]


def _motion_files(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.bvh*")):
        below = path.relative_to(folder)
        if below.parts[0] == "extra" or not path.name.endswith(_BVH_SUFFIXES):
            continue
        found.setdefault(path.name.split(".bvh")[0], path)
    return found


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise DataError(f"{path}: missing; a source folder holds takes.jsonl, segments.jsonl and BVH files") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{number}: not UTF-8 (byte {error.start} of the line); save it as UTF-8") from None
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: not JSON ({error.msg} at column {error.colno})") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: a line must be a JSON object, this one is {type(row).__name__}")
        yield f"{path}:{number}", row


def _field(row: dict[str, Any], key: str, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(row.get(key), kind):
        names = kind.__name__ if isinstance(kind, type) else "number"
        raise DataError(f"{where}: {key!r} must be given and be a {names}, not {row.get(key)!r}")
    return row[key]


def _segment(row: dict[str, Any], where: str) -> Segment:
    use = _field(row, "use", str, where)
    if use not in ("train", "val", "test", "none"):
        raise DataError(f"{where}: 'use' is {use!r}; it must be train, val, test or none")
    segment = Segment(
        id=_field(row, "id", str, where),
        take=_field(row, "take", str, where),
        start=_field(row, "start", int, where),
        end=_field(row, "end", int, where),
        use=use,
        strict=bool(row.get("strict", False)),
        captions=tuple(_field(row, "captions", list, where)),
    )
    if not 0 <= segment.start < segment.end:
        raise DataError(f"{where}: frames {segment.start} to {segment.end} are no stretch; 0 <= start < end is needed")
    return segment


def read_joints(take: Take) -> Float[np.ndarray, "frames 22 3"]:
    """The take as HumanML3D's 22 joints at 20 fps, metres, not on the floor."""
    if take.path is None:
        raise DataError(f"take {take.name}: no .bvh or .bvh.xz file of that name below the source folder")
    if take.path.suffix == ".npz":
        with np.load(take.path) as stored:
            if take.name not in stored:
                raise DataError(f"{take.path}: holds no take {take.name!r}")
            return stored[take.name].astype(np.float64) / _NPZ_UNITS
    raw = read_raw(take.path)
    if abs(raw.fps - FPS) > 0.01:
        # The originals claim 120 fps whatever was recorded, and begin with one frame of a T-pose.
        every = take.fps / FPS
        if every != int(every):
            raise DataError(f"take {take.name}: recorded at {take.fps:g} fps; only multiples of {FPS:g} can be thinned")
        raw = replace(raw, values=raw.values[1 :: int(every)])
    return cmu_to_22(raw).astype(np.float64)
