"""The open evaluator: texts and motions in one space of 64 numbers, trained on data anyone may use.

`Evaluator` is the seam that every table goes through; `OpenEvaluator` is ours, `t2m_evaluator.T2MEvaluator` the
official one. Figures of one evaluator mean nothing beside figures of another.

What is particular about ours:

- it reads the 67 numbers of a frame from which a viewer's joints are recovered, and takes velocities by differences
  itself. Rotation, velocity and contact channels of a *generated* motion may contradict its joints; they cannot move
  these figures;
- embeddings have length one, so distances lie between 0 and 2 and FID between 0 and 4, whatever the weights;
- padding is masked before every convolution: an embedding does not depend on batch mates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from anchorroute.errors import CheckpointError, DataError

POSITION_DIM = 67
RIC = slice(4, 67)
INPUT_DIM = POSITION_DIM + 63
RATE = 4


class Evaluator(Protocol):
    """Whatever embeds texts and motions so that they can be compared; features are in metres, unnormalised."""

    @property
    def id(self) -> str:
        """Which evaluator: written beside every figure."""

    def text(self, captions: list[str]) -> Float[Tensor, "batch e"]:
        """Embeddings of captions."""

    def motion(
        self, features: Float[Tensor, "batch frames 263"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch e"]:
        """Embeddings of motions."""


class EncodedText(Protocol):
    """What a text encoder returns."""

    @property
    def pooled(self) -> Float[Tensor, "batch dt"]:
        """One vector a text."""

    @property
    def tokens(self) -> Float[Tensor, "batch words dt"]:
        """One vector a token."""

    @property
    def mask(self) -> Bool[Tensor, "batch words"]:
        """Where tokens are."""


class EncodesText(Protocol):
    """A frozen text encoder."""

    def __call__(self, texts: list[str]) -> EncodedText:
        """Encode a batch."""


@dataclass(frozen=True)
class EvaluatorConfig:
    """Sizes and regularisation; the dropout is high because a thousand captioned clips are few."""

    embed: int = 64
    width: int = 192
    layers: int = 2
    heads: int = 4
    text_dim: int = 384
    text_width: int = 192
    dropout: float = 0.3
    name: str = "open-1"


class OpenEvaluator(nn.Module):
    """Two towers over a frozen text encoder; only the towers are learned."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: EvaluatorConfig, text_encoder: EncodesText | None = None) -> None:
        super().__init__()
        self.config = config
        self.motion_tower = MotionTower(config)
        self.text_tower = TextTower(config)
        self.register_buffer("mean", torch.zeros(INPUT_DIM))
        self.register_buffer("std", torch.ones(INPUT_DIM))
        self._weights = ""
        self._text_encoder = (text_encoder,)  # in a tuple: a frozen encoder is no part of these weights

    @classmethod
    def load(cls, path: Path) -> "OpenEvaluator":
        """Read a checkpoint folder; texts go through the frozen encoder that ships."""
        from anchorroute import checkpoint

        loaded = checkpoint.load(path, kind=cls.__name__, build=cls.rebuild)
        evaluator: OpenEvaluator = loaded.module
        evaluator._weights = loaded.id[:8]
        return evaluator

    @classmethod
    def rebuild(cls, config: Mapping[str, Any]) -> "OpenEvaluator":
        """The untrained network of a checkpoint's configuration, with the frozen text encoder behind it."""
        from anchorroute.text import TextEncoder

        return cls(EvaluatorConfig(**config), TextEncoder())

    @classmethod
    def shipped(cls) -> "OpenEvaluator":
        """The one inside the package."""
        from anchorroute.models import ASSETS

        folder = ASSETS / "evaluator"
        if not folder.is_dir():
            raise CheckpointError(
                "this installation carries no evaluator; train one (`anchorroute train evaluator DATA RUN`) and "
                "give its checkpoint: --evaluator RUN/evaluator"
            )
        return cls.load(folder)

    @property
    def id(self) -> str:
        """Which evaluator: written beside every figure."""
        return f"{self.config.name}-{self._weights}" if self._weights else self.config.name

    @torch.no_grad()
    def text(self, captions: list[str]) -> Float[Tensor, "batch 64"]:
        """Embeddings of captions."""
        (encoder,) = self._text_encoder
        if encoder is None:
            raise DataError("This evaluator was made without a text encoder: pass text_encoder= to embed captions.")
        encoded = encoder(captions)
        return self.embed_text(encoded.pooled, encoded.tokens, encoded.mask)

    @torch.no_grad()
    def motion(
        self, features: Float[Tensor, "batch frames 263"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch 64"]:
        """Embeddings of features in metres; a clip is read up to its last whole group of four frames."""
        return self.embed_motion(self.inputs(features), lengths)

    def inputs(self, features: Float[Tensor, "batch frames d"]) -> Float[Tensor, "batch frames 130"]:
        """Normalised positions and their differences in time (the first frame's difference is zero)."""
        return (motion_inputs(features) - self.mean) / self.std

    def embed_motion(
        self, inputs: Float[Tensor, "batch frames 130"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch 64"]:
        """`motion` after normalisation, with gradients: what training calls."""
        if int(lengths.min()) < RATE:
            raise DataError(f"A clip of {int(lengths.min())} frames: the evaluator needs at least {RATE}.")
        return F.normalize(self.motion_tower(inputs, lengths), dim=-1)

    def embed_text(
        self,
        pooled: Float[Tensor, "batch dt"],
        tokens: Float[Tensor, "batch words dt"],
        mask: Bool[Tensor, "batch words"],
    ) -> Float[Tensor, "batch 64"]:
        """`text` after the frozen encoder, with gradients: what training calls."""
        return F.normalize(self.text_tower(pooled, tokens, mask), dim=-1)


def motion_inputs(features: Float[Tensor, "batch frames d"]) -> Float[Tensor, "batch frames 130"]:
    """Root motion and joint positions of features, and the differences of the positions in time."""
    positions = features[..., :POSITION_DIM]
    ric = positions[..., RIC]
    steps = torch.cat([torch.zeros_like(ric[:, :1]), ric.diff(dim=1)], dim=1)
    return torch.cat([positions, steps], dim=-1)


class MotionTower(nn.Module):
    """Two strided convolutions (four frames a unit), transformer layers, attention pooling."""

    def __init__(self, config: EvaluatorConfig) -> None:
        super().__init__()
        self.first = nn.Conv1d(INPUT_DIM, config.width, 4, 2, 1)
        self.second = nn.Conv1d(config.width, config.width, 4, 2, 1)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(_layer(config.width, config) for _ in range(config.layers))
        self.pool = Pool(config.width, config.heads)
        self.out = nn.Linear(config.width, config.embed)

    def forward(self, inputs: Float[Tensor, "batch frames 130"], lengths: Int[Tensor, " batch"]) -> Tensor:
        """One vector a motion."""
        units = lengths // RATE
        frames = int(units.max()) * RATE
        time = torch.arange(frames, device=inputs.device)
        inside = time < (units * RATE)[:, None]
        x = (inputs[:, :frames] * inside[..., None]).transpose(1, 2)
        x = F.gelu(self.first(x)) * (time[: frames // 2] < (units * 2)[:, None])[:, None]
        x = F.gelu(self.second(x)).transpose(1, 2)
        mask = time[: frames // RATE] < units[:, None]
        x = self.dropout(x + _positions(x))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~mask)
        embedding: Tensor = self.out(self.dropout(self.pool(x, mask)))
        return embedding


class TextTower(nn.Module):
    """A linear view of the frozen states, attention pooling, and the pooled vector beside it.

    The frozen states already know their context; a transformer here would only learn the train captions by heart.
    """

    def __init__(self, config: EvaluatorConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.tokens = nn.Linear(config.text_dim, config.text_width)
        self.pooled = nn.Linear(config.text_dim, config.text_width)
        self.pool = Pool(config.text_width, config.heads)
        self.out = nn.Linear(config.text_width, config.embed)

    def forward(
        self,
        pooled: Float[Tensor, "batch dt"],
        tokens: Float[Tensor, "batch words dt"],
        mask: Bool[Tensor, "batch words"],
    ) -> Tensor:
        """One vector a text."""
        words = F.gelu(self.tokens(self.dropout(tokens)))
        both = self.pool(words, mask) + self.pooled(self.dropout(pooled))
        embedding: Tensor = self.out(self.dropout(both))
        return embedding


class Pool(nn.Module):
    """Attention pooling: each head has a learned query and averages its share of the channels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, heads)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Float[Tensor, "batch steps d"], mask: Bool[Tensor, "batch steps"]) -> Tensor:
        """The weighted mean over the steps inside the mask."""
        weight = self.score(x).masked_fill(~mask[..., None], -torch.inf).softmax(dim=1)
        heads = x.unflatten(-1, (weight.shape[-1], -1))
        pooled: Tensor = self.norm((heads * weight[..., None]).sum(dim=1).flatten(-2))
        return pooled


def _layer(width: int, config: EvaluatorConfig) -> nn.Module:
    return nn.TransformerEncoderLayer(
        width, config.heads, 2 * width, config.dropout, "gelu", batch_first=True, norm_first=True
    )


def _positions(x: Float[Tensor, "batch steps d"]) -> Float[Tensor, "steps d"]:
    steps, width = x.shape[1], x.shape[2]
    rate = torch.exp(torch.arange(0, width, 2, device=x.device) * (-math.log(1000.0) / width))
    angle = torch.arange(steps, device=x.device)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


@torch.no_grad()
def embed_clips(
    evaluator: Evaluator, features: Sequence[Float[Tensor, "frames 263"]], *, batch: int = 64
) -> Float[Tensor, "clips e"]:
    """Embeddings of clips of different lengths, in the order given."""
    rows = []
    for start in range(0, len(features), batch):
        part = list(features[start : start + batch])
        lengths = torch.tensor([len(clip) for clip in part])
        rows.append(evaluator.motion(nn.utils.rnn.pad_sequence(part, batch_first=True), lengths))
    return torch.cat(rows)
