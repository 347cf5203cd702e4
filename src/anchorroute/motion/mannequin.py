"""The body that people see: a smooth mannequin around the 22 joints, with skin weights over two bones a vertex.

It is the zero set of one smooth field (see `melted`), meshed once by surface nets and then pulled exactly onto the
surface, so normals are the field's gradient and no model file has to ship. It is meshed with the legs apart and brought
to the T-pose by its own weights: thighs that touch while meshing would be one, and tear skin when they part. A dark
visor shows where the head faces. Coordinates are the T-pose's with the pelvis at the origin; metres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from anchorroute.motion.melted import Capsule, Ellipsoid, Part, Torso, Turned, sampled, slope
from anchorroute.motion.skeleton import JOINTS, PARENTS, REST_OFFSETS
from anchorroute.motion.surface_nets import surface_nets

Array = np.ndarray[Any, np.dtype[Any]]

GRID = 0.0175
_HINGE = 0.06
_SOLE_TILT = math.radians(17.0)
_LEGS_APART = math.radians(25.0)

_SPINE = (0, 3, 6, 9)
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


def _by(x: float, y: float, z: float) -> Array:
    return np.array([x, y, z])


def _spread(side: str) -> Array:
    """The turn that takes a leg of the T-pose aside for meshing."""
    angle = _LEGS_APART if side == "left" else -_LEGS_APART
    return np.array([[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0], [0, 0, 1]])


def _leg(joint: int) -> str | None:
    """The side of the leg that a joint belongs to, hip included; None for the rest of the body."""
    side, _, name = JOINTS[joint].partition("_")
    return side if name in ("hip", "knee", "ankle", "foot") else None


def _parts() -> list[Part]:
    at = dict(zip(JOINTS, rest_joints()))

    def capsule(start: Array, end: Array, *radii: float) -> Capsule:
        return Capsule(np.asarray(start, float), np.asarray(end, float), (radii[0], radii[-1]))

    def blob(centre: Array, *semi: float) -> Ellipsoid:
        return Ellipsoid(np.asarray(centre, float), np.array(semi))

    parts: list[Part] = [
        Torso(),
        capsule(at["neck"] + [0, -0.05, -0.014], at["head"] + [0, 0.01, 0.002], 0.062, 0.052),
        blob(at["head"] + [0, 0.082, 0.01], 0.076, 0.108, 0.095),
        blob(at["head"] + [0, 0.028, 0.034], 0.053, 0.06, 0.058),
    ]
    for side, sign in (("left", 1.0), ("right", -1.0)):
        hip, knee, ankle, foot = (at[f"{side}_{name}"] for name in ("hip", "knee", "ankle", "foot"))
        shoulder, elbow, wrist = (at[f"{side}_{name}"] for name in ("shoulder", "elbow", "wrist"))
        out = np.array([sign, 0.0, 0.0])
        leg: list[Capsule | Ellipsoid] = [
            capsule(hip + _by(0.012 * sign, -0.02, 0.0), knee, 0.084, 0.05),
            capsule(knee, ankle, 0.049, 0.033),
            blob(knee + _by(0, -0.13, -0.016), 0.046, 0.12, 0.05),
            *_foot(ankle, foot, capsule),
        ]
        parts += [Turned(part, _spread(side), hip) for part in leg]
        parts += [
            blob(hip + _by(0.022 * sign, 0.0, -0.035), 0.075, 0.09, 0.078),
            capsule(at[f"{side}_collar"] + [0, -0.005, 0], shoulder, 0.06, 0.056),
            blob(shoulder + 0.01 * out, 0.062, 0.062, 0.06),
            capsule(at["neck"] + [0.02 * sign, -0.035, -0.02], shoulder + _by(-0.02 * sign, 0.018, -0.01), 0.05, 0.042),
            capsule(shoulder, elbow, 0.051, 0.037),
            capsule(elbow, wrist, 0.038, 0.025),
            blob(elbow + 0.075 * out, 0.09, 0.041, 0.041),
            blob(wrist + 0.075 * out, 0.082, 0.02, 0.042),
            capsule(wrist + 0.03 * out + [0, 0, 0.02], wrist + 0.075 * out + [0, -0.004, 0.058], 0.016, 0.012),
        ]
    return parts


def _foot(ankle: Array, foot: Array, capsule: Any) -> list[Capsule]:
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


@lru_cache(maxsize=1)
def build() -> Mannequin:
    """The mannequin; made on first use (about a second), the same on every machine to rounding."""
    parts = _parts()
    values, origin = sampled(parts, GRID)
    vertices, faces = surface_nets(values)
    points = vertices * GRID + origin
    for _ in range(3):
        away, ahead = slope(points, parts)
        points -= (away / (ahead * ahead).sum(-1).clip(0.1))[:, None] * ahead
    normals = slope(points, parts)[1]
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    bones, weights = _skin(points)
    points, normals = _legs_together(points, normals, bones, weights)
    return Mannequin(
        vertices=points.astype(np.float32),
        normals=normals.astype(np.float32),
        faces=faces.astype(np.int32),
        bones=bones,
        weights=weights.astype(np.float32),
        colours=_colours(points, bones[:, 0]),
    )


def _legs_together(points: Array, normals: Array, bones: Array, weights: Array) -> tuple[Array, Array]:
    """From the pose of meshing to the T-pose, each vertex by its two bones."""
    rest = rest_joints()
    places, ahead = np.zeros_like(points), np.zeros_like(normals)
    for joint in range(len(JOINTS)):
        share = np.where(bones == joint, weights, 0.0).sum(1, keepdims=True)
        side = _leg(joint)
        turn = np.eye(3) if side is None else _spread(side).T
        pivot = np.zeros(3) if side is None else rest[JOINTS.index(f"{side}_hip")]
        places += share * ((points - pivot) @ turn.T + pivot)
        ahead += share * (normals @ turn.T)
    return places, ahead / np.linalg.norm(ahead, axis=-1, keepdims=True)


def _segments() -> list[tuple[int, Array, Array]]:
    """The bones in the pose of meshing as (joint that turns it, from, to); the last reach into head, toes and hands."""
    at = rest_joints()
    bones = [(parent, at[parent], at[joint]) for joint, parent in enumerate(PARENTS) if parent >= 0]
    beyond = {"head": _by(0, 0.18, 0), "left_foot": _by(0, 0, 0.06), "right_foot": _by(0, 0, 0.06)}
    beyond |= {"left_wrist": _by(0.16, 0, 0), "right_wrist": _by(-0.16, 0, 0)}
    for name, reach in beyond.items():
        joint = JOINTS.index(name)
        bones.append((joint, at[joint], at[joint] + reach))
    out = []
    for joint, start, end in bones:
        side = _leg(joint)
        turn = np.eye(3) if side is None else _spread(side)
        pivot = at[0] if side is None else at[JOINTS.index(f"{side}_hip")]
        out.append((joint, turn @ (start - pivot) + pivot, turn @ (end - pivot) + pivot))
    return out


def _skin(points: Array) -> tuple[Array, Array]:
    """Nearest bone and a neighbour of it: they share evenly at the joint and part over `_HINGE`.

    Along the spine the bones are too short for that; there pelvis, spine1 and spine3 hand over by height, and spine2,
    which lies between the last two in angle as well, moves nothing by itself.
    """
    distance = np.full((len(points), len(JOINTS)), np.inf)
    for joint, start, end in _segments():
        axis = end - start
        share = np.clip((points - start) @ axis / (axis @ axis), 0.0, 1.0)
        away = np.linalg.norm(points - start - share[:, None] * axis, axis=-1)
        distance[:, joint] = np.minimum(distance[:, joint], away)
    trunk, to_trunk = np.isin(distance.argmin(1), _SPINE), distance[:, _SPINE].min(1)
    height_pair, height_share = _by_height(points[:, 1])
    distance[:, [joint for joint in _SPINE if joint not in (0, 9)]] = np.inf
    first = np.where(trunk, height_pair[:, 0], distance.argmin(1))
    beside = np.zeros((len(JOINTS), len(JOINTS)), dtype=bool)
    for joint, parent in enumerate(PARENTS[1:], 1):
        if joint not in _SPINE:
            beside[joint, parent] = beside[parent, joint] = True
    second = np.where(beside[first], distance, np.inf).argmin(1)
    rows = np.arange(len(points))
    near = np.where(trunk, to_trunk, distance[rows, first])
    along = np.sqrt(np.maximum(distance[rows, second] ** 2 - near**2, 0.0))
    share = np.where(beside[first].any(1), 0.5 * _fade(along / _HINGE), 0.0)
    spine = trunk & (height_share >= share)
    second, share = np.where(spine, height_pair[:, 1], second), np.where(spine, height_share, share)
    share[share < 1e-3] = 0.0
    bones = np.stack((first, np.where(share > 0, second, 0)), axis=-1)
    return bones, np.stack((1.0 - share, share), axis=-1)


def _by_height(y: Array) -> tuple[Array, Array]:
    """For each height the spine's nearer and farther joint, and the farther one's share of at most a half."""
    stations = np.array([0.01, 0.175, 0.36])
    joints = np.array([0, 3, 9])
    low = np.clip(np.searchsorted(stations, y) - 1, 0, len(stations) - 2)
    upper = 1.0 - _fade((y - stations[low]) / (stations[low + 1] - stations[low]))
    pair = np.stack((joints[low], joints[low + 1]), axis=-1)
    return np.where((upper > 0.5)[:, None], pair[:, ::-1], pair), np.minimum(upper, 1.0 - upper)


def _fade(x: Array) -> Array:
    """From 1 at zero and below to 0 at one and beyond, smoothly."""
    x = np.clip(x, 0.0, 1.0)
    return 1.0 - x * x * (3.0 - 2.0 * x)


def _colours(points: Array, first: Array) -> Array:
    at = dict(zip(JOINTS, rest_joints()))
    colours = np.tile(np.array(_SKIN, dtype=float), (len(points), 1))
    shoe = np.isin(first, [JOINTS.index(name) for name in ("left_ankle", "right_ankle", "left_foot", "right_foot")])
    colours[shoe] = _SHOE
    face = points - (at["head"] + [0, 0.094, 0.01])
    edge = np.maximum.reduce([np.abs(face[:, 1]) - 0.034, 0.028 - face[:, 2]])
    visor = 1.0 - np.clip(edge / 0.016 + 0.5, 0.0, 1.0)[:, None]  # a soft edge hides the mesh's own steps
    visor *= (first == JOINTS.index("head"))[:, None]
    return np.round(colours + visor * (np.array(_DARK) - colours)).astype(np.uint8)
