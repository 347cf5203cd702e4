"""Descriptors of a motion that no network made: they cannot be fooled by what a network has memorised.

``kinetic_features`` says how much each joint moves, ``geometric_features`` how often the body stands in simple
relations (hand above the head, legs apart, ...), ``clip_descriptor`` is the motion itself on a fixed number of
frames. The first two feed a Fréchet distance, the third a nearest-neighbour search in metres.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.motion.skeleton import FPS, joint_index

Joints = Float[Tensor, "*batch frames 22 3"]

DESCRIPTOR_FRAMES = 32


def kinetic_features(joints: Joints) -> Float[Tensor, "*batch 66"]:
    """Per joint, on a log scale: mean squared horizontal speed, mean squared vertical speed, mean acceleration."""
    velocity = joints.diff(dim=-3) * FPS
    horizontal = velocity[..., [0, 2]].square().sum(dim=-1).mean(dim=-2)
    vertical = velocity[..., 1].square().mean(dim=-2)
    acceleration = (joints.diff(n=2, dim=-3) * FPS**2).norm(dim=-1).mean(dim=-2)
    return torch.log1p(torch.cat([horizontal, vertical, acceleration], dim=-1))


def geometric_features(joints: Joints) -> Float[Tensor, "*batch 24"]:
    """Share of frames in which each of 24 relations between body parts holds, whatever the place and heading."""
    relations = _relations(joints)
    return torch.stack([relation.to(joints.dtype).mean(dim=-1) for relation in relations], dim=-1)


def clip_descriptor(joints: Joints, frames: int = DESCRIPTOR_FRAMES) -> Float[Tensor, "*batch d"]:
    """The motion resampled to ``frames`` frames, scaled so that distances are root mean squares over joints, in metres.

    Clips are taken as they stand in their canonical frame (start at the origin, facing +Z).
    """
    length = joints.shape[-3]
    times = torch.linspace(0, length - 1, frames, device=joints.device)
    low = times.floor().long().clamp_max(max(length - 2, 0))
    high = (low + 1).clamp_max(length - 1)
    weight = (times - low)[:, None, None].to(joints.dtype)
    sampled = torch.lerp(joints[..., low, :, :], joints[..., high, :, :], weight)
    return sampled.flatten(-3).mul((frames * joints.shape[-2]) ** -0.5)


def _relations(joints: Joints) -> list[Tensor]:
    """24 boolean tensors [..., frames]: left and right of eleven relations, and two of the whole body."""

    def at(name: str) -> Tensor:
        return joints[..., joint_index(name), :]

    across = at("left_hip") - at("right_hip")
    across = across / across.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    up = torch.zeros_like(across)
    up[..., 1] = 1
    front = torch.linalg.cross(across, up)
    out = []
    for side, other, sign in (("left", "right", 1.0), ("right", "left", -1.0)):
        hand, elbow, shoulder = at(f"{side}_wrist"), at(f"{side}_elbow"), at(f"{side}_shoulder")
        hip, knee, ankle = at(f"{side}_hip"), at(f"{side}_knee"), at(f"{side}_ankle")
        out += [
            hand[..., 1] > at("neck")[..., 1],
            hand[..., 1] < hip[..., 1],
            _ahead(hand - shoulder, front) > 0.2,
            sign * _ahead(hand - shoulder, across) > 0.25,
            sign * _ahead(hand - at("pelvis"), across) < 0.0,
            _bend(shoulder - elbow, hand - elbow) < 1.9,
            _bend(hip - knee, ankle - knee) < 2.2,
            ankle[..., 1] > at(f"{other}_ankle")[..., 1] + 0.15,
            _ahead(ankle - at(f"{other}_ankle"), front) > 0.3,
            sign * _ahead(ankle - at(f"{other}_ankle"), across) > 0.35,
            (hand - knee).norm(dim=-1) < 0.35,
        ]
    out.append((at("left_wrist") - at("right_wrist")).norm(dim=-1) < 0.2)
    spine = at("neck") - at("pelvis")
    out.append(spine[..., 1] < 0.8 * spine.norm(dim=-1))
    return out


def _ahead(vector: Tensor, direction: Tensor) -> Tensor:
    return (vector * direction).sum(dim=-1)


def _bend(a: Tensor, b: Tensor) -> Tensor:
    cosine = (a * b).sum(dim=-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(1e-9)
    return torch.arccos(cosine.clamp(-1, 1))
