"""The mannequin's mesh is a closed surface, its skin moves it as the bones do, and surface nets find a known shape."""

import numpy as np
import pytest

from anchorroute.motion import mannequin
from anchorroute.motion.skeleton import PARENTS
from anchorroute.motion.surface_nets import surface_nets


def edges(faces: np.ndarray) -> np.ndarray:
    return np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])


def volume(vertices: np.ndarray, faces: np.ndarray) -> float:
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    return float((a * np.cross(b, c)).sum() / 6)


def test_surface_nets_find_a_sphere() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(40.0)] * 3, indexing="ij"), axis=-1)
    centre, radius = np.array([19.3, 20.1, 18.7]), 13.2
    vertices, faces = surface_nets(np.linalg.norm(grid - centre, axis=-1) - radius)
    away = np.linalg.norm(vertices - centre, axis=-1)
    np.testing.assert_allclose(away, radius, atol=0.12)
    assert volume(vertices, faces) == pytest.approx(4 / 3 * np.pi * radius**3, rel=0.01)


@pytest.fixture(scope="module")
def body() -> mannequin.Mannequin:
    return mannequin.build()


def test_the_surface_is_closed_and_one(body: mannequin.Mannequin) -> None:
    """Every edge is walked once in each direction; Euler's number of one sphere-like piece is 2."""
    walked = edges(body.faces)
    forth = {tuple(edge) for edge in walked.tolist()}
    assert len(forth) == len(walked) and all((b, a) in forth for a, b in forth)
    assert len(body.vertices) - len(walked) // 2 + len(body.faces) == 2
    assert len(body.vertices) < 65536


def test_faces_and_normals_look_outwards(body: mannequin.Mannequin) -> None:
    assert 0.04 < volume(body.vertices.astype(np.float64), body.faces) < 0.09
    a, b, c = (body.vertices[body.faces[:, k]] for k in range(3))
    agree = (np.cross(b - a, c - a) * body.normals[body.faces].mean(1)).sum(-1) > 0
    assert agree.mean() > 0.997  # between the thighs the skin folds when the legs come together
    np.testing.assert_allclose(np.linalg.norm(body.normals, axis=-1), 1.0, atol=1e-5)


def test_every_joint_lies_inside_the_body(body: mannequin.Mannequin) -> None:
    """By the winding number: the solid angle of a closed surface is 4 pi from inside and 0 from outside."""
    a, b, c = (body.vertices[body.faces[:, k]].astype(np.float64) for k in range(3))

    def turns(point: np.ndarray) -> float:
        u, v, w = a - point, b - point, c - point
        lu, lv, lw = (np.linalg.norm(x, axis=-1) for x in (u, v, w))
        top = (u * np.cross(v, w)).sum(-1)
        below = lu * lv * lw + (u * v).sum(-1) * lw + (v * w).sum(-1) * lu + (w * u).sum(-1) * lv
        return float(2 * np.arctan2(top, below).sum() / (4 * np.pi))

    for joint in mannequin.rest_joints():
        assert round(turns(joint), 6) >= 1.0
    assert turns(np.array([0.0, 1.5, 0.0])) == pytest.approx(0.0, abs=1e-6)


def test_two_neighbouring_bones_share_a_vertex(body: mannequin.Mannequin) -> None:
    np.testing.assert_allclose(body.weights.sum(1), 1.0, atol=1e-6)
    assert (body.weights[:, 0] >= body.weights[:, 1]).all() and (body.weights >= 0).all()
    shared = body.weights[:, 1] > 0
    for pair in np.unique(body.bones[shared], axis=0):
        a, b = sorted(pair.tolist())
        assert PARENTS[b] == a or (a, b) == (3, 9)  # the spine hands over past spine2
    assert not body.bones[~shared, 1].any()
    assert len(np.unique(body.bones[:, 0])) == 21
    at_joints = np.linalg.norm(body.vertices[:, None] - mannequin.rest_joints()[[4, 18]], axis=-1).min(1) < 0.05
    assert body.weights[at_joints, 1].max() > 0.45


def test_it_is_made_once() -> None:
    assert mannequin.build() is mannequin.build()
