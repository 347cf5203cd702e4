"""Motion as bytes, both ways, without a path of a client's ever being opened.

The formats write files, and check them by reading them back; so the server has one folder of its own, named after its
process. Files in it live for the moment of one answer. A server that was killed leaves its folder behind; the next
one to start removes it.
"""

import os
import re
import shutil
import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from anchorroute.anchors import AnchorSet
from anchorroute.motion import bvh
from anchorroute.motion.motion import Motion
from anchorroute.report import Report, measure
from anchorroute.result import Sample

Format = Literal["glb", "bvh", "npz", "html"]
MEDIA: dict[str, str] = {
    "glb": "model/gltf-binary", "bvh": "text/plain; charset=utf-8", "npz": "application/octet-stream",
    "html": "text/html; charset=utf-8",
}  # fmt: skip

_PREFIX = "anchorroute-serve-"


@dataclass(frozen=True)
class Shape:
    """How a motion is written; the command line's options of the same names."""

    format: Format = "glb"
    fps: float | None = None
    names: Literal["mixamo", "smpl"] = "mixamo"
    units: Literal["cm", "m"] = "cm"
    in_place: bool = False


@dataclass(frozen=True)
class Written:
    """A file's content, and the report measured on the file."""

    payload: bytes
    report: Report

    def without_payload(self) -> "Written":
        """The report alone: what is kept of a job must be small, and a file can be written again."""
        return replace(self, payload=b"")


class Workspace:
    """The folder that files pass through."""

    def __init__(self, parent: Path | None = None) -> None:
        above = Path(tempfile.gettempdir()) if parent is None else parent
        _sweep(above)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=above))

    def write(self, sample: Sample, anchors: AnchorSet, shape: Shape) -> Written:
        """A sample as a file's bytes, measured after reading it back."""
        motion = sample.motion.in_place() if shape.in_place else sample.motion
        motion = motion if shape.fps is None else motion.resample(shape.fps)
        path = self.folder / f"{uuid.uuid4().hex}.{shape.format}"
        options: dict[str, str] = {"names": shape.names} if shape.format in {"glb", "bvh"} else {}
        if shape.format == "bvh":
            options["units"] = shape.units
        try:
            motion.save(path, **options)
            report = measure(path, None if shape.in_place else anchors)
            return Written(path.read_bytes(), _unnamed(report.noting(sample.report), shape))
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def read_bvh(text: str) -> Motion:
    """The motion of a BVH document. Only BVH is read from strangers: it is text whose size bounds what it makes."""
    return bvh.load(text.encode("utf-8"))


def _unnamed(report: Report, shape: Shape) -> Report:
    """The report without this machine's path."""
    return replace(report, source=f"motion.{shape.format}")


def _sweep(folder: Path) -> None:
    """Remove what servers left that run no more."""
    for left in folder.glob(f"{_PREFIX}*"):
        named = re.fullmatch(rf"{_PREFIX}(\d+)-.*", left.name)
        if named is not None and not _runs(int(named.group(1))):
            shutil.rmtree(left, ignore_errors=True)


def _runs(process: int) -> bool:
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
