"""What a table asks of a generator: clips with their text, length, anchors and seed, fixed for all variants.

Anchors depend on (clip, K, repeat) alone and seeds on (clip, repeat) alone, so every variant of a table meets the
same anchors from the same random numbers, and differences between variants can be paired.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from anchorroute.data.anchor_sampling import all_six, clip_generator, sample_anchors
from anchorroute.data.humanml3d import Clip
from anchorroute.errors import DataError
from anchorroute.motion import features as feats
from anchorroute.observation import Family, Observed

SHORTEST, LONGEST, TOKEN = 40, 196, 4
SUBSET_SALT = "subset"


@dataclass(frozen=True)
class Job:
    """One motion to be generated; `clip` is the real one, cut to the length that is asked for."""

    clip: Clip
    caption: str
    observed: Observed
    seed: int

    @property
    def length(self) -> int:
        """Frames, a multiple of four."""
        return self.clip.frames


def usable(clips: Sequence[Clip]) -> list[Clip]:
    """Captioned clips of two seconds or more, cut to whole tokens, at most 196 frames."""
    kept = []
    for clip in clips:
        frames = min(clip.frames, LONGEST) // TOKEN * TOKEN
        if frames >= SHORTEST and clip.captions and not clip.weak and not clip.mirrored:
            kept.append(replace(clip, features=clip.features[:frames]))
    if not kept:
        raise DataError(f"none of {len(clips)} clips has a caption and {SHORTEST} frames: nothing to evaluate on.")
    return kept


def subset(clips: Sequence[Clip], count: int) -> list[Clip]:
    """A fixed subset, the same on every machine and nested: a larger one holds every smaller one."""
    order = sorted(clips, key=lambda clip: _number(f"{SUBSET_SALT}/{clip.id}"))
    return order[:count]


def nothing_observed() -> Observed:
    """No anchors."""
    return Observed(
        torch.zeros(0),
        torch.zeros(0, dtype=torch.long),
        torch.zeros(0, 3),
        torch.zeros(0, 3, dtype=torch.bool),
        torch.zeros(0),
    )


def text_jobs(clips: Sequence[Clip], repeat: int) -> list[Job]:
    """Text alone."""
    return [Job(clip, caption(clip, repeat), nothing_observed(), seed(clip, repeat)) for clip in clips]


def multimodal_jobs(clips: Sequence[Clip], generations: int) -> list[Job]:
    """Every clip's first caption several times, clip after clip."""
    return [
        Job(clip, clip.captions[0], nothing_observed(), _number(f"multimodal/{clip.id}/{n}") % 2**62)
        for clip in clips
        for n in range(generations)
    ]


def anchor_jobs(clips: Sequence[Clip], family: Family, k: int, repeat: int) -> list[Job]:
    """Text and K anchors of a family, taken from the real clip."""
    return [
        Job(
            clip,
            caption(clip, repeat),
            sample_anchors(clip, family, k, clip_generator(clip.id, k, repeat)),
            seed(clip, repeat),
        )
        for clip in clips
    ]


def six_point_jobs(clips: Sequence[Clip], reading: str, amount: float, repeat: int) -> list[Job]:
    """Text and all six joints at a share of the frames, at every n-th frame, or at n frames."""
    jobs = []
    for clip in clips:
        generator = clip_generator(f"{clip.id}/{reading}", round(100 * amount), repeat)
        observed = all_six(feats.to_joints(clip.features), generator, reading=reading, amount=amount)
        jobs.append(Job(clip, caption(clip, repeat), observed, seed(clip, repeat)))
    return jobs


def caption(clip: Clip, repeat: int) -> str:
    """One of the clip's captions, another one in another repeat."""
    return clip.captions[_number(f"caption/{clip.id}/{repeat}") % len(clip.captions)]


def seed(clip: Clip, repeat: int) -> int:
    """The seed of the clip's motion."""
    return _number(f"seed/{clip.id}/{repeat}") % 2**62


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
