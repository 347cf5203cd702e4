"""Anchors drawn from motion: as the protocol asks for evaluation, and as people place them for training.

Evaluation (`sample_anchors`): K frames uniform without replacement, or for the body K cells (frame, joint) of the six
joints of the sparse-control protocol. Training (`training_anchors`): K log-uniform, a part of the samples placed at
events that a person would pick (a foot lands, the path turns, a hand is at its farthest, a pause, the end), a part of
the body's set densely, a part mixed from two families. Values are always the motion's own positions.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from anchorroute.anchors import BODY, PLANAR, ROOT3D, Family, Observed
from anchorroute.data.humanml3d import Clip
from anchorroute.errors import AnchorError
from anchorroute.motion import features
from anchorroute.motion.skeleton import FPS

#: Pelvis, feet, head, wrists: the joints of the six-point protocol.
SIX = (0, 10, 11, 15, 20, 21)
FEET = (10, 11)

Motion = Float[np.ndarray, "frames 22 3"]


@dataclass(frozen=True)
class AnchorSampling:
    """How training draws anchors; shares are of all samples, `dense` and `six` of the body's."""

    most: int = 32
    placed: float = 0.3
    mixed: float = 0.15
    six: float = 0.8
    dense: float = 0.2
    dense_frames: tuple[float, float] = (0.05, 0.4)


def clip_generator(clip_id: str, k: int, repeat: int) -> np.random.Generator:
    """The generator that a clip's evaluation anchors come from: the same for every method, run and machine."""
    digest = hashlib.sha256(f"{clip_id}/{k}/{repeat}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def sample_anchors(clip: Clip, family: Family, k: int, generator: np.random.Generator) -> Observed:
    """K anchors of a clip by the evaluation protocol; K is cut to what the clip has."""
    return draw(features.to_joints(clip.features), family, k, generator)


def draw(joints: Float[Tensor, "frames 22 3"], family: Family, k: int, generator: np.random.Generator) -> Observed:
    """K anchors of a canonical motion: uniform frames, for the body uniform cells of the six joints."""
    pool = SIX if family.name == BODY.name else family.joints
    frames, chosen = _cells(len(joints), pool, k, generator)
    return _observe(joints, family, frames, chosen)


def all_six(
    joints: Float[Tensor, "frames 22 3"], generator: np.random.Generator, *, reading: str = "ratio", amount: float = 0.3
) -> Observed:
    """The key-joint table's anchors: all six joints at a `ratio` of frames, every `stride`-th frame, or a `count`."""
    length = len(joints)
    if reading == "stride":
        frames = np.arange(0, length, round(amount))
    elif reading in {"ratio", "count"}:
        count = amount * length if reading == "ratio" else amount
        frames = generator.choice(length, min(length, max(1, int(count))), replace=False)
    else:
        raise AnchorError(f"reading {reading!r} of the six-point protocol is unknown; there are ratio, stride, count")
    grid, chosen = np.meshgrid(np.sort(frames), SIX, indexing="ij")
    return _observe(joints, BODY, grid.ravel(), chosen.ravel())


def training_anchors(
    joints: Float[Tensor, "frames 22 3"],
    family: Family,
    generator: np.random.Generator,
    config: AnchorSampling | None = None,
) -> dict[str, Observed]:
    """Anchors of one training sample by family: `family`'s own, and in a mixed sample another one's beside them."""
    config = config or AnchorSampling()
    own = {family.name: _training_draw(joints, family, generator, config)}
    if generator.random() >= config.mixed:
        return own
    other = BODY if family.name != BODY.name else (ROOT3D, PLANAR)[generator.integers(2)]
    beside = _training_draw(joints, other, generator, config)
    body = own[BODY.name] if family.name == BODY.name else beside
    # The pelvis belongs to the root's family here, so the body's rows of it go: no cell is set twice.
    rest = body[body.joints != 0]
    return {**own, other.name: beside, BODY.name: rest} if len(rest) else own


def _training_draw(
    joints: Float[Tensor, "frames 22 3"], family: Family, generator: np.random.Generator, config: AnchorSampling
) -> Observed:
    length = len(joints)
    k = min(length, round(float(np.exp(generator.uniform(0.0, np.log(config.most + 0.49))))))
    k = max(1, k)
    pool: Sequence[int] = family.joints
    if family.name == BODY.name:
        if generator.random() < config.dense:
            return all_six(joints, generator, amount=generator.uniform(*config.dense_frames))
        pool = _some(SIX if generator.random() < config.six else family.joints, generator)
    if generator.random() < config.placed:
        frames, chosen = _placed_cells(joints.detach().cpu().numpy(), pool, k, generator)
    else:
        frames, chosen = _cells(length, pool, k, generator)
    return _observe(joints, family, frames, chosen)


def _some(pool: Sequence[int], generator: np.random.Generator) -> list[int]:
    """A non-empty subset, every size as likely as any other up to six."""
    size = int(generator.integers(1, min(len(pool), 6) + 1))
    return sorted(int(joint) for joint in generator.choice(pool, size, replace=False))


def _cells(
    length: int, pool: Sequence[int], k: int, generator: np.random.Generator
) -> tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " cells"]]:
    """K cells of the grid (frame, joint), uniform without replacement, in the order of time."""
    total = length * len(pool)
    cells = np.sort(generator.choice(total, min(k, total), replace=False))
    return cells // len(pool), np.asarray(pool)[cells % len(pool)]


def _observe(
    joints: Float[Tensor, "frames 22 3"],
    family: Family,
    frames: Int[np.ndarray, " cells"],
    chosen: Int[np.ndarray, " cells"],
) -> Observed:
    """The motion's own positions as anchors of the family."""
    at = torch.from_numpy(np.asarray(frames, dtype=np.int64))
    index = torch.from_numpy(np.asarray(chosen, dtype=np.int64))
    open_axes = torch.tensor([axis not in family.coords for axis in range(3)])
    return Observed(
        frames=at.float(),
        joints=index,
        values=joints[at, index].detach().cpu().float().masked_fill(open_axes, 0.0),
        free=open_axes.expand(len(at), 3).clone(),
        tolerance=torch.full((len(at),), 0.005),
    )


def _placed_cells(
    motion: Motion, pool: Sequence[int], k: int, generator: np.random.Generator
) -> tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " cells"]]:
    """K cells at events of their joints, spread over the pool; where events run out, evenly spaced frames."""
    share = np.bincount(np.arange(k) % len(pool), minlength=len(pool))
    frames: list[np.ndarray] = []
    chosen: list[np.ndarray] = []
    for joint, count in zip(generator.permutation(pool), share):
        if count:
            picked = _pick(events(motion, int(joint)), len(motion), int(count), generator)
            frames.append(picked)
            chosen.append(np.full(len(picked), joint))
    return np.concatenate(frames), np.concatenate(chosen)


def _pick(
    candidates: Int[np.ndarray, " events"], length: int, count: int, generator: np.random.Generator
) -> Int[np.ndarray, " picked"]:
    """`count` distinct frames: events first, then frames of an even grid that starts anywhere."""
    if count >= length:
        return np.arange(length)
    picked = generator.choice(candidates, min(count, len(candidates)), replace=False)
    grid = np.floor((np.arange(count) + generator.random()) * length / count).astype(np.int64)
    rest = np.setdiff1d(np.concatenate((grid, np.arange(length))), picked, assume_unique=False)
    even = np.intersect1d(grid, rest)
    spare = generator.permutation(np.setdiff1d(rest, even))
    missing = count - len(picked)
    return np.sort(np.concatenate((picked, np.concatenate((generator.permutation(even), spare))[:missing])))


def events(motion: Motion, joint: int) -> Int[np.ndarray, " events"]:
    """Frames at which a person would set this joint: both ends, and what happens in between."""
    hits = np.zeros(len(motion), dtype=bool)
    hits[[0, -1]] = True
    if len(motion) < 8:
        return np.flatnonzero(hits)
    path = motion[:, joint]
    hits |= _pauses(path)
    if joint == 0:
        hits |= _turns(path)
    for foot in FEET:
        if joint in {0, foot}:
            hits |= _landings(motion[:, foot])
    if joint not in {0, *FEET}:
        hits |= _extremes(path - motion[:, 0])
    return np.flatnonzero(hits)


def _smooth(path: Float[np.ndarray, "frames dims"], sigma: float = 1.5) -> Float[np.ndarray, "frames dims"]:
    return np.asarray(gaussian_filter1d(path, sigma, axis=0, mode="nearest"))


def _peaks(signal: Float[np.ndarray, " frames"]) -> Bool[np.ndarray, " frames"]:
    inner = (signal[1:-1] > signal[:-2]) & (signal[1:-1] >= signal[2:])
    return np.concatenate(([False], inner, [False]))


def _speed(path: Float[np.ndarray, "frames dims"]) -> Float[np.ndarray, " frames"]:
    return np.asarray(np.linalg.norm(np.gradient(_smooth(path), axis=0), axis=-1) * FPS)


def _pauses(path: Float[np.ndarray, "frames 3"]) -> Bool[np.ndarray, " frames"]:
    """Where a joint is slower than before and after, and clearly slower than usual."""
    speed = _speed(path)
    return _peaks(-speed) & (speed < 0.5 * speed.mean())


def _landings(foot: Float[np.ndarray, "frames 3"]) -> Bool[np.ndarray, " frames"]:
    """The first frame of every ground contact."""
    still = _speed(foot) < 0.6
    return still & ~np.concatenate(([True], still[:-1]))


def _turns(root: Float[np.ndarray, "frames 3"]) -> Bool[np.ndarray, " frames"]:
    """Where the path over the floor bends most, while it is being walked."""
    velocity = np.gradient(_smooth(root[:, [0, 2]], 3.0), axis=0) * FPS
    speed = np.linalg.norm(velocity, axis=-1)
    rate = np.abs(np.gradient(np.unwrap(np.arctan2(velocity[:, 0], velocity[:, 1])))) * FPS
    return _peaks(rate) & (rate > 0.5) & (speed > 0.2)


def _extremes(relative: Float[np.ndarray, "frames 3"]) -> Bool[np.ndarray, " frames"]:
    """Where a joint is highest, lowest, or farthest from the pelvis."""
    path = _smooth(relative)
    return _peaks(path[:, 1]) | _peaks(-path[:, 1]) | _peaks(np.linalg.norm(path, axis=-1))
