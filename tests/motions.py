"""Made-up motion for tests: a body that walks a curve, built from smooth joint angles, so that bones stay rigid."""

import math

import torch
from torch import Tensor

from anchorroute.motion import body
from anchorroute.motion.canonical import canonicalise
from anchorroute.motion.rotation import normalise, quat_about_y, quat_multiply


def walk(frames: int = 90, seed: int = 0, speed: float = 1.2, turn: float = 0.4) -> Tensor:
    """Canonical joints [frames, 22, 3] of a swinging body on a curved path."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.arange(frames) / 20.0
    phase = 2 * math.pi * torch.rand(22, generator=generator)
    swing = 0.25 * torch.randn(22, 3, generator=generator)
    waves = torch.sin(2 * math.pi * 0.9 * t[:, None] + phase)
    local = normalise(torch.cat((torch.ones(frames, 22, 1), waves[..., None] * swing), -1))
    yaw = turn * t
    local[:, 0] = quat_multiply(quat_about_y(yaw), local[:, 0])
    steps = speed / 20.0 * torch.stack((yaw.sin(), torch.zeros(frames), yaw.cos()), -1)
    root = steps.cumsum(0) + torch.tensor([0.0, 0.95, 0.0])
    root[:, 1] += 0.03 * torch.sin(4 * math.pi * 0.9 * t)
    return canonicalise(body.forward_kinematics(root, local))[0]
