"""Learning the motion tokenizer, and tuning its decoder once the tokens stand; validation on whole clips.

The score that decides what is best is the root-aligned error plus a share of the level-1 error at random root
anchors: the first is what the eye sees, the second is the floor of everything that anchors can ask of tokens.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.evaluate.metrics import foot_skating, jerk
from anchorroute.motion import features as feats
from anchorroute.tokenizer import (
    PAD,
    RATE,
    LossWeights,
    Reconstruction,
    Tokenizer,
    TokenizerTrainer,
    perplexity,
    tokenizer_loss,
)
from anchorroute.train.corpus import Corpus, rng, torch_rng
from anchorroute.train.loop import Batch, Task
from anchorroute.train.tokens import TokenStore

_ANCHORS = 8  # random root anchors a clip when the oracle's error is measured


@dataclass(frozen=True)
class TokenizerTaskConfig:
    """How the tokenizer's batches and validation are made."""

    windows: tuple[int, ...] = (64, 128)  # frames; each step takes one of them
    validation_clips: int = 96
    # Root and joints pull hard (errors add up over a window): at weight 1 their gradient is some fifty times the
    # features', and the pose hardly learns.
    losses: LossWeights = field(default_factory=lambda: LossWeights(commitment=0.05, root=0.1, joints=0.2))
    steps: float = 1.0  # weight of the joints' error in metres a frame: a local pull against drift and jitter


class TokenizerTask(Task):
    """Reconstruct windows of `train`; judged on whole clips of `validation`."""

    model: TokenizerTrainer

    def __init__(
        self, trainer: TokenizerTrainer, train: Corpus, validation: Corpus, config: TokenizerTaskConfig, seed: int
    ) -> None:
        super().__init__()
        self.model = trainer
        self.corpus, self.config, self.seed = train, config, seed
        self.validation = _some(validation, config.validation_clips, seed)

    def draw(self, step: int, size: int) -> Batch:
        """Windows of one length."""
        generator = rng(self.seed, step)
        frames = self.config.windows[int(generator.integers(len(self.config.windows)))]
        return {
            "features": self.corpus.windows(generator, size, frames),
            "step": torch.full((size,), step),
        }

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The tokenizer's loss and its parts."""
        generator = torch_rng(self.seed, int(batch["step"][0]), 2)
        reconstruction = self.model(batch["features"], generator)
        with torch.autocast(batch["features"].device.type, enabled=False):
            figures = tokenizer_loss(reconstruction, self.model.tokenizer, self.config.losses)
            figures["steps"] = step_error(reconstruction, self.model.tokenizer)
            figures["loss"] = figures["loss"] + self.config.steps * figures["steps"]
        return figures | {"perplexity": perplexity(reconstruction.z, self.model.tokenizer.config.codes)[0]}

    def validate(self) -> dict[str, float]:
        """Whole clips, one at a time, unpadded."""
        figures = reconstruction_figures(self.model.tokenizer, self.validation, self.seed)
        return {"score": figures["aligned_mm"] + 0.1 * figures["anchor_level1_mm"]} | figures


@dataclass(frozen=True)
class DecoderTaskConfig:
    """How a decoder is tuned behind tokens that no longer change."""

    windows: tuple[int, ...] = (96, 192)  # frames
    validation_clips: int = 96
    first_level_alone: float = 0.4  # share of samples that see the first level only, which is where anchors act
    losses: LossWeights = field(default_factory=lambda: LossWeights(root=0.25, joints=0.25, acceleration=1.5))
    steps: float = 1.0


class DecoderTask(Task):
    """Tune the decoder alone: encoder and codebooks, so all tokens, stay what the token networks learned.

    Tokens come from whole clips and are cut with their frames, so nothing is encoded in the loop.
    """

    model: Tokenizer

    def __init__(
        self,
        tokenizer: Tokenizer,
        tokens: TokenStore,
        train: Corpus,
        validation: Corpus,
        config: DecoderTaskConfig,
        seed: int,
    ) -> None:
        super().__init__()
        self.model = tokenizer
        tokenizer.requires_grad_(False)
        tokenizer.decoder.requires_grad_(True)
        self.tokens, self.corpus, self.config, self.seed = tokens, train, config, seed
        self.validation = _some(validation, config.validation_clips, seed)

    def draw(self, step: int, size: int) -> Batch:
        """Tokens and frames of windows of one length, finer levels withheld from a part."""
        generator = rng(self.seed, step)
        frames = self.config.windows[int(generator.integers(len(self.config.windows)))]
        z, features = self.tokens.windows(self.corpus, generator, size, frames // RATE)
        levels = z.shape[-1]
        alone = generator.random(size) < self.config.first_level_alone
        kept = np.where(
            alone, 1, np.where(generator.random(size) < 0.8, levels, generator.integers(1, levels + 1, size))
        )
        hidden = np.arange(levels) >= kept[:, None]
        return {"z": z.masked_fill(torch.from_numpy(hidden)[:, None], PAD), "features": features}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The reconstruction loss, without its part for the codes."""
        tokenizer = self.model
        target = tokenizer.normalise(batch["features"])
        output = tokenizer.decoder(tokenizer.embed(batch["z"]).transpose(1, 2)).transpose(1, 2).float()
        made = Reconstruction(target, output, torch.zeros((), device=output.device), batch["z"])
        with torch.autocast(output.device.type, enabled=False):
            figures = tokenizer_loss(made, tokenizer, self.config.losses)
            figures["steps"] = step_error(made, tokenizer)
            figures["loss"] = figures["loss"] + self.config.steps * figures["steps"]
        return figures

    def validate(self) -> dict[str, float]:
        """As the tokenizer's; the first level counts more, since it is what is tuned."""
        figures = reconstruction_figures(self.model, self.validation, self.seed)
        return {
            "score": figures["aligned_mm"] + 0.2 * figures["global_mm"] + 0.1 * figures["anchor_level1_mm"]
        } | figures


def _some(corpus: Corpus, count: int, seed: int) -> list[Float[Tensor, "1 time 263"]]:
    chosen = rng(seed, 0, 1).permutation(len(corpus))[: min(count, len(corpus))]
    return [corpus.whole(int(i)) for i in chosen]


def step_error(made: Reconstruction, tokenizer: Tokenizer) -> Float[Tensor, ""]:
    """How much the joints' movement from frame to frame differs, in metres."""
    output = feats.to_joints(tokenizer.denormalise(made.output))
    truth = feats.to_joints(tokenizer.denormalise(made.target))
    gap: Tensor = (output - truth).diff(dim=1)
    return gap.norm(dim=-1).mean()


def reconstruction_figures(
    tokenizer: Tokenizer, clips: list[Float[Tensor, "1 time 263"]], seed: int
) -> dict[str, float]:
    """Errors in millimetres, code use, and how skating and jerk change against the data."""
    device = tokenizer.mean.device
    rows: list[dict[str, float]] = []
    tokens: list[Tensor] = []
    for index, clip in enumerate(clips):
        features = clip.to(device)
        truth = feats.to_joints(features)
        z = tokenizer.encode(features)
        tokens.append(z[0].cpu())
        decoded = tokenizer.decode(tokenizer.embed(z))
        output = feats.to_joints(decoded)
        first = feats.to_joints(tokenizer.decode(tokenizer.embed(z[..., :1])))
        picks = rng(seed, index, 3).choice(truth.shape[1], min(_ANCHORS, truth.shape[1]), replace=False)
        rows.append(
            {
                "aligned_mm": 1e3 * float((pose(features) - pose(decoded)).norm(dim=-1).mean()),
                "global_mm": 1e3 * float((truth - output).norm(dim=-1).mean()),
                "anchor_level1_mm": 1e3 * float((truth - first)[0, picks, 0].norm(dim=-1).mean()),
                "anchor_mm": 1e3 * float((truth - output)[0, picks, 0].norm(dim=-1).mean()),
                "jerk": float(jerk(output).mean()),
                "jerk_data": float(jerk(truth).mean()),
                "skating": float(foot_skating(output).mean()),
                "skating_data": float(foot_skating(truth).mean()),
            }
        )
    figures = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    use = perplexity(torch.cat(tokens), tokenizer.config.codes)
    return figures | {f"perplexity_{level + 1}": float(value) for level, value in enumerate(use)}


def pose(features: Float[Tensor, "1 time 263"]) -> Float[Tensor, "1 time 22 3"]:
    """Joints relative to the pelvis, heading removed."""
    ric = features[..., feats.SLICES.ric].unflatten(-1, (21, 3))
    height = features[..., feats.SLICES.root_height]
    others = torch.stack((ric[..., 0], ric[..., 1] - height, ric[..., 2]), -1)
    return torch.cat((torch.zeros_like(others[..., :1, :]), others), -2)
