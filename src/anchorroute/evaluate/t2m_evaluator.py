"""The official text-motion evaluator (T2M, 2022): its three networks, its files, its normalisation.

Nothing of it may be shipped, so the user brings the folder; parameter names follow its checkpoint
(``text_mot_match/model/finest.tar``, loaded with ``weights_only``). Two traps, both handled here:

- its mean and std are *not* the data set's: the std of root and contacts is 25 times smaller. Features come in
  metres and are normalised with the evaluator's own files, so nothing is normalised twice or with the wrong table;
- the movement encoder drops the four contact channels, and its last unit sees three frames past the end. Frames
  beyond a clip's length are set to zero after normalisation, as real clips are.

Lengths are whole multiples of four frames. The output order is the input's (the original sorts by length).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from anchorroute.errors import CheckpointError, DataError
from anchorroute.evaluate.word_vectors import PARTS_OF_SPEECH, WORD_DIM, Words, WordVectors

MOTION_DIM = 263
CONTACTS = 4
UNIT = 4
MAX_FRAMES = 196
EMBED = 512


class MovementEncoder(nn.Module):
    """Four frames of 259 numbers to one movement of 512."""

    def __init__(self, inputs: int = MOTION_DIM - CONTACTS, hidden: int = 512, outputs: int = 512) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv1d(inputs, hidden, 4, 2, 1),
            nn.Dropout(0.2),
            nn.LeakyReLU(0.2),
            nn.Conv1d(hidden, outputs, 4, 2, 1),
            nn.Dropout(0.2),
            nn.LeakyReLU(0.2),
        )
        self.out_net = nn.Linear(outputs, outputs)

    def forward(self, motion: Float[Tensor, "batch frames 259"]) -> Float[Tensor, "batch units 512"]:
        """Movements of normalised features without contacts."""
        movements: Tensor = self.out_net(self.main(motion.transpose(1, 2)).transpose(1, 2))
        return movements


class _RecurrentHead(nn.Module):
    """A bidirectional GRU with a learned first state; both last states to an embedding."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.input_emb = nn.Linear(inputs, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.output_net = nn.Sequential(
            nn.Linear(2 * hidden, hidden), nn.LayerNorm(hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, outputs)
        )
        self.hidden = nn.Parameter(torch.randn(2, 1, hidden))

    def forward(self, sequence: Float[Tensor, "batch steps d"], lengths: Int[Tensor, " batch"]) -> Tensor:
        """One embedding a sequence; steps at and beyond ``lengths`` are never read."""
        packed = pack_padded_sequence(self.input_emb(sequence), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed, self.hidden.repeat(1, len(lengths), 1))
        embedding: Tensor = self.output_net(torch.cat([last[0], last[1]], dim=-1))
        return embedding


class MotionEncoder(_RecurrentHead):
    """Movements to the shared space."""

    def __init__(self) -> None:
        super().__init__(512, 1024, EMBED)


class TextEncoder(_RecurrentHead):
    """Word vectors and parts of speech to the shared space."""

    def __init__(self) -> None:
        super().__init__(WORD_DIM, 512, EMBED)
        self.pos_emb = nn.Linear(len(PARTS_OF_SPEECH), WORD_DIM)

    def embed(self, words: Words) -> Float[Tensor, "batch 512"]:
        """Embeddings of looked-up captions."""
        embedding: Tensor = self(words.vectors + self.pos_emb(words.parts), words.lengths)
        return embedding


@dataclass(frozen=True)
class T2MStatistics:
    """The evaluator's own mean and std (``meta/mean.npy``, ``meta/std.npy``), never the data set's."""

    mean: Float[Tensor, "263"]
    std: Float[Tensor, "263"]


class T2MEvaluator(nn.Module):
    """The three networks behind the evaluator seam; captions are ``word/POS`` tokens joined by spaces."""

    id = "t2m"
    mean: Tensor
    std: Tensor

    def __init__(self, statistics: T2MStatistics, words: WordVectors | None = None) -> None:
        super().__init__()
        self.movement_encoder = MovementEncoder()
        self.motion_encoder = MotionEncoder()
        self.text_encoder = TextEncoder()
        self.register_buffer("mean", statistics.mean, persistent=False)
        self.register_buffer("std", statistics.std, persistent=False)
        self.words = words
        self.eval()

    @classmethod
    def load(cls, folder: Path) -> "T2MEvaluator":
        """Load the published layout from its top folder (the one that holds ``checkpoints/`` or ``t2m/``)."""
        home = _home(folder)
        meta = next(
            (home / name / "meta" for name in ("Comp_v6_KLD005", "Comp_v6_KLD01") if (home / name).is_dir()), None
        )
        weights = home / "text_mot_match" / "model" / "finest.tar"
        if meta is None or not weights.is_file():
            raise CheckpointError(
                f"{home} is not the T2M evaluator: it needs text_mot_match/model/finest.tar and Comp_v6_KLD005/meta."
            )
        mean, std = (torch.from_numpy(np.load(meta / f"{name}.npy")).float() for name in ("mean", "std"))
        glove = next(
            (place / "glove" for place in (folder, home, home.parent.parent) if (place / "glove").is_dir()), None
        )
        words = None if glove is None else WordVectors.load(glove)
        evaluator = cls(T2MStatistics(mean, std), words)
        evaluator._load_weights(weights)
        return evaluator

    def _load_weights(self, path: Path) -> None:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        for name in ("movement_encoder", "text_encoder", "motion_encoder"):
            if name not in saved:
                raise CheckpointError(f'{path} has no "{name}"; it holds {", ".join(map(str, saved))}.')
            try:
                getattr(self, name).load_state_dict(saved[name])
            except RuntimeError as error:
                raise CheckpointError(f"{path}: {name} has other shapes than the evaluator's. {error}") from error

    @torch.no_grad()
    def motion(
        self, features: Float[Tensor, "batch frames 263"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch 512"]:
        """Embeddings of features in metres; each clip is read up to its last whole unit of four frames."""
        units = lengths // UNIT
        if int(units.min()) < 1:
            raise DataError("A clip shorter than four frames has no movement to embed.")
        frames = int(units.max()) * UNIT
        normal = (features[:, :frames] - self.mean) / self.std
        inside = torch.arange(frames, device=features.device) < (units * UNIT)[:, None]
        # Always the same width: the last unit of a short clip would otherwise depend on its batch mates.
        padded = nn.functional.pad(normal * inside[..., None], (0, 0, 0, max(MAX_FRAMES - frames, 0)))
        movements = self.movement_encoder(padded[..., :-CONTACTS])
        embedding: Tensor = self.motion_encoder(movements, units)
        return embedding

    @torch.no_grad()
    def text(self, captions: list[str]) -> Float[Tensor, "batch 512"]:
        """Embeddings of captions written as HumanML3D's token column, ``a/DET man/NOUN walk/VERB``."""
        if self.words is None:
            raise CheckpointError("No word table: put the glove folder beside checkpoints/ to embed text.")
        return self.text_encoder.embed(self.words([caption.split() for caption in captions]))


def _home(folder: Path) -> Path:
    for place in (folder / "checkpoints" / "t2m", folder / "t2m", folder):
        if (place / "text_mot_match").is_dir():
            return place
    raise CheckpointError(
        f"No text_mot_match folder under {folder}: unpack the evaluator as checkpoints/t2m/text_mot_match."
    )
