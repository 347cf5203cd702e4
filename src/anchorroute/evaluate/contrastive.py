"""How the open evaluator learns: a contrastive objective that few clips cannot fool easily.

A thousand captioned clips are learned by heart in minutes, after which scores say what the evaluator remembers. Four
things work against that, each aimed at a way of cheating:

- **soft positives**: clips of a batch whose caption reads the same are positives, clips whose caption means almost
  the same (and names the same sides and directions) are no negatives;
- **spoiled copies**: every motion also stands in the batch reversed, mirrored, with swapped legs, jittered,
  stuttering or sliding. Those are wrong answers to every text, so the space must hold *how* something is done too;
- **augmentation**: crops, speed, jitter, hidden body parts; the root alone must not identify a clip;
- dropout, weight decay and an average of the weights, by the caller.

Everything works on the 67 position numbers of a frame (`evaluator.POSITION_DIM`), in metres.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorroute.evaluate.evaluator import POSITION_DIM, RIC
from anchorroute.motion.skeleton import FPS, MIRROR

DIRECTIONS = re.compile(
    r"\b(left|right|clockwise|counter|anti|forward|backward|back|up|down|sideways|side)", re.IGNORECASE
)
SIDES = re.compile(r"\b(left|right|clockwise|counter|anti)", re.IGNORECASE)


@dataclass(frozen=True)
class ContrastiveConfig:
    """Weights of the objective."""

    temperature: float = 0.1
    near_duplicate: float = 0.9
    crop: float = 0.3
    """At most this share of a clip is cut off."""
    speed: float = 0.15
    jitter_metres: float = 0.01
    hide: float = 0.15
    """Chance of each of root, legs and arms to be hidden."""


def contrastive_loss(
    text: Float[Tensor, "batch e"],
    motion: Float[Tensor, "candidates e"],
    positive: Bool[Tensor, "batch batch"],
    ignored: Bool[Tensor, "batch batch"],
    *,
    temperature: float,
) -> Tensor:
    """Symmetric cross-entropy between texts and motions; rows beyond the batch are negatives of every text.

    Targets are uniform over the positives of a row; ignored pairs are neither.
    """
    count = len(text)
    logits = text @ motion.T / temperature
    allowed = F.pad(~ignored | positive, (0, len(motion) - count), value=True)
    target = F.pad(positive.float(), (0, len(motion) - count))
    forward = _soft_cross_entropy(logits.masked_fill(~allowed, -torch.inf), target)
    square = logits[:, :count].masked_fill(~allowed[:, :count], -torch.inf)
    backward = _soft_cross_entropy(square.T, positive.T.float())
    return (forward + backward) / 2


def _soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    log_probability = logits.log_softmax(dim=1).masked_fill(target == 0, 0.0)
    return -(target / target.sum(dim=1, keepdim=True) * log_probability).sum(dim=1).mean()


def duplicate_masks(
    reading: Int[Tensor, " batch"],
    directions: Int[Tensor, " batch"],
    pooled: Float[Tensor, "batch dt"],
    *,
    near: float,
) -> tuple[Bool[Tensor, "batch batch"], Bool[Tensor, "batch batch"]]:
    """Pairs whose captions read the same, and pairs that mean almost the same with the same directions.

    The frozen encoder hardly separates left from right, so nearness counts only where direction words agree.
    """
    positive = reading[:, None] == reading[None, :]
    unit = F.normalize(pooled, dim=-1)
    ignored = (unit @ unit.T > near) & (directions[:, None] == directions[None, :]) & ~positive
    return positive, ignored


def reading_of(caption: str) -> str:
    """What is left of a caption without case and punctuation: equal readings are positives."""
    return " ".join(re.findall(r"[a-z0-9]+", caption.lower()))


def directions_of(caption: str) -> tuple[str, ...]:
    """The direction words of a caption, sorted, each once."""
    return tuple(sorted(set(DIRECTIONS.findall(caption.lower()))))


def names_a_side(caption: str) -> bool:
    """Whether a mirrored motion would contradict the caption."""
    return SIDES.search(caption) is not None


# Augmentation of one clip [frames, 67]; lengths stay whole multiples of four.


def augment(
    clip: Float[Tensor, "frames 67"], config: ContrastiveConfig, generator: torch.Generator
) -> Float[Tensor, "frames 67"]:
    """A crop at another speed with a little jitter; hidden parts are filled by `hide`, on normalised inputs."""
    draw = torch.rand(3, generator=generator)
    keep = max(int(len(clip) * (1 - config.crop * float(draw[0]))) // 4 * 4, min(40, len(clip) // 4 * 4))
    start = int(float(draw[1]) * (len(clip) - keep + 1))
    clip = clip[start : start + keep]
    rate = 1 + config.speed * (2 * float(draw[2]) - 1)
    clip = retime(clip, rate)
    jitter = torch.randn(clip.shape, generator=generator) * config.jitter_metres
    jitter[:, :3] = 0
    return clip + jitter


def retime(clip: Float[Tensor, "frames 67"], rate: float) -> Float[Tensor, "frames 67"]:
    """The clip ``rate`` times as fast; velocities scale, lengths are whole multiples of four within 40..196."""
    frames = int(min(max(len(clip) / rate, 40), 196)) // 4 * 4
    times = torch.linspace(0, len(clip) - 1, frames)
    low = times.long().clamp_max(len(clip) - 2)
    out = torch.lerp(clip[low], clip[low + 1], (times - low)[:, None])
    out[:, :3] *= len(clip) / frames
    return out


def hide(
    inputs: Float[Tensor, "batch frames 130"], chance: float, generator: torch.Generator
) -> Float[Tensor, "batch frames 130"]:
    """Root, legs or arms of *normalised* inputs replaced by the mean (zero), each with its chance, never all."""
    parts = _part_masks()
    drop = torch.rand(len(inputs), len(parts), generator=generator) < chance
    drop &= ~drop.all(dim=1, keepdim=True)
    hidden = (drop.float() @ parts.float()) > 0
    return inputs * ~hidden[:, None]


def _part_masks() -> Bool[Tensor, "parts 130"]:
    legs, arms = (1, 2, 4, 5, 7, 8, 10, 11), (13, 14, 16, 17, 18, 19, 20, 21)
    masks = torch.zeros(3, POSITION_DIM + 63, dtype=torch.bool)
    masks[0, :3] = True
    for row, joints in ((1, legs), (2, arms)):
        for joint in joints:
            for offset in (4, POSITION_DIM):
                masks[row, offset + 3 * (joint - 1) : offset + 3 * joint] = True
    return masks


# Spoiling: wrong answers made from right ones.


def spoil(clip: Float[Tensor, "frames 67"], caption: str, generator: torch.Generator) -> Float[Tensor, "frames 67"]:
    """A copy that no longer fits its caption: one kind of damage, drawn at random, strong enough to see."""
    kinds = [reverse, swap_legs, jitter, stutter, slide]
    if names_a_side(caption):
        kinds += [_mirror, _mirror]
    kind = kinds[int(torch.randint(len(kinds), (), generator=generator))]
    return kind(clip, generator)


def mirror(clip: Float[Tensor, "frames 67"]) -> Float[Tensor, "frames 67"]:
    """The motion seen in a mirror: x changes sign, left and right joints change names."""
    out = clip.clone()
    out[:, :2] *= -1  # yaw velocity and sideways velocity
    ric = clip[:, RIC].unflatten(-1, (21, 3))[:, [j - 1 for j in MIRROR[1:]]].clone()
    ric[..., 0] *= -1
    out[:, RIC] = ric.flatten(-2)
    return out


def _mirror(clip: Tensor, generator: torch.Generator) -> Tensor:
    del generator
    return mirror(clip)


def reverse(clip: Float[Tensor, "frames 67"], generator: torch.Generator | None = None) -> Float[Tensor, "frames 67"]:
    """The motion backwards in time: poses in reverse order, root velocities turned round."""
    del generator
    out = clip.flip(0)
    out[:, :3] = -out[:, :3].roll(-1, dims=0)
    out[-1, :3] = 0
    return out


def swap_legs(clip: Float[Tensor, "frames 67"], generator: torch.Generator) -> Float[Tensor, "frames 67"]:
    """In random half-second windows left and right legs exchange positions without a mirror."""
    out = clip.clone()
    ric = clip[:, RIC].unflatten(-1, (21, 3))
    swapped = ric[:, [j - 1 for j in MIRROR[1:]]]
    legs = torch.tensor([j in (1, 2, 4, 5, 7, 8, 10, 11) for j in range(1, 22)])
    windows = torch.rand(len(clip) // 10 + 1, generator=generator).repeat_interleave(10)[: len(clip)] < 0.5
    out[:, RIC] = torch.where(windows[:, None, None] & legs[:, None], swapped, ric).flatten(-2)
    return out


def jitter(clip: Float[Tensor, "frames 67"], generator: torch.Generator) -> Float[Tensor, "frames 67"]:
    """Every joint trembles by 1 to 5 cm."""
    out = clip.clone()
    scale = 0.01 + 0.04 * float(torch.rand((), generator=generator))
    out[:, 3:] += scale * torch.randn(out[:, 3:].shape, generator=generator)
    return out


def stutter(clip: Float[Tensor, "frames 67"], generator: torch.Generator) -> Float[Tensor, "frames 67"]:
    """Half to nine tenths of the frames are lost, the last good pose is held; the root's way is kept."""
    share = 0.5 + 0.4 * float(torch.rand((), generator=generator))
    kept = torch.rand(len(clip), generator=generator) >= share
    kept[0] = True
    index = torch.where(kept, torch.arange(len(clip)), 0).cummax(dim=0).values
    out = clip.clone()
    out[:, 3:] = clip[index, 3:]
    return out


def slide(clip: Float[Tensor, "frames 67"], generator: torch.Generator) -> Float[Tensor, "frames 67"]:
    """The body drifts at 0.4 to 1.2 m/s in a direction fixed to its heading."""
    draw = torch.rand(2, generator=generator)
    angle, speed = 2 * torch.pi * draw[0], (0.4 + 0.8 * draw[1]) / FPS
    out = clip.clone()
    out[:, 1] += speed * angle.cos()
    out[:, 2] += speed * angle.sin()
    return out


def pad(clips: Sequence[Float[Tensor, "frames 67"]]) -> tuple[Float[Tensor, "batch frames 67"], Int[Tensor, " batch"]]:
    """Clips as one tensor with zeros behind, and their lengths."""
    lengths = torch.tensor([len(clip) for clip in clips])
    return torch.nn.utils.rnn.pad_sequence(list(clips), batch_first=True), lengths
