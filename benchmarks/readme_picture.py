"""Draw the README's picture: one generated motion as a row of mannequins on the path that its anchors ask for.

    python benchmarks/readme_picture.py docs/images/motion.png [--model open]

No renderer is needed: the mannequin's triangles are skinned by the motion's rotations, shaded by one light, sorted by
depth and painted. The anchors are those of the demo; what is drawn is the shipped weights' answer, seed and all.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

import anchorroute as ar
from anchorroute.cli.demo import TEXT, demo_anchors
from anchorroute.motion import mannequin
from anchorroute.motion.rotation import quat_multiply, quat_to_matrix
from anchorroute.motion.skeleton import PARENTS

Array = np.ndarray[Any, np.dtype[Any]]
SIZE, OVERSAMPLE = (1280, 560), 2
PAPER, FLOOR, PATH, GOAL = (247, 247, 244), (222, 224, 226), (70, 120, 200), (208, 32, 64)
FIRST, LAST = np.array([150, 176, 214]), np.array([52, 98, 176])
LIGHT = np.array([-0.45, 0.8, -0.4])


class Camera:
    """A perspective view of the floor from the side and above."""

    def __init__(self, target: Array, yaw: float, pitch: float, distance: float, focal: float) -> None:
        forward = np.array([np.sin(yaw) * np.cos(pitch), np.sin(pitch), np.cos(yaw) * np.cos(pitch)])
        self.eye = target - distance * forward
        right = np.cross(forward, [0.0, 1.0, 0.0])
        right /= np.linalg.norm(right)
        self.axes = np.stack([right, np.cross(right, forward), forward])
        self.focal = focal * SIZE[1] * OVERSAMPLE

    def __call__(self, points: Array) -> tuple[Array, Array]:
        """Pixels and depths."""
        seen = (points - self.eye) @ self.axes.T
        pixels = self.focal * seen[:, :2] / seen[:, 2:] * [1, -1]
        return pixels + np.array(SIZE) * OVERSAMPLE * [0.5, 0.55], seen[:, 2]


def skinned(motion: ar.Motion, frame: int) -> tuple[Array, Array]:
    """The mannequin's vertices and faces in one frame's pose."""
    mesh = mannequin.build()
    local = torch.from_numpy(motion.rotations[frame].astype(np.float64))
    turns = [local[0]]
    for joint in range(1, len(PARENTS)):
        turns.append(quat_multiply(turns[PARENTS[joint]], local[joint]))
    matrices = quat_to_matrix(torch.stack(turns)).numpy()
    offsets = mesh.vertices[:, None] - mannequin.rest_joints()[mesh.bones]
    posed = np.einsum("vkij,vkj->vki", matrices[mesh.bones], offsets) + motion.joints[frame][mesh.bones]
    return (posed * mesh.weights[..., None]).sum(1), mesh.faces


def paint(draw: ImageDraw.ImageDraw, camera: Camera, vertices: Array, faces: Array, colour: Array) -> None:
    """Triangles that face the camera, far ones first."""
    pixels, depths = camera(vertices)
    corners = vertices[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True) + 1e-12
    towards = ((camera.eye - corners.mean(1)) * normals).sum(1) > 0
    shade = 0.66 + 0.5 * np.clip(normals @ (LIGHT / np.linalg.norm(LIGHT)), 0, 1)
    order = np.argsort(-depths[faces].mean(1))
    for face in order[towards[order]]:
        tone = tuple(int(value) for value in np.clip(colour * shade[face], 0, 255))
        draw.polygon([tuple(point) for point in pixels[faces[face]]], fill=tone)


def line(draw: ImageDraw.ImageDraw, camera: Camera, points: Array, colour: Any, width: int) -> None:
    """A line through points in space."""
    draw.line([tuple(point) for point in camera(points)[0]], fill=colour, width=width * OVERSAMPLE, joint="curve")


def ring(draw: ImageDraw.ImageDraw, camera: Camera, centre: Array, radius: float) -> None:
    """A circle on the floor."""
    angles = np.linspace(0, 2 * np.pi, 40)
    circle = centre + radius * np.stack([np.cos(angles), np.zeros_like(angles), np.sin(angles)], axis=1)
    line(draw, camera, circle, GOAL, 3)


def picture(result: ar.Result, figures: int) -> Image.Image:
    """The motion as a picture."""
    motion = result.motion
    root = motion.joints[:, 0] * [1, 0, 1]
    middle = (root.min(0) + root.max(0)) / 2 + [0, 0.85, 0]
    across = float(np.linalg.norm(root.max(0) - root.min(0)))
    heading = float(np.arctan2(root[-1, 0] - root[0, 0], root[-1, 2] - root[0, 2]))
    camera = Camera(middle, yaw=heading + np.pi / 2 + 0.35, pitch=-0.2, distance=2.4 + 0.62 * across, focal=1.25)
    canvas = Image.new("RGB", (SIZE[0] * OVERSAMPLE, SIZE[1] * OVERSAMPLE), PAPER)
    draw = ImageDraw.Draw(canvas)
    low, high = np.floor(root.min(0) - 1.2), np.ceil(root.max(0) + 1.2)
    for x in np.arange(low[0], high[0] + 0.1, 0.5):
        line(draw, camera, np.array([[x, 0, low[2]], [x, 0, high[2]]]), FLOOR, 1)
    for z in np.arange(low[2], high[2] + 0.1, 0.5):
        line(draw, camera, np.array([[low[0], 0, z], [high[0], 0, z]]), FLOOR, 1)
    line(draw, camera, root, PATH, 3)
    for anchor in result.anchors.anchors:
        x, _, z = (value or 0.0 for value in anchor.position)
        if anchor.joint == "pelvis":
            ring(draw, camera, np.array([x, 0.0, z]), 0.16)
    frames = np.linspace(0, motion.frames - 1, figures).round().astype(int)
    order = sorted(range(figures), key=lambda place: -camera(motion.joints[frames[place], :1])[1][0])
    for place in order:
        vertices, faces = skinned(motion, int(frames[place]))
        share = place / max(1, figures - 1)
        paint(draw, camera, vertices, faces, (1 - share) * FIRST + share * LAST)
    for anchor in result.anchors.anchors:
        if anchor.joint != "pelvis":
            (centre,), _ = camera(np.array([[value or 0.0 for value in anchor.position]]))
            r = 7 * OVERSAMPLE
            draw.ellipse([*(centre - r), *(centre + r)], outline=GOAL, width=3 * OVERSAMPLE)
    return canvas.resize(SIZE, Image.Resampling.LANCZOS)


def main() -> None:
    """Generate, draw, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--model", default="open")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figures", type=int, default=7)
    given = parser.parse_args()
    result = ar.load(given.model)(TEXT, demo_anchors(), seconds=5.0, seed=given.seed, samples=4)
    given.target.parent.mkdir(parents=True, exist_ok=True)
    picture(result, given.figures).save(given.target, optimize=True)
    print(f"{given.target}: seed {result.samples[0].seed}, worst {result.report.worst_mm:.2f} mm")


if __name__ == "__main__":
    main()
