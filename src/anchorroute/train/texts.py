"""Every caption of a corpus encoded once: token states lie end to end in half precision, a batch is a gather."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from anchorroute.text import Text, TextEncoder, canonical

_CHUNK = 256


@dataclass(frozen=True)
class TextStore:
    """Encoded captions, found by their canonical spelling."""

    pooled: Float[np.ndarray, "texts e"]
    states: Float[np.ndarray, "pieces e"]
    starts: Int[np.ndarray, "texts"]
    sizes: Int[np.ndarray, "texts"]
    rows: dict[str, int]

    @staticmethod
    def of(encoder: TextEncoder, captions: Iterable[str]) -> "TextStore":
        """Encode what the encoder's own cache does not hold yet."""
        known = sorted({canonical(caption) for caption in captions} | {""})
        pooled: list[np.ndarray] = []
        states: list[np.ndarray] = []
        sizes: list[int] = []
        for first in range(0, len(known), _CHUNK):
            text = encoder(known[first : first + _CHUNK])
            pooled.append(text.pooled.cpu().numpy().astype(np.float16))
            for row, mask in zip(text.tokens.cpu(), text.mask.cpu()):
                states.append(row[mask].numpy().astype(np.float16))
                sizes.append(int(mask.sum()))
        counts = np.array(sizes, np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        return TextStore(
            np.concatenate(pooled), np.concatenate(states), starts, counts, {name: i for i, name in enumerate(known)}
        )

    def row(self, caption: str) -> int:
        """Where a caption is."""
        return self.rows[canonical(caption)]

    def batch(self, rows: Sequence[int] | Int[np.ndarray, "b"]) -> Text:
        """Texts of these rows, padded to the longest."""
        index = np.asarray(rows, np.int64)
        sizes = self.sizes[index]
        place = np.arange(int(sizes.max()))
        inside = place < sizes[:, None]
        pieces = self.states[self.starts[index][:, None] + np.minimum(place, sizes[:, None] - 1)]
        return Text(
            torch.from_numpy(self.pooled[index].astype(np.float32)),
            torch.from_numpy(pieces.astype(np.float32) * inside[..., None]),
            torch.from_numpy(inside),
        )
