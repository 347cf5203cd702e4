"""Training material in one contiguous array: clips are slices of it, so a batch is one gather and needs no workers.

Nothing here is random by itself: `rng(seed, step, salt)` is the only source of chance in a batch, and it is a pure
function of its arguments. Clips lie back to back in `features`; `starts` and `lengths` say where.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from anchorroute.data.humanml3d import Clip
from anchorroute.errors import DataError
from anchorroute.motion import features as feats


def rng(seed: int, step: int, salt: int = 0) -> np.random.Generator:
    """The generator of one step: the same numbers whenever and wherever it is asked for."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, step, salt])))


def torch_rng(seed: int, step: int, salt: int = 0) -> torch.Generator:
    """`rng` for functions that take a torch generator."""
    return torch.Generator().manual_seed(int(rng(seed, step, salt).integers(1 << 62)))


@dataclass(frozen=True)
class Corpus:
    """Clips of one split, unnormalised, with their captions."""

    features: Float32[np.ndarray, "total 263"]
    starts: Int[np.ndarray, "clips"]
    lengths: Int[np.ndarray, "clips"]
    captions: tuple[tuple[str, ...], ...]
    ids: tuple[str, ...]
    weak: np.ndarray  # [clips] bool: captions describe the take, not the clip

    def __len__(self) -> int:
        return len(self.ids)

    @staticmethod
    def of(clips: Iterable[Clip], *, minimum: int = 40) -> "Corpus":
        """Lay clips of at least `minimum` frames end to end."""
        kept = [clip for clip in clips if len(clip.features) >= minimum]
        if not kept:
            raise DataError(
                f"no clip of at least {minimum} frames (2 s): build the data first, or check the split's name"
            )
        lengths = np.array([len(clip.features) for clip in kept], np.int64)
        features = np.empty((int(lengths.sum()), feats.DIM), np.float32)
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        for clip, start, length in zip(kept, starts, lengths):
            features[start : start + length] = clip.features.numpy()
        return Corpus(
            features,
            starts,
            lengths,
            tuple(tuple(clip.captions) for clip in kept),
            tuple(clip.id for clip in kept),
            np.array([clip.weak for clip in kept], bool),
        )

    def subset(self, index: Sequence[int] | np.ndarray) -> "Corpus":
        """Chosen clips, sharing the array."""
        order = np.asarray(index, np.int64)
        return Corpus(
            self.features,
            self.starts[order],
            self.lengths[order],
            tuple(self.captions[i] for i in order),
            tuple(self.ids[i] for i in order),
            self.weak[order],
        )

    def windows(self, generator: np.random.Generator, count: int, frames: int) -> Float[Tensor, "count frames 263"]:
        """Random windows, every frame of the material equally likely to start one as far as clips are long enough."""
        room = np.maximum(self.lengths - frames + 1, 0)
        total = np.cumsum(room)
        if total[-1] == 0:
            raise DataError(
                f"no clip is as long as a training window of {frames} frames: build longer clips or shorten it"
            )
        ticket = generator.integers(total[-1], size=count)
        clip = np.searchsorted(total, ticket, side="right")
        first = self.starts[clip] + ticket - (total[clip] - room[clip])
        return torch.from_numpy(self.features[first[:, None] + np.arange(frames)])

    def padded(
        self, clips: Int[np.ndarray, "count"], offsets: Int[np.ndarray, "count"], lengths: Int[np.ndarray, "count"]
    ) -> Float[Tensor, "count frames 263"]:
        """`lengths` frames of each clip from its offset on, zeros behind."""
        frames = int(lengths.max())
        inside = np.arange(frames) < lengths[:, None]
        row = (self.starts[clips] + offsets)[:, None] + np.minimum(np.arange(frames), lengths[:, None] - 1)
        return torch.from_numpy(self.features[row] * inside[..., None])

    def whole(self, clip: int, *, longest: int = 196) -> Float[Tensor, "1 frames 263"]:
        """One clip from its start, cut to whole tokens."""
        length = min(int(self.lengths[clip]), longest) // 4 * 4
        start = int(self.starts[clip])
        return torch.from_numpy(self.features[start : start + length].copy())[None]

    def fingerprint(self) -> str:
        """A hash of everything that training sees."""
        digest = hashlib.sha256()
        digest.update(repr((self.ids, self.captions, self.lengths.tolist(), self.weak.tolist())).encode())
        for start, length in zip(self.starts, self.lengths):
            digest.update(self.features[start : start + length].tobytes())
        return digest.hexdigest()[:16]
