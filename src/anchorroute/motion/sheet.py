"""Contact sheets: motions as rows of stick figures in time, each row with its path seen from above.

The quickest way to look at many motions: one PNG, no viewer. Figures are drawn where they stand on a fixed camera's
view but centred on the pelvis, so the floor's metre marks move past; left is blue, right is orange, feet that rest
have a green dot, anchors are crosses on the figure nearest in time and in the path.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from anchorroute.errors import FormatError
from anchorroute.motion.files import write_checked
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import CONTACT_JOINTS, FPS, JOINTS, PARENTS

Array = np.ndarray[Any, np.dtype[Any]]
Colour = tuple[int, int, int]

_PAPER, _INK, _FAINT, _FLOOR = (250, 250, 248), (50, 54, 60), (150, 154, 160), (205, 208, 212)
_LEFT, _RIGHT, _MIDDLE = (44, 110, 200), (224, 120, 32), (84, 90, 98)
_REST, _ANCHOR = (28, 150, 90), (208, 32, 64)
_OVERSAMPLE = 2
_CELL_W, _CELL_H, _PATH_W, _TITLE_H, _MARGIN = 118, 190, 190, 24, 10
_METRE = 84.0
_YAW, _PITCH = math.radians(35.0), math.radians(12.0)


def save(
    motions: Sequence[Motion | Float[np.ndarray, "frames 22 3"]],
    path: str | Path,
    *,
    titles: Sequence[str] | None = None,
    figures: int = 10,
    fps: float = FPS,
) -> Path:
    """Write a PNG with one row a motion; bare joint arrays are drawn as they are, at `fps`."""
    buffer = io.BytesIO()
    drawn = image(motions, titles=titles, figures=figures, fps=fps)
    drawn.save(buffer, format="PNG")

    def check(written: Path) -> None:
        with Image.open(written) as found:
            found.load()
            if found.size != drawn.size:
                raise FormatError(f"{written}: the picture read back has another size")

    return write_checked(path, buffer.getvalue(), check)


def image(
    motions: Sequence[Motion | Float[np.ndarray, "frames 22 3"]],
    *,
    titles: Sequence[str] | None = None,
    figures: int = 10,
    fps: float = FPS,
) -> Image.Image:
    """The sheet as a picture."""
    if not motions:
        raise FormatError("a contact sheet of no motions; give at least one")
    if titles is not None and len(titles) != len(motions):
        raise FormatError(f"{len(titles)} titles for {len(motions)} motions; give one each or none")
    row_height = _TITLE_H + _CELL_H + _MARGIN
    size = (2 * _MARGIN + figures * _CELL_W + _PATH_W, _MARGIN + row_height * len(motions))
    canvas = Image.new("RGB", (size[0] * _OVERSAMPLE, size[1] * _OVERSAMPLE), _PAPER)
    draw = ImageDraw.Draw(canvas)
    for row, motion in enumerate(motions):
        strip = _Strip(motion, fps, figures, draw, _MARGIN + row * row_height)
        strip.draw_title("" if titles is None else titles[row])
        strip.draw_figures()
        strip.draw_path()
    return canvas.resize(size, Image.Resampling.LANCZOS)


class _Strip:
    """One motion's row."""

    def __init__(self, motion: Motion | Array, fps: float, figures: int, draw: ImageDraw.ImageDraw, top: int) -> None:
        self.motion = motion if isinstance(motion, Motion) else None
        self.joints = motion.joints if isinstance(motion, Motion) else np.asarray(motion)
        if self.joints.ndim != 3 or self.joints.shape[1:] != (22, 3) or not len(self.joints):
            raise FormatError(f"joints have the shape {self.joints.shape}; [frames, 22, 3] is wanted")
        if not np.isfinite(self.joints).all():
            raise FormatError("joints hold numbers that are not finite; nothing can be drawn")
        self.fps = motion.fps if isinstance(motion, Motion) else fps
        self.draw, self.top, self.figures = draw, top, figures
        self.shown = np.unique(np.linspace(0, len(self.joints) - 1, figures).round().astype(int))
        self.anchors = [a for a in (self.motion.anchors if self.motion else ()) if isinstance(a.get("position"), list)]

    def draw_title(self, title: str) -> None:
        text = title or (self.motion.text if self.motion else "")
        length = f"{len(self.joints)} frames, {len(self.joints) / self.fps:.1f} s at {self.fps:g} fps"
        self._text(_MARGIN, self.top, text or "(no text)", _INK, 13)
        self._text(2 * _MARGIN + self.figures * _CELL_W, self.top + 2, length, _FAINT, 10)

    def draw_figures(self) -> None:
        bottom = self.top + _TITLE_H + _CELL_H - 16
        for cell, frame in enumerate(self.shown):
            centre = _MARGIN + (cell + 0.5) * _CELL_W
            root = self.joints[frame, 0] * np.array([1.0, 0.0, 1.0])
            self._floor(centre, bottom, root)
            points = _project(self.joints[frame] - root) * _METRE * [1, -1] + [centre, bottom]
            self._figure(points, frame)
            self._anchors_on(frame, root, centre, bottom)
            self._text(centre - 12, bottom + 12, f"{frame / self.fps:.2f} s", _FAINT, 9)

    def _figure(self, points: Array, frame: int) -> None:
        depth = self.joints[frame] @ _view()
        order = sorted(range(1, 22), key=lambda joint: depth[joint])
        for joint in order:
            self._line([points[PARENTS[joint]], points[joint]], _side(JOINTS[joint]), 3)
        self._dot(points[15], 5.5, _MIDDLE)
        if self.motion is not None:
            for joint, rests in zip(CONTACT_JOINTS, self.motion.contacts[frame]):
                if rests:
                    self._dot(points[joint], 3, _REST)

    def _floor(self, centre: float, bottom: float, root: Array) -> None:
        """Crossing lines of a one-metre grid near the feet, at their true place."""
        for axis in (0, 2):
            base = math.floor(root[axis])
            for mark in (base, base + 1):
                start, end = np.zeros(3), np.zeros(3)
                start[axis] = end[axis] = mark - root[axis]
                start[2 - axis], end[2 - axis] = -0.55, 0.55
                if abs(start[axis]) <= 0.55:
                    ends = _project(np.stack((start, end))) * _METRE * [1, -1] + [centre, bottom]
                    self._line(list(ends), _FLOOR, 1)

    def _anchors_on(self, frame: int, root: Array, centre: float, bottom: float) -> None:
        for anchor in self.anchors:
            nearest = self.shown[np.abs(self.shown / self.fps - float(anchor["at"])).argmin()]
            if nearest == frame:
                point = self._completed(anchor) - root
                x, y = _project(point[None])[0] * _METRE * [1, -1] + [centre, bottom]
                self._cross(float(x), float(y))

    def _completed(self, anchor: Any) -> Array:
        """An anchor's point, its free coordinates taken from the joint itself."""
        joint = JOINTS.index(anchor["joint"]) if anchor.get("joint") in JOINTS else 0
        at = self.joints[min(round(float(anchor["at"]) * self.fps), len(self.joints) - 1), joint]
        return np.array([own if given is None else given for own, given in zip(at, anchor["position"])])

    def draw_path(self) -> None:
        left, top = 2 * _MARGIN + self.figures * _CELL_W, self.top + _TITLE_H
        width, height = _PATH_W - _MARGIN, _CELL_H - 6
        self._line(
            [(left, top), (left + width, top), (left + width, top + height), (left, top + height), (left, top)],
            _FLOOR,
            1,
        )
        path = self.joints[:, 0, [0, 2]]
        marks = np.array([self._completed(anchor)[[0, 2]] for anchor in self.anchors]).reshape(-1, 2)
        every = np.concatenate((path, marks))
        low, high = every.min(0), every.max(0)
        span = max(float((high - low).max()), 1.0) * 1.15
        scale = min(width, height) / span
        middle = (low + high) / 2

        def to_page(point: Array) -> tuple[float, float]:
            """From above, +Z down the page and +X to the right, as the walker comes towards the reader."""
            x, z = (point - middle) * scale
            return left + width / 2 + float(x), top + height / 2 + float(z)

        self._line([to_page(point) for point in path], _MIDDLE, 2)
        for frame in self.shown:
            self._dot(to_page(path[frame]), 2.5, _MIDDLE)
        self._dot(to_page(path[0]), 4, _REST)
        for mark in marks:
            self._cross(*to_page(mark))
        self._text(left + 4, top + height - 14, f"{span:.1f} m", _FAINT, 9)

    def _line(self, points: Sequence[Any], colour: Colour, width: float) -> None:
        scaled = [(float(x) * _OVERSAMPLE, float(y) * _OVERSAMPLE) for x, y in points]
        self.draw.line(scaled, fill=colour, width=round(width * _OVERSAMPLE), joint="curve")

    def _dot(self, point: Any, radius: float, colour: Colour) -> None:
        x, y, r = float(point[0]) * _OVERSAMPLE, float(point[1]) * _OVERSAMPLE, radius * _OVERSAMPLE
        self.draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def _cross(self, x: float, y: float) -> None:
        for lean in (1, -1):
            self._line([(x - 4, y - 4 * lean), (x + 4, y + 4 * lean)], _ANCHOR, 2)

    def _text(self, x: float, y: float, text: str, colour: Colour, size: int) -> None:
        font = ImageFont.load_default(size * _OVERSAMPLE)
        self.draw.text((x * _OVERSAMPLE, y * _OVERSAMPLE), text, fill=colour, font=font)


def _side(name: str) -> Colour:
    return _LEFT if name.startswith("left") else _RIGHT if name.startswith("right") else _MIDDLE


def _view() -> Array:
    """The direction from the scene to the camera."""
    flat = math.cos(_PITCH)
    return np.array([math.sin(_YAW) * flat, math.sin(_PITCH), math.cos(_YAW) * flat])


def _project(points: Array) -> Array:
    """Right and up on the camera's picture, metres, for points [..., 3]."""
    right = np.array([math.cos(_YAW), 0.0, -math.sin(_YAW)])
    return points @ np.stack((right, np.cross(_view(), right)), axis=-1)
