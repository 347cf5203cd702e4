"""What several subcommands read from their options: anchors written on the command line, anchor files, solvers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from anchorroute.anchors import Anchor, AnchorSet
    from anchorroute.motion.motion import Motion
    from anchorroute.routesolver import Adam, GaussNewton, Off

EXAMPLE = "'2.0s left_wrist 0.4,1.2,2.0' (seconds, or frames as 40f; _ leaves a coordinate free)"
_POINT = re.compile(r"^\s*([0-9.eE+-]+)\s*(s|f)?\s+(\S+)\s+(\S.*?)\s*$")


def parse_point(text: str) -> Anchor:
    """An anchor from 'TIME JOINT X,Y,Z'."""
    from anchorroute.anchors import Anchor
    from anchorroute.motion.skeleton import FPS

    match = _POINT.match(text)
    if match is None:
        raise click.UsageError(f"--at {text!r} is no anchor; write {EXAMPLE}")
    time, unit, joint, place = match.groups()
    coordinates = [part.strip() for part in place.split(",")]
    if len(coordinates) != 3:
        raise click.UsageError(f"--at {text!r} has {len(coordinates)} coordinates; an anchor has three: {EXAMPLE}")
    at = _number(time, text) / (FPS if unit == "f" else 1.0)
    x, y, z = (None if part in {"_", "null", ""} else _number(part, text) for part in coordinates)
    return Anchor(at, joint, (x, y, z))


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"--at {whole!r}: {text!r} is no number; write {EXAMPLE}") from None


def anchors_from(path: Path | None, points: tuple[str, ...]) -> AnchorSet:
    """The anchors of a file and of --at options together."""
    from dataclasses import replace

    from anchorroute.anchors import AnchorSet

    written = AnchorSet.load(path) if path is not None else AnchorSet()
    return replace(written, anchors=(*written.anchors, *(parse_point(point) for point in points)))


def solver_from(name: str, steps: int | None) -> GaussNewton | Adam | Off:
    """A solver's settings from its name and, if given, its number of steps."""
    from dataclasses import replace

    from anchorroute.routesolver import Adam, GaussNewton, Off

    if name == "none":
        return Off()
    if name == "adam":
        return Adam() if steps is None else replace(Adam(), steps=steps)
    return GaussNewton() if steps is None else replace(GaussNewton(), iterations=steps)


def read_motion(path: Path) -> Motion:
    """A motion file, or HumanML3D features as .npy."""
    from anchorroute.motion.motion import Motion

    if path.suffix.lower() != ".npy":
        return Motion.load(path)
    import numpy as np

    from anchorroute.errors import FormatError

    try:
        return Motion.from_features(np.load(path, allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise FormatError(f"{path}: no array of features ({error}); give [frames, 263], not normalised") from None


def seconds_range(text: str) -> tuple[float, float | None]:
    """'1.5-4' as (1.5, 4.0); an open end is None."""
    match = re.fullmatch(r"\s*([0-9.]*)s?\s*-\s*([0-9.]*)s?\s*", text)
    if match is None or not any(match.groups()):
        raise click.UsageError(f"--trim {text!r} is no range; write seconds as 1.5-4, 1.5- or -4")
    start, stop = match.groups()
    try:
        return (float(start) if start else 0.0), (float(stop) if stop else None)
    except ValueError:
        raise click.UsageError(f"--trim {text!r} is no range; write seconds as 1.5-4, 1.5- or -4") from None
