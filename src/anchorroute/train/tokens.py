"""Every clip of a corpus as tokens, encoded once and kept on disk under the hash of the encoder and the data.

A clip is tokenised from several first frames (`offsets`), so that the networks see more than one cut of it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute.errors import DataError
from anchorroute.text import default_cache
from anchorroute.tokenizer import PAD, RATE, Tokenizer
from anchorroute.train.corpus import Corpus

_CHUNK = 64


@dataclass(frozen=True)
class TokenStore:
    """Token ids of all clips and offsets, end to end."""

    ids: Int[np.ndarray, "total levels"]
    starts: Int[np.ndarray, "offsets clips"]
    lengths: Int[np.ndarray, "offsets clips"]  # in tokens
    offsets: tuple[int, ...]  # in frames

    @staticmethod
    def of(
        tokenizer: Tokenizer, corpus: Corpus, offsets: Sequence[int] = (0, 2), cache: Path | None = None
    ) -> "TokenStore":
        """Encode, or read what an earlier call encoded."""
        offsets = tuple(offsets)
        lengths = np.stack([(corpus.lengths - offset) // RATE for offset in offsets]).clip(max=49)
        starts = (np.cumsum(lengths) - lengths.reshape(-1)).reshape(lengths.shape)
        key = f"{encoder_hash(tokenizer)}-{corpus.fingerprint()}-{'-'.join(map(str, offsets))}"
        path = (cache or default_cache()) / "tokens" / f"{key}.npy"
        if path.exists():
            return TokenStore(np.load(path, allow_pickle=False), starts, lengths, offsets)
        ids = np.empty((int(lengths.sum()), tokenizer.config.levels), np.int16)
        for row, offset in enumerate(offsets):
            order = np.argsort(lengths[row], kind="stable")
            for first in range(0, len(order), _CHUNK):
                clips = order[first : first + _CHUNK]
                sizes = lengths[row, clips]
                features = corpus.padded(clips, np.full(len(clips), offset), RATE * sizes)
                device = tokenizer.mean.device
                with torch.no_grad():
                    z = tokenizer.encode(features.to(device), torch.from_numpy(RATE * sizes).to(device)).cpu().numpy()
                for clip, size, found in zip(clips, sizes, z):
                    ids[starts[row, clip] : starts[row, clip] + size] = found[:size]
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{torch.initial_seed() % 10**6}.part")
        with temporary.open("wb") as file:
            np.save(file, ids, allow_pickle=False)
        temporary.replace(path)
        return TokenStore(ids, starts, lengths, offsets)

    def batch(self, clips: Int[np.ndarray, "b"], variants: Int[np.ndarray, "b"]) -> Int[Tensor, "b l q"]:
        """Ids of these clips cut from these offsets, padded with `PAD`."""
        sizes = self.lengths[variants, clips]
        place = np.arange(int(sizes.max()))
        inside = place < sizes[:, None]
        rows = self.starts[variants, clips][:, None] + np.minimum(place, sizes[:, None] - 1)
        ids = np.where(inside[..., None], self.ids[rows], PAD).astype(np.int64)
        return torch.from_numpy(ids)

    def windows(
        self, corpus: Corpus, generator: np.random.Generator, count: int, size: int
    ) -> tuple[Int[Tensor, "count size q"], Float[Tensor, "count frames 263"]]:
        """Random windows of `size` tokens with the frames that they stand for."""
        room = np.maximum(self.lengths.reshape(-1) - size + 1, 0)
        total = np.cumsum(room)
        if total[-1] == 0:
            raise DataError(f"no clip is as long as a training window of {size} tokens: shorten the window")
        ticket = generator.integers(total[-1], size=count)
        place = np.searchsorted(total, ticket, side="right")
        first = ticket - (total[place] - room[place])
        rows = (self.starts.reshape(-1)[place] + first)[:, None] + np.arange(size)
        variant, clip = np.divmod(place, self.lengths.shape[1])
        frame = corpus.starts[clip] + np.array(self.offsets)[variant] + RATE * first
        features = corpus.features[frame[:, None] + np.arange(RATE * size)]
        return torch.from_numpy(self.ids[rows].astype(np.int64)), torch.from_numpy(features)


def encoder_hash(tokenizer: Tokenizer) -> str:
    """A hash of all that decides which tokens a clip gets; the decoder is no part of it."""
    digest = hashlib.sha256(repr(tokenizer.config).encode())
    for name, tensor in sorted(tokenizer.state_dict().items()):
        if not name.startswith("decoder."):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
