"""The body that people see: a smooth mannequin around the 22 joints, with skin weights over two bones a vertex.

It is the zero set of one smooth field (capsules and ellipsoids melted together), meshed once by surface nets and then
pulled exactly onto the surface, so normals are the field's gradient and no model file has to ship. A dark visor shows
where the head faces. Coordinates are the T-pose's with the pelvis at the origin; metres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy.interpolate import PchipInterpolator

from anchorroute.motion.skeleton import JOINTS, PARENTS, REST_OFFSETS
from anchorroute.motion.surface_nets import surface_nets

Array = np.ndarray[Any, np.dtype[Any]]

GRID = 0.0175
_MELT = 0.011
_STEP = 1e-4
_HINGE = 0.055
_SOLE_TILT = math.radians(17.0)

_SKIN, _DARK, _SHOE = (206, 210, 216), (44, 50, 60), (120, 128, 140)


@dataclass(frozen=True, eq=False)
class Mannequin:
    """A skinned mesh in the T-pose."""

    vertices: Float[np.ndarray, "vertices 3"]
    normals: Float[np.ndarray, "vertices 3"]
    faces: Int[np.ndarray, "faces 3"]
    """Counter-clockwise seen from outside."""
    bones: Int[np.ndarray, "vertices 2"]
    """The two joints that move a vertex; the second is 0 where its weight is."""
    weights: Float[np.ndarray, "vertices 2"]
    colours: UInt8[np.ndarray, "vertices 3"]


def rest_joints() -> Float[np.ndarray, "22 3"]:
    """The T-pose's joints, pelvis at the origin."""
    joints = REST_OFFSETS.astype(np.float64)
    for joint in range(1, len(JOINTS)):
        joints[joint] += joints[PARENTS[joint]]
    return joints


def standing_height() -> float:
    """How high the pelvis of the T-pose stands when the soles touch the floor."""
    return float(-build().vertices[:, 1].min())


@dataclass(frozen=True)
class _Capsule:
    start: Array
    end: Array
    radii: tuple[float, float]

    def distance(self, points: Array) -> Array:
        axis = self.end - self.start
        share = np.clip((points - self.start) @ axis / (axis @ axis), 0.0, 1.0)
        away = np.linalg.norm(points - self.start - share[..., None] * axis, axis=-1)
        return away - (self.radii[0] + share * (self.radii[1] - self.radii[0]))

    def bounds(self) -> tuple[Array, Array]:
        reach = max(self.radii)
        return np.minimum(self.start, self.end) - reach, np.maximum(self.start, self.end) + reach


@dataclass(frozen=True)
class _Ellipsoid:
    centre: Array
    semi: Array

    def distance(self, points: Array) -> Array:
        """Not Euclidean away from the surface, but zero on it and smooth, which is all that is asked."""
        scaled = (points - self.centre) / self.semi
        first = np.linalg.norm(scaled, axis=-1)
        second = np.linalg.norm(scaled / self.semi, axis=-1)
        return first * (first - 1.0) / np.maximum(second, 1e-6)

    def bounds(self) -> tuple[Array, Array]:
        return self.centre - self.semi, self.centre + self.semi


@lru_cache(maxsize=1)
def _dense(profile: tuple[tuple[float, ...], ...]) -> Array:
    """The profile's columns, interpolated so finely that straight lines between rows look smooth."""
    heights, *columns = np.array(profile).T
    fine = np.linspace(heights[0], heights[-1], 1500)
    return np.stack([fine, *(PchipInterpolator(heights, column)(fine) for column in columns)])


@dataclass(frozen=True)
class _Torso:
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
        heights, *columns = _dense(self.profile)
        y = np.clip(points[..., 1], heights[0], heights[-1])
        width, depth, ahead = (np.interp(y, heights, column) for column in columns)
        around = np.hypot(points[..., 0] / width, (points[..., 2] - ahead) / depth)
        sideways = (around - 1.0) * np.minimum(width, depth)
        beyond = np.abs(points[..., 1] - y)
        return np.where(beyond > 0, np.hypot(np.maximum(sideways, 0.0), beyond), sideways)

    def bounds(self) -> tuple[Array, Array]:
        heights, width, depth, ahead = np.array(self.profile).T
        low = _by(-width.max(), heights[0], (ahead - depth).min())
        return low, _by(width.max(), heights[-1], (ahead + depth).max())


_Part: TypeAlias = "_Capsule | _Ellipsoid | _Torso"


def _by(x: float, y: float, z: float) -> Array:
    return np.array([x, y, z])


def _parts() -> list[_Part]:
    at = dict(zip(JOINTS, rest_joints()))

    def capsule(start: Array, end: Array, *radii: float) -> _Capsule:
        return _Capsule(np.asarray(start, float), np.asarray(end, float), (radii[0], radii[-1]))

    def blob(centre: Array, *semi: float) -> _Ellipsoid:
        return _Ellipsoid(np.asarray(centre, float), np.array(semi))

    parts: list[_Part] = [
        _Torso(),
        capsule(at["neck"] + [0, -0.05, -0.014], at["head"] + [0, 0.01, 0.002], 0.062, 0.052),
        blob(at["head"] + [0, 0.082, 0.01], 0.076, 0.108, 0.095),
        blob(at["head"] + [0, 0.028, 0.034], 0.053, 0.06, 0.058),
    ]
    for side, sign in (("left", 1.0), ("right", -1.0)):
        hip, knee, ankle, foot = (at[f"{side}_{name}"] for name in ("hip", "knee", "ankle", "foot"))
        shoulder, elbow, wrist = (at[f"{side}_{name}"] for name in ("shoulder", "elbow", "wrist"))
        out = np.array([sign, 0.0, 0.0])
        parts += [
            capsule(hip + _by(0.018 * sign, -0.02, 0.0), knee, 0.084, 0.05),
            blob(hip + _by(0.022 * sign, 0.0, -0.035), 0.075, 0.09, 0.078),
            capsule(knee, ankle, 0.049, 0.033),
            blob(knee + _by(0, -0.13, -0.016), 0.046, 0.12, 0.05),
            capsule(at[f"{side}_collar"] + [0, -0.005, 0], shoulder, 0.06, 0.056),
            blob(shoulder + 0.01 * out, 0.062, 0.062, 0.06),
            capsule(at["neck"] + [0.02 * sign, -0.035, -0.02], shoulder + _by(-0.02 * sign, 0.018, -0.01), 0.05, 0.042),
            capsule(shoulder, elbow, 0.051, 0.037),
            capsule(elbow, wrist, 0.038, 0.025),
            blob(elbow + 0.075 * out, 0.09, 0.041, 0.041),
            blob(wrist + 0.075 * out, 0.082, 0.02, 0.042),
            capsule(wrist + 0.03 * out + [0, 0, 0.02], wrist + 0.075 * out + [0, -0.004, 0.058], 0.016, 0.012),
            *_foot(ankle, foot, capsule),
        ]
    return parts


def _foot(ankle: Array, foot: Array, capsule: Any) -> list[_Capsule]:
    """Heel, instep and toes, flat on the floor once the foot's bone leans down as it does in a standing body.

    At rest that bone points straight ahead, so what is flat when standing is tilted up here.
    """
    length = float(np.linalg.norm(foot - ankle))
    cos, sin = math.cos(_SOLE_TILT), math.sin(_SOLE_TILT)
    drop = length * sin

    def standing(x: float, y: float, z: float) -> Array:
        """A point given relative to the ankle of a standing foot; y is up, z ahead."""
        return ankle + np.array([x, cos * y + sin * z, cos * z - sin * y])

    return [
        capsule(standing(0, 0.0, 0.0), standing(0, -drop + 0.018, -0.028), 0.034, 0.036),
        capsule(standing(0, -drop + 0.014, -0.03), standing(0, -drop + 0.01, 0.11), 0.034, 0.028),
        capsule(standing(0, 0.0, 0.01), standing(0.0, -drop + 0.012, 0.12), 0.032, 0.026),
        capsule(standing(-0.02, -drop + 0.006, 0.11), standing(-0.014, -drop + 0.004, 0.172), 0.024, 0.019),
        capsule(standing(0.02, -drop + 0.006, 0.11), standing(0.016, -drop + 0.004, 0.165), 0.024, 0.018),
    ]


def _field(points: Array, parts: list[_Part]) -> Array:
    """Signed distance to the melted body: a soft minimum that does not care for the parts' order."""
    total = np.zeros(points.shape[:-1])
    for part in parts:
        total += np.exp(np.minimum(-part.distance(points) / _MELT, 60.0))
    return -_MELT * np.log(np.maximum(total, 1e-30))


def _slope(points: Array, parts: list[_Part]) -> tuple[Array, Array]:
    """The field and its gradient, from its values at a tiny tetrahedron's corners."""
    corners = np.array([(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)])
    values = np.stack([_field(points + _STEP * corner, parts) for corner in corners], axis=-1)
    return values.mean(-1), values @ corners / (4 * _STEP)


@lru_cache(maxsize=1)
def build() -> Mannequin:
    """The mannequin; made on first use (about a second), the same on every machine to rounding."""
    parts = _parts()
    values, origin = _sampled(parts)
    vertices, faces = surface_nets(values)
    points = vertices * GRID + origin
    for _ in range(3):
        away, slope = _slope(points, parts)
        points -= (away / (slope * slope).sum(-1).clip(0.1))[:, None] * slope
    normals = _slope(points, parts)[1]
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    bones, weights = _skin(points)
    return Mannequin(
        vertices=points.astype(np.float32),
        normals=normals.astype(np.float32),
        faces=faces.astype(np.int32),
        bones=bones,
        weights=weights.astype(np.float32),
        colours=_colours(points, bones[:, 0]),
    )


def _sampled(parts: list[_Part]) -> tuple[Array, Array]:
    """The field on a grid; a part is evaluated only where it can be felt."""
    bounds = [part.bounds() for part in parts]
    margin = 6 * _MELT + 2 * GRID
    origin = np.min([low for low, _ in bounds], axis=0) - margin
    shape = np.ceil((np.max([high for _, high in bounds], axis=0) + margin - origin) / GRID).astype(int) + 1
    total = np.full(shape, 1e-30)
    for part, (low, high) in zip(parts, bounds):
        first = np.maximum(((low - margin - origin) / GRID).astype(int), 0)
        last = np.minimum(((high + margin - origin) / GRID).astype(int) + 2, shape)
        axes = [np.arange(a, b) * GRID + o for a, b, o in zip(first, last, origin)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        window = tuple(slice(a, b) for a, b in zip(first, last))
        total[window] += np.exp(np.minimum(-part.distance(points) / _MELT, 60.0))
    return -_MELT * np.log(total), origin


def _segments() -> list[tuple[int, Array, Array]]:
    """The bones as (joint that turns it, from, to); the last joints reach into head, toes and hands."""
    at = rest_joints()
    bones = [(parent, at[parent], at[joint]) for joint, parent in enumerate(PARENTS) if parent >= 0]
    beyond = {"head": _by(0, 0.18, 0), "left_foot": _by(0, 0, 0.06), "right_foot": _by(0, 0, 0.06)}
    beyond |= {"left_wrist": _by(0.16, 0, 0), "right_wrist": _by(-0.16, 0, 0)}
    return bones + [
        (JOINTS.index(name), at[JOINTS.index(name)], at[JOINTS.index(name)] + d) for name, d in beyond.items()
    ]


def _skin(points: Array) -> tuple[Array, Array]:
    """Nearest bone and its nearest neighbour in the tree; they share evenly at the joint and part over `_HINGE`."""
    distance = np.full((len(points), len(JOINTS)), np.inf)
    for joint, start, end in _segments():
        axis = end - start
        share = np.clip((points - start) @ axis / (axis @ axis), 0.0, 1.0)
        away = np.linalg.norm(points - start - share[:, None] * axis, axis=-1)
        distance[:, joint] = np.minimum(distance[:, joint], away)
    first = distance.argmin(1)
    beside = np.zeros((len(JOINTS), len(JOINTS)), dtype=bool)
    for joint, parent in enumerate(PARENTS[1:], 1):
        beside[joint, parent] = beside[parent, joint] = True
    second = np.where(beside[first], distance, np.inf).argmin(1)
    rows = np.arange(len(points))
    near, far = distance[rows, first], distance[rows, second]
    along = np.clip(np.sqrt(np.maximum(far**2 - near**2, 0.0)) / _HINGE, 0.0, 1.0)
    share = 0.5 * (1.0 - along * along * (3.0 - 2.0 * along))
    share[share < 1e-3] = 0.0
    bones = np.stack((first, np.where(share > 0, second, 0)), axis=-1)
    return bones, np.stack((1.0 - share, share), axis=-1)


def _colours(points: Array, first: Array) -> Array:
    at = dict(zip(JOINTS, rest_joints()))
    colours = np.tile(np.array(_SKIN, dtype=float), (len(points), 1))
    shoe = np.isin(first, [JOINTS.index(name) for name in ("left_ankle", "right_ankle", "left_foot", "right_foot")])
    colours[shoe] = _SHOE
    face = points - (at["head"] + [0, 0.094, 0.01])
    edge = np.maximum.reduce([np.abs(face[:, 1]) - 0.034, 0.028 - face[:, 2]])
    visor = 1.0 - np.clip(edge / 0.008 + 0.5, 0.0, 1.0)[:, None]  # a soft edge hides the mesh's own steps
    visor *= (first == JOINTS.index("head"))[:, None]
    return np.round(colours + visor * (np.array(_DARK) - colours)).astype(np.uint8)
