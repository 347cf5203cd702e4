"""Ways to make a real motion worse by a known amount: what an evaluator must notice to be trusted.

Each takes joints ``[frames, 22, 3]`` in metres, an amount between 0 (untouched) and 1, and a generator, and returns
joints of the same length. They imitate what generators do wrong: jitter, stutter, feet that slide, limbs that
change sides, motion that runs backwards.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.motion.skeleton import FPS, MIRROR, joint_index

Clip = Float[Tensor, "frames 22 3"]
Degradation = Callable[[Clip, float, torch.Generator], Clip]

NOISE_METRES = 0.05
SLIDE_SPEED = 1.0
WINDOW = 10
LEGS = [joint_index(f"{side}_{part}") for side in ("left", "right") for part in ("hip", "knee", "ankle", "foot")]


def noise(joints: Clip, amount: float, generator: torch.Generator) -> Clip:
    """Independent jitter of every joint, 5 cm in each direction at most (one standard deviation at amount 1)."""
    return joints + amount * NOISE_METRES * torch.randn(joints.shape, generator=generator)


def frame_drop(joints: Clip, amount: float, generator: torch.Generator) -> Clip:
    """Frames are lost and the last good one is held: at amount 1 nine frames in ten."""
    kept = torch.rand(len(joints), generator=generator) >= 0.9 * amount
    kept[0] = True
    index = torch.where(kept, torch.arange(len(joints)), 0).cummax(dim=0).values
    return joints[index]


def foot_slide(joints: Clip, amount: float, generator: torch.Generator) -> Clip:
    """The whole body drifts over the floor in one random direction, at 1 m/s at most."""
    angle = 2 * torch.pi * torch.rand((), generator=generator)
    seconds = torch.arange(len(joints)) / FPS
    drift = amount * SLIDE_SPEED * seconds[:, None] * torch.stack([angle.cos(), torch.zeros(()), angle.sin()])
    return joints + drift[:, None]


def limb_swap(joints: Clip, amount: float, generator: torch.Generator) -> Clip:
    """In a share of half-second windows left and right legs, or left and right arms, exchange their positions."""
    out = joints.clone()
    swapped = joints[:, list(MIRROR)]
    legs = torch.zeros(joints.shape[1], dtype=torch.bool)
    legs[LEGS] = True
    for start in range(0, len(joints), WINDOW):
        draw = torch.rand(2, generator=generator)
        if float(draw[0]) < amount:
            limbs = legs if float(draw[1]) < 0.5 else ~legs
            window = slice(start, start + WINDOW)
            out[window, limbs] = swapped[window, limbs]
    return out


def time_reversal(joints: Clip, amount: float, generator: torch.Generator) -> Clip:
    """The clip runs backwards, with probability ``amount``."""
    backwards = float(torch.rand((), generator=generator)) < amount
    return joints.flip(0) if backwards else joints


@dataclass(frozen=True)
class Wrong:
    """One kind of damage with its name in tables."""

    name: str
    apply: Degradation


DEGRADATIONS = (
    Wrong("noise", noise),
    Wrong("frame drop", frame_drop),
    Wrong("foot slide", foot_slide),
    Wrong("limb swap", limb_swap),
    Wrong("time reversal", time_reversal),
)
