"""`anchorroute data check`: everything that can be wrong with a folder in HumanML3D's layout, found in one pass.

An error makes scores or training wrong; a warning is worth a look. Nothing is changed.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.data.captions import Caption, read_captions
from anchorroute.data.humanml3d import read_features, read_statistics
from anchorroute.data.layout import (
    BUILD,
    FEATURES,
    INDEX,
    JOINTS,
    MAX_ROWS,
    MEAN,
    MIN_ROWS,
    SPLITS,
    STD,
    TEXTS,
    Entry,
    fingerprint,
    read_index,
    read_split,
)
from anchorroute.data.statistics import Moments, mean_std
from anchorroute.errors import DataError
from anchorroute.motion.features import SLICES, to_joints
from anchorroute.motion.skeleton import BONE_LENGTHS, FPS, PARENTS

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    severity: str
    """Either "error" or "warning"."""
    rule: str
    """What is wrong, the same words for the same fault."""
    where: str
    detail: str = ""


@dataclass
class CheckReport:
    """All findings, and what was looked at."""

    folder: Path
    clips: Counter[str] = field(default_factory=Counter)
    """By split."""
    captions: int = 0
    fingerprint: str = ""
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """The findings that make scores or training wrong."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def error(self, rule: str, where: object, detail: object = "") -> None:
        """Note an error."""
        self.findings.append(Finding("error", rule, str(where), str(detail)))

    def warn(self, rule: str, where: object, detail: object = "") -> None:
        """Note a warning."""
        self.findings.append(Finding("warning", rule, str(where), str(detail)))


def check(folder: Path, *, progress: Progress | None = None) -> CheckReport:
    """Look at every file of a data set."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give one that holds {FEATURES}/, {TEXTS}/ and train.txt")
    report = CheckReport(folder)
    for name in (FEATURES, TEXTS):
        if not (folder / name).is_dir():
            report.error("a folder is missing", folder / name)
    splits = _splits(report)
    index = _index(report)
    _shared_frames(report, splits, index)
    moments: list[Moments] = []
    listed = [(ident, split) for split, ids in splits.items() for ident in ids]
    for number, (ident, split) in enumerate(listed, 1):
        rows = _clip(report, ident)
        if rows is not None and split == "train":
            moments.append(Moments.of(rows))
        if progress:
            progress(number, len(listed))
    _statistics(report, moments)
    _strays(report, {ident for ident, _ in listed}, index)
    _fingerprint(report)
    return report


def _splits(report: CheckReport) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {}
    seen: dict[str, str] = {}
    for split in SPLITS:
        try:
            ids = read_split(report.folder, split)
        except DataError as error:
            report.error("a split cannot be read", f"{split}.txt", error)
            continue
        report.clips[split] = len(ids)
        splits[split] = list(dict.fromkeys(ids))
        for ident, count in Counter(ids).items():
            if count > 1:
                report.error("a clip is listed twice", ident, f"{count} times in {split}.txt")
        own = set(ids)
        for ident in splits[split]:
            base = ident.removeprefix("M")
            if seen.setdefault(base, split) != split:
                report.error("a clip is in two splits", ident, f"{seen[base]}.txt and {split}.txt")
            if ident != base and base not in own:
                report.warn("a mirrored clip without its original", ident)
    return splits


def _index(report: CheckReport) -> dict[str, Entry]:
    try:
        return read_index(report.folder / INDEX)
    except DataError as error:
        report.error("the index cannot be read", INDEX, error)
        return {}


def _shared_frames(report: CheckReport, splits: dict[str, list[str]], index: dict[str, Entry]) -> None:
    """Train clips that show frames of a held-out clip, as far as the index tells."""
    held: dict[tuple[str, str], list[Entry]] = {}
    for split in ("val", "test"):
        for ident in splits.get(split, ()):
            if ident in index:
                held.setdefault((index[ident].source, index[ident].take), []).append(index[ident])
    for ident in splits.get("train", ()):
        own = index.get(ident)
        for other in held.get((own.source, own.take), ()) if own else ():
            if own and own.start < other.end and other.start < own.end:
                report.error("a train clip shares frames with a held-out clip", ident, f"{other.split} clip {other.id}")


def _clip(report: CheckReport, ident: str) -> Float[np.ndarray, "frames 263"] | None:
    try:
        captions = read_captions(report.folder / TEXTS / f"{ident}.txt")
    except DataError as error:
        report.error("captions cannot be read", ident, error)
        captions = ()
    report.captions += len(captions)
    try:
        rows = read_features(report.folder / FEATURES / f"{ident}.npy")
    except DataError as error:
        report.error("features cannot be used", ident, error)
        return None
    if not MIN_ROWS <= len(rows) <= MAX_ROWS:
        report.warn(f"a clip outside of {MIN_ROWS} to {MAX_ROWS} rows, which readers skip", ident, f"{len(rows)} rows")
    if not captions:
        report.warn("a clip without captions", ident)
    _tags(report, ident, len(rows), captions)
    _body(report, ident, torch.from_numpy(rows))
    return rows


def _tags(report: CheckReport, ident: str, rows: int, captions: tuple[Caption, ...]) -> None:
    for caption in captions:
        if caption.whole:
            continue
        part = min(int(caption.end * FPS), rows) - int(caption.start * FPS)
        tags = f"{caption.start} to {caption.end} s of {rows / FPS:.2f} s"
        if caption.end > (rows + 1) / FPS + 0.5:
            report.warn("a caption's time tags lie beyond the clip", ident, tags)
        elif part < MIN_ROWS:
            report.warn("a caption's part of the clip is too short, readers skip it", ident, tags)


def _body(report: CheckReport, ident: str, rows: Float[Tensor, "frames 263"]) -> None:
    joints = to_joints(rows.double())
    legs = [joints[:, j] - joints[:, PARENTS[j]] for j in (4, 5, 7, 8)]
    found = float(torch.stack([leg.norm(dim=-1).median() for leg in legs]).sum())
    expected = sum(BONE_LENGTHS[j] for j in (4, 5, 7, 8))
    if not 0.8 < found / expected < 1.25:
        detail = f"thighs and shins sum to {found:.2f}, {expected:.2f} m expected; normalised, or in another unit?"
        report.error("features are not metres of this body", ident, detail)
    path = report.folder / JOINTS / f"{ident}.npy"
    if not path.exists():
        return
    try:
        stored = torch.from_numpy(np.load(path, allow_pickle=False)).double()
    except (OSError, ValueError, EOFError) as error:
        report.error("joints cannot be read", ident, error)
        return
    if stored.shape != joints.shape:
        report.error("joints and features disagree", ident, f"shapes {tuple(stored.shape)} and {tuple(joints.shape)}")
    elif (off := float((stored - joints).norm(dim=-1).max())) > 1e-3 or not np.isfinite(off):
        report.error("joints and features disagree", ident, f"by {1000 * off:.1f} mm")


def _statistics(report: CheckReport, moments: list[Moments]) -> None:
    stored: list[Tensor] = []
    for name in (MEAN, STD):
        try:
            stored.append(read_statistics(report.folder / name))
        except DataError as error:
            report.error("statistics cannot be read", name, error)
    if len(stored) < 2:
        return
    mean, std = (values.numpy() for values in stored)
    if not (std > 0).all():
        report.error("a deviation is not above zero", STD, f"number {int(np.argmin(std > 0))}")
        return
    for name, part in SLICES._asdict().items():
        if np.ptp(std[part]) > 1e-3 * std[part].mean():
            report.warn("deviations differ within a group; HumanML3D has one for each group", STD, name)
    if moments:
        own_mean, own_std = mean_std(Moments.merged(moments))
        shift = float(np.abs((mean - own_mean) / own_std).max())
        ratio = float(np.abs(std / own_std - 1.0).max())
        if shift > 0.02 or ratio > 0.02:
            detail = f"mean off by up to {shift:.3f} deviations, deviation by up to {100 * ratio:.1f} %"
            report.warn("statistics are not those of the train clips", f"{MEAN}, {STD}", detail)


def _strays(report: CheckReport, listed: set[str], index: dict[str, Entry]) -> None:
    for folder, ending in ((FEATURES, ".npy"), (TEXTS, ".txt")):
        for path in sorted((report.folder / folder).glob(f"*{ending}")):
            if path.stem not in listed:
                report.warn("a file that no split lists", f"{folder}/{path.name}")
    for ident in sorted(set(index) ^ listed if index else ()):
        where = "in the index only" if ident in index else "in a split only"
        report.warn("index and splits disagree", ident, where)


def _fingerprint(report: CheckReport) -> None:
    report.fingerprint = fingerprint(report.folder)
    path = report.folder / BUILD
    if path.exists() and (noted := json.loads(path.read_text())["fingerprint"]) != report.fingerprint:
        detail = f"build.json notes {noted[:12]}, the files have {report.fingerprint[:12]}"
        report.error("files were changed after the build", BUILD, detail)
