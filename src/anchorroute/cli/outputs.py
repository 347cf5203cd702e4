"""Where results go: output paths checked before any work starts, files written, each measured after reading it back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorroute.errors import FormatError, RequestError

if TYPE_CHECKING:
    from anchorroute.motion.motion import Motion
    from anchorroute.report import Report
    from anchorroute.result import Result

ENDINGS = (".bvh", ".glb", ".npz", ".html")


@dataclass(frozen=True)
class Shape:
    """How motion is written: rate, joint names, length unit, on the spot, looped."""

    fps: float | None = None
    names: str = "mixamo"
    units: str = "cm"
    in_place: bool = False
    loop: bool = False

    def applied(self, motion: Motion) -> Motion:
        """The motion as it is to be written."""
        shaped = motion.in_place() if self.in_place else motion
        shaped = replace(shaped, loop=True) if self.loop else shaped
        return shaped if self.fps is None else shaped.resample(self.fps)

    def options(self, path: Path) -> dict[str, Any]:
        """What the format's writer takes."""
        ending = path.suffix.lower()
        named = {"names": self.names} if ending in {".bvh", ".glb"} else {}
        return {**named, "units": self.units} if ending == ".bvh" else named


def checked_paths(paths: Sequence[Path]) -> list[Path]:
    """The paths, if all can be written: known endings, folders that exist and may be written to, no path twice."""
    for path in paths:
        if not path.name.lower().endswith(ENDINGS):
            raise FormatError(f"{path}: the ending says the format and must be one of {', '.join(ENDINGS)}")
        if path.is_dir():
            raise FormatError(f"{path} is a folder; give a file name")
        if not path.parent.is_dir():
            raise FormatError(f"{path}: the folder {path.parent} does not exist; create it first")
        if not os.access(path.parent, os.W_OK):
            raise FormatError(f"{path}: the folder {path.parent} may not be written to; choose another place")
    doubled = {path for path in paths if list(paths).count(path) > 1}
    if doubled:
        raise RequestError(f"{min(doubled)} is given twice; give each output once")
    return list(paths)


def numbered(path: Path, place: int) -> Path:
    """`walk.glb` for the best sample, `walk-2.glb` for the second."""
    return path if place == 0 else path.with_name(f"{path.stem}-{place + 1}{path.suffix}")


def write(result: Result, paths: Sequence[Path], shape: Shape) -> list[tuple[Path, Report]]:
    """Write every sample to every path; the reports are measured on the files."""
    from anchorroute.report import measure

    written = []
    for place, sample in enumerate(result.samples):
        motion = shape.applied(sample.motion)
        anchors = result.anchors if not shape.in_place else None
        for path in paths:
            target = numbered(path, place)
            motion.save(target, **shape.options(target))
            against = anchors if anchors is not None else _anchors_of(motion)
            written.append((target, measure(target, against).noting(sample.report)))
    return written


def _anchors_of(motion: Motion) -> Any:
    from anchorroute.anchors import AnchorSet

    return AnchorSet.from_json({"version": 1, "anchors": [dict(anchor) for anchor in motion.anchors]})
