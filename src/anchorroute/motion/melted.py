"""Smooth shapes melted into one: capsules, ellipsoids and a torso of elliptic slices, as one signed field.

The field is a soft minimum of the parts' distances, so neighbours flow into each other and the order of the parts
does not matter. `sampled` puts it on a grid for meshing, `slope` gives what it takes to pull points onto the surface.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from scipy.interpolate import PchipInterpolator

Array = np.ndarray[Any, np.dtype[Any]]

_MELT = 0.011
_STEP = 1e-4


@dataclass(frozen=True)
class Capsule:
    """A segment with a radius at each end."""

    start: Array
    end: Array
    radii: tuple[float, float]

    def distance(self, points: Array) -> Array:
        """Below zero inside, for points [..., 3]."""
        axis = self.end - self.start
        share = np.clip((points - self.start) @ axis / (axis @ axis), 0.0, 1.0)
        away = np.linalg.norm(points - self.start - share[..., None] * axis, axis=-1)
        return away - (self.radii[0] + share * (self.radii[1] - self.radii[0]))

    def bounds(self) -> tuple[Array, Array]:
        """Two corners of a box that holds the part."""
        reach = max(self.radii)
        return np.minimum(self.start, self.end) - reach, np.maximum(self.start, self.end) + reach


@dataclass(frozen=True)
class Ellipsoid:
    """An ellipsoid along the axes."""

    centre: Array
    semi: Array

    def distance(self, points: Array) -> Array:
        """Not Euclidean away from the surface, but zero on it and smooth, which is all that is asked."""
        scaled = (points - self.centre) / self.semi
        first = np.linalg.norm(scaled, axis=-1)
        second = np.linalg.norm(scaled / self.semi, axis=-1)
        return first * (first - 1.0) / np.maximum(second, 1e-6)

    def bounds(self) -> tuple[Array, Array]:
        """Two corners of a box that holds the part."""
        return self.centre - self.semi, self.centre + self.semi


@lru_cache(maxsize=1)
def _dense(profile: tuple[tuple[float, ...], ...]) -> Array:
    """The profile's columns, interpolated so finely that straight lines between rows look smooth."""
    heights, *columns = np.array(profile).T
    fine = np.linspace(heights[0], heights[-1], 1500)
    return np.stack([fine, *(PchipInterpolator(heights, column)(fine) for column in columns)])


@dataclass(frozen=True)
class Torso:
    """Elliptic slices from crotch to neck, one smooth shape: lobes melted together look like a snowman."""

    #: Height above the pelvis, half width, half depth, and how far ahead the slice stands.
    profile: tuple[tuple[float, float, float, float], ...] = (
        (-0.115, 0.060, 0.050, -0.012),
        (-0.080, 0.135, 0.088, -0.014),
        (-0.030, 0.166, 0.108, -0.014),
        (0.030, 0.164, 0.106, -0.008),
        (0.100, 0.142, 0.092, 0.002),
        (0.160, 0.133, 0.086, 0.004),
        (0.240, 0.142, 0.093, 0.002),
        (0.330, 0.160, 0.106, 0.000),
        (0.400, 0.168, 0.104, -0.006),
        (0.460, 0.150, 0.084, -0.014),
        (0.505, 0.098, 0.062, -0.016),
        (0.540, 0.050, 0.045, -0.014),
    )

    def distance(self, points: Array) -> Array:
        """Exact on the surface and smooth; nearly Euclidean beside it."""
        heights, *columns = _dense(self.profile)
        y = np.clip(points[..., 1], heights[0], heights[-1])
        width, depth, ahead = (np.interp(y, heights, column) for column in columns)
        around = np.hypot(points[..., 0] / width, (points[..., 2] - ahead) / depth)
        sideways = (around - 1.0) * np.minimum(width, depth)
        beyond = np.abs(points[..., 1] - y)
        return np.where(beyond > 0, np.hypot(np.maximum(sideways, 0.0), beyond), sideways)

    def bounds(self) -> tuple[Array, Array]:
        """Two corners of a box that holds the part."""
        heights, width, depth, ahead = np.array(self.profile).T
        low = np.array([-width.max(), heights[0], (ahead - depth).min()])
        return low, np.array([width.max(), heights[-1], (ahead + depth).max()])


@dataclass(frozen=True)
class Turned:
    """A part turned by a rotation matrix about a point."""

    part: Capsule | Ellipsoid
    rotation: Array
    pivot: Array

    def distance(self, points: Array) -> Array:
        """The part's own, with the points turned back."""
        return self.part.distance((points - self.pivot) @ self.rotation + self.pivot)

    def bounds(self) -> tuple[Array, Array]:
        """Two corners of a box that holds the part."""
        box = np.array(self.part.bounds())
        corners = np.stack(np.meshgrid(*box.T), axis=-1).reshape(-1, 3)
        corners = (corners - self.pivot) @ self.rotation.T + self.pivot
        return corners.min(0), corners.max(0)


Part: TypeAlias = "Capsule | Ellipsoid | Torso | Turned"


def field(points: Array, parts: list[Part]) -> Array:
    """Signed distance to the melted body: a soft minimum that does not care for the parts' order."""
    total = np.zeros(points.shape[:-1])
    for part in parts:
        total += np.exp(np.minimum(-part.distance(points) / _MELT, 60.0))
    return -_MELT * np.log(np.maximum(total, 1e-30))


def slope(points: Array, parts: list[Part]) -> tuple[Array, Array]:
    """The field and its gradient, from its values at a tiny tetrahedron's corners."""
    corners = np.array([(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)])
    values = np.stack([field(points + _STEP * corner, parts) for corner in corners], axis=-1)
    return values.mean(-1), values @ corners / (4 * _STEP)


def sampled(parts: list[Part], pitch: float) -> tuple[Array, Array]:
    """The field on a grid; a part is evaluated only where it can be felt."""
    bounds = [part.bounds() for part in parts]
    margin = 6 * _MELT + 2 * pitch
    origin = np.min([low for low, _ in bounds], axis=0) - margin
    shape = np.ceil((np.max([high for _, high in bounds], axis=0) + margin - origin) / pitch).astype(int) + 1
    total = np.full(shape, 1e-30)
    for part, (low, high) in zip(parts, bounds):
        first = np.maximum(((low - margin - origin) / pitch).astype(int), 0)
        last = np.minimum(((high + margin - origin) / pitch).astype(int) + 2, shape)
        axes = [np.arange(a, b) * pitch + o for a, b, o in zip(first, last, origin)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        window = tuple(slice(a, b) for a, b in zip(first, last))
        total[window] += np.exp(np.minimum(-part.distance(points) / _MELT, 60.0))
    return -_MELT * np.log(total), origin
