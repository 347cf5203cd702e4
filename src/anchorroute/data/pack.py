"""A whole data set in one file of some megabytes, for carrying to a training machine.

What is kept of a clip is its joints, rounded to a grid and xz-compressed; features are computed again when the file is
read. A mirrored clip that is the mirror image of a stored one costs nothing but its captions. The joints come from the
features alone (whose last velocities give the one frame that `to_joints` lacks), so any folder in HumanML3D's layout
can be packed.

The file: 8 bytes of magic, the header's length (8 bytes, little endian), the header (xz-compressed JSON: clips,
captions, splits, statistics), then one xz stream for each of the 22 joints. A joint is stored relative to its parent,
as the second difference in time of grid units: that is 4.5 bits a coordinate where the positions need 12.
"""

import json
import lzma
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.data.captions import Caption
from anchorroute.data.files import write_atomically
from anchorroute.data.humanml3d import (
    Clip,
    Dataset,
    Quarantined,
    Selection,
    clips_of,
    read_folder_clip,
    read_statistics,
    stored_fingerprint,
)
from anchorroute.data.layout import (
    MEAN,
    SPLITS,
    STD,
    Entry,
    digest,
    no_clip_in_two_splits,
    plain_entry,
    read_index,
    read_split,
)
from anchorroute.data.processing import mirror_joints, mirror_rounded
from anchorroute.errors import DataError
from anchorroute.motion.canonical import canonicalise
from anchorroute.motion.features import SLICES, from_joints, to_joints, to_root
from anchorroute.motion.rotation import quat_about_y, quat_apply
from anchorroute.motion.skeleton import PARENTS

_MAGIC = b"ARPACK\x00\x01"
_GRID = 0.0005
"""Metres between grid points: a stored joint is at most 0.44 mm off, one rebuilt by mirroring hardly more."""
_BATCH = 64

Progress = Callable[[int, int], None]
Grid = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class Packed:
    """What packing came to."""

    file: Path
    size: int
    """Bytes."""
    clips: int
    rebuilt: int
    """Mirrored clips that are not stored but made from their originals."""
    left_out: tuple[Quarantined, ...]
    error: float
    """The largest distance of a joint from where the folder has it, metres, rebuilt clips included."""


@dataclass
class _Item:
    """A clip on its way into the file."""

    entry: Entry
    captions: tuple[Caption, ...]
    joints: Float[Tensor, "frames 22 3"]
    mirror: tuple[float, float, float, float] | None = None
    """Yaw, x, z and floor that make the original's mirror image canonical."""


def pack(folder: Path, file: Path, *, grid: float = _GRID, progress: Progress | None = None) -> Packed:
    """Write the data set in `folder` to `file`; clips that cannot be read are left out and named in the result."""
    no_clip_in_two_splits(folder)
    read_split(folder, "train")  # a folder without splits is no data set, and this says so
    items, aside = _read_items(folder)
    if not items:
        raise DataError(f"{folder}: no clip can be read, so there is nothing to pack; `data check` says why")
    grids = {ident: _to_grid(item.joints, grid) for ident, item in items.items()}
    error = max(_distance(item.joints, _from_grid(grids[ident], grid)) for ident, item in items.items())
    for done, item in enumerate(items.values()):
        original = items.get(item.entry.id.removeprefix("M"))
        if item.entry.mirrored and original is not None and original is not item:
            error = max(error, _try_mirror(item, original, grids[original.entry.id], grid))
        if progress:
            progress(done + 1, len(items))
    stored = [ident for ident, item in items.items() if item.mirror is None]
    header = _header(folder, items, stored, grid)
    content = _assemble(header, _encode([grids[ident] for ident in stored]))
    write_atomically(file, content)
    return Packed(file, len(content), len(items), len(items) - len(stored), tuple(aside), error)


def _read_items(folder: Path) -> tuple[dict[str, _Item], list[Quarantined]]:
    index = read_index(folder / "index.jsonl")
    items: dict[str, _Item] = {}
    aside: list[Quarantined] = []
    for split in SPLITS:
        if not (folder / f"{split}.txt").exists():
            continue
        for ident in read_split(folder, split):
            entry = index.get(ident) or plain_entry(ident, split)
            try:
                features, captions = read_folder_clip(folder, ident)
            except DataError as error:
                aside.append(Quarantined(ident, str(error)))
                continue
            items[ident] = _Item(replace(entry, rows=len(features)), captions, all_joints(features))
    return items, aside


def all_joints(features: Float[Tensor, "rows 263"]) -> Float[Tensor, "rows+1 22 3"]:
    """The joints that the features were made from, the last frame too: where the last velocities lead."""
    wide = features.double()
    joints = to_joints(wide)
    yaw, _ = to_root(wide)
    step = wide[-1, SLICES.velocities].unflatten(-1, (22, 3))
    last = joints[-1] + quat_apply(quat_about_y(-yaw[-1]), step)
    return torch.cat((joints, last[None]))


def _try_mirror(item: _Item, original: _Item, grids: Grid, grid: float) -> float:
    """Mark the item as its original's mirror image if it is one; the error that this brings."""
    if item.joints.shape != original.joints.shape:
        return 0.0
    _, placement, floor = canonicalise(mirror_joints(original.joints))
    mirror = (placement.yaw, *placement.xz, floor)
    error = _distance(item.joints, _mirrored(_from_grid(grids, grid), torch.tensor(mirror, dtype=torch.float64)))
    if error > grid:
        return 0.0
    item.mirror = mirror
    return error


def _mirrored(
    joints: Float[Tensor, "*batch frames 22 3"], mirror: Float[Tensor, "*batch 4"]
) -> Float[Tensor, "*batch frames 22 3"]:
    """Mirror images, turned and moved by (yaw, x, z, floor) to where they are canonical."""
    yaw, x, z, floor = mirror.unbind(-1)
    offset = torch.stack((x, floor, z), -1)
    return quat_apply(quat_about_y(-yaw)[..., None, None, :], mirror_rounded(joints) - offset[..., None, None, :])


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm(dim=-1).max())


def _to_grid(joints: Float[Tensor, "frames 22 3"], grid: float) -> Grid:
    rounded: Grid = np.rint(joints.numpy() / grid).astype(np.int32)
    return rounded


def _from_grid(points: Grid, grid: float) -> Float[Tensor, "frames 22 3"]:
    return torch.from_numpy(points.astype(np.float64) * grid)


def _encode(clips: Sequence[Grid]) -> list[bytes]:
    """One xz stream for each joint: zigzag second differences, low bytes of all, then high bytes of all."""
    parts = []
    for points in clips:
        relative = points.copy()
        relative[:, 1:] -= points[:, list(PARENTS[1:])]
        for _ in range(2):
            relative = np.diff(relative, axis=0, prepend=np.zeros_like(relative[:1]))
        parts.append(relative)
    series = np.concatenate(parts).transpose(1, 2, 0)
    folded = (series << 1) ^ (series >> 31)
    if folded.max() > 0xFFFF:
        raise DataError(f"a joint moves by {folded.max()} grid units within two frames; such a clip cannot be packed")
    planes = [(joint & 0xFF).astype(np.uint8).tobytes() + (joint >> 8).astype(np.uint8).tobytes() for joint in folded]
    # lzma works outside the interpreter's lock, so threads are enough.
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda plane: lzma.compress(plane, check=lzma.CHECK_CRC32, preset=6), planes))


def _decode(streams: Sequence[bytes], lengths: Sequence[int]) -> list[Grid]:
    total = sum(lengths)
    with ThreadPoolExecutor() as pool:
        planes = list(pool.map(lzma.decompress, streams))
    series = np.empty((total, 22, 3), dtype=np.int32)
    for joint, plane in enumerate(planes):
        low, high = np.frombuffer(plane, dtype=np.uint8).reshape(2, 3, total).astype(np.int32)
        folded = low | (high << 8)
        series[:, joint] = ((folded >> 1) ^ -(folded & 1)).T
    clips: list[Grid] = []
    start = 0
    for length in lengths:
        points = series[start : start + length].cumsum(0, dtype=np.int32).cumsum(0, dtype=np.int32)
        for joint in range(1, 22):
            points[:, joint] += points[:, PARENTS[joint]]
        clips.append(points)
        start += length
    return clips


def _header(folder: Path, items: dict[str, _Item], stored: Sequence[str], grid: float) -> dict[str, Any]:
    mean, std = (read_statistics(folder / name) for name in (MEAN, STD))
    return {
        "grid": grid,
        "origin": stored_fingerprint(folder),
        "mean": mean.tolist(),
        "std": std.tolist(),
        "stored": list(stored),
        "clips": [
            {
                "entry": asdict(item.entry),
                "mirror": item.mirror,
                "captions": [[c.text, list(c.tokens), c.start, c.end] for c in item.captions],
            }
            for item in items.values()
        ],
    }


def _assemble(header: dict[str, Any], streams: Sequence[bytes]) -> bytes:
    header = {**header, "streams": [len(stream) for stream in streams]}
    packed = lzma.compress(json.dumps(header, ensure_ascii=False).encode(), preset=6)
    return b"".join((_MAGIC, len(packed).to_bytes(8, "little"), packed, *streams))


def _take_apart(path: Path) -> tuple[dict[str, Any], list[bytes], bytes]:
    content = path.read_bytes()
    if content[: len(_MAGIC)] != _MAGIC:
        raise DataError(f"{path}: not a packed data set; write one with `anchorroute data pack DIR FILE`")
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    try:
        header = json.loads(lzma.decompress(content[start:end]))
    except (lzma.LZMAError, EOFError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: the header is damaged or cut off ({error}); copy the file again") from None
    streams: list[bytes] = []
    for size in header["streams"]:
        streams.append(content[end : end + size])
        end += size
    if len(content) != end:
        raise DataError(f"{path}: {len(content)} bytes where the header promises {end}; copy the file again")
    return header, streams, content


def read_pack(path: Path, split: str, selection: Selection) -> Dataset:
    """One split of a packed data set; the joints of all splits are decoded, features only for the clips asked for."""
    header, streams, content = _take_apart(path)
    clips = [{**clip, "entry": Entry(**clip["entry"])} for clip in header["clips"]]
    wanted = [clip for clip in clips if _in_split(clip["entry"].split, split) and selection.wants(clip["entry"])]
    if not wanted and not any(_in_split(clip["entry"].split, split) for clip in clips):
        have = sorted({clip["entry"].split for clip in clips})
        raise DataError(f"{path}: no split {split!r}; it has {', '.join(have)}")
    rows = {clip["entry"].id: clip["entry"].rows for clip in clips}
    try:
        points = dict(zip(header["stored"], _decode(streams, [rows[ident] + 1 for ident in header["stored"]])))
    except lzma.LZMAError as error:
        raise DataError(f"{path}: the joints are damaged ({error}); copy the file again") from None
    features = _features(wanted, points, header["grid"])
    result: list[Clip] = []
    aside: list[Quarantined] = []
    for clip in wanted:
        captions = [Caption(text, tuple(tokens), start, end) for text, tokens, start, end in clip["captions"]]
        more, problems = clips_of(clip["entry"], features[clip["entry"].id], captions)
        result += [one for one in more if one.captions or not selection.captioned]
        aside += problems
    mean, std = (torch.tensor(header[name], dtype=torch.float32) for name in ("mean", "std"))
    return Dataset(result, split=split, mean=mean, std=std, quarantine=aside, fingerprint=lambda: digest(content))


def pack_ids(path: Path, split: str) -> list[str]:
    """The clip ids of a split of a packed data set."""
    header, _, _ = _take_apart(path)
    return [clip["entry"]["id"] for clip in header["clips"] if _in_split(clip["entry"]["split"], split)]


def _in_split(of_clip: str, asked: str) -> bool:
    return asked in (of_clip, "all") or (asked == "train_val" and of_clip in ("train", "val"))


def _features(wanted: Iterable[dict[str, Any]], points: dict[str, Grid], grid: float) -> dict[str, Tensor]:
    """Features of all clips, those of one length together: on so little data the time goes into starting operations."""
    by_length: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for clip in wanted:
        by_length[clip["entry"].rows].append(clip)
    batches = [clips[i : i + _BATCH] for clips in by_length.values() for i in range(0, len(clips), _BATCH)]

    def computed(batch: list[dict[str, Any]]) -> dict[str, Tensor]:
        joints = torch.stack([_from_grid(points[_stored_id(clip)], grid) for clip in batch])
        images = [i for i, clip in enumerate(batch) if clip["mirror"] is not None]
        if images:
            mirrors = torch.tensor([batch[i]["mirror"] for i in images], dtype=torch.float64)
            joints[images] = _mirrored(joints[images], mirrors)
        rows = from_joints(joints).float()
        return {clip["entry"].id: own.clone() for clip, own in zip(batch, rows, strict=True)}

    with ThreadPoolExecutor() as pool:  # torch works outside of the interpreter's lock
        return {ident: rows for part in pool.map(computed, batches) for ident, rows in part.items()}


def _stored_id(clip: dict[str, Any]) -> str:
    ident = str(clip["entry"].id)
    return ident if clip["mirror"] is None else ident.removeprefix("M")
