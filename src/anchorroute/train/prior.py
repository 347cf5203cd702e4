"""Learning the token networks: the prior (tokens corrupted along the path -> clean ones) and the finer levels.

Both draw clips alike (`Captioned`): clips with captions of their own and clips that only carry their recording's
title in a fixed proportion, clips of similar length in one batch so that little is padding, one caption a clip
at random.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from anchorroute.text import Text
from anchorroute.tmd import Path as NoisePath
from anchorroute.tokenizer import Tokenizer
from anchorroute.train.corpus import Corpus, rng, torch_rng
from anchorroute.train.loop import Batch, Task
from anchorroute.train.texts import TextStore
from anchorroute.train.tokens import TokenStore
from anchorroute.transformer import ResidualTransformer, Transformer


@dataclass(frozen=True)
class DrawConfig:
    """How clips become batches."""

    weak: float = 0.25  # share of clips that only carry their recording's title
    drop_text: float = 0.1
    buckets: int = 4  # a batch is one of so many groups of similar length
    validation_clips: int = 96


@dataclass(frozen=True)
class Captioned:
    """A corpus as tokens and texts."""

    corpus: Corpus
    tokens: TokenStore
    texts: TextStore

    def choose(self, generator: np.random.Generator, size: int, config: DrawConfig) -> tuple[np.ndarray, np.ndarray]:
        """Clips of similar length and the offset that each is cut from."""
        weak = np.flatnonzero(self.corpus.weak)
        own = np.flatnonzero(~self.corpus.weak)
        share = config.weak if len(weak) and len(own) else float(len(own) == 0)
        crowd = size * config.buckets
        from_weak = generator.random(crowd) < share
        clips = np.where(
            from_weak,
            weak[generator.integers(max(len(weak), 1), size=crowd) % max(len(weak), 1)] if len(weak) else 0,
            own[generator.integers(max(len(own), 1), size=crowd) % max(len(own), 1)] if len(own) else 0,
        )
        order = np.argsort(self.corpus.lengths[clips], kind="stable")
        bucket = int(generator.integers(config.buckets))
        clips = generator.permutation(clips[order[bucket * size : (bucket + 1) * size]])
        return clips, generator.integers(len(self.tokens.offsets), size=size)

    def captions(self, generator: np.random.Generator, clips: np.ndarray) -> list[int]:
        """A row of the text store for each clip."""
        picks = generator.random(len(clips))
        chosen = [self.corpus.captions[clip] for clip in clips]
        return [self.texts.row(c[int(p * len(c))] if c else "") for c, p in zip(chosen, picks)]

    def draw(self, generator: np.random.Generator, size: int, config: DrawConfig) -> dict[str, Tensor]:
        """Tokens, texts, which texts are withheld, and each token's weight in a mean over the whole batch."""
        clips, variants = self.choose(generator, size, config)
        text = self.texts.batch(self.captions(generator, clips))
        z = self.tokens.batch(clips, variants)
        return {
            "z": z,
            "pooled": text.pooled,
            "states": text.tokens,
            "pieces": text.mask,
            "drop": torch.from_numpy(generator.random(size) < config.drop_text),
            "weight": token_weights(z),
        }

    def fixed(self, config: DrawConfig, seed: int, group: int = 16) -> list[dict[str, Tensor]]:
        """Validation batches: the same clips with their first caption, always."""
        count = min(config.validation_clips, len(self.corpus))
        chosen = rng(seed, 0, 1).permutation(len(self.corpus))[:count]
        chosen = chosen[np.argsort(self.corpus.lengths[chosen], kind="stable")]
        batches = []
        for first in range(0, count, group):
            clips = chosen[first : first + group]
            text = self.texts.batch([self.texts.row((*self.corpus.captions[clip], "")[0]) for clip in clips])
            z = self.tokens.batch(clips, np.zeros(len(clips), np.int64))
            which = torch.from_numpy(clips)
            batches.append({"clips": which, "z": z, "pooled": text.pooled, "states": text.tokens, "pieces": text.mask})
        return batches


def token_weights(z: Int[Tensor, "b l q"]) -> Float[Tensor, "b l"]:
    """Weights that make a mean over samples the mean over all tokens of the whole batch."""
    present = (z[..., 0] >= 0).float()
    return present * (len(z) / present.sum())


def text_of(batch: Mapping[str, Tensor]) -> Text:
    """The batch's texts."""
    return Text(batch["pooled"], batch["states"], batch["pieces"])


def weighted_cross_entropy(
    logits: Float[Tensor, "b l v"], z: Int[Tensor, "b l"], weight: Float[Tensor, "b l"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """L_CE over tokens that are not padding; `weight` as `token_weights` gives it."""
    cost = F.cross_entropy(logits.float().transpose(1, 2), z.clamp(min=0), reduction="none", label_smoothing=smoothing)
    return (cost * weight).sum() / len(z)


@dataclass(frozen=True)
class PriorTaskConfig:
    """How the prior's batches are corrupted and judged."""

    draw: DrawConfig = DrawConfig()
    earliest: float = 1e-4
    latest: float = 1 - 1e-3
    smoothing: float = 0.0
    times: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the validation's corruption


class PriorTask(Task):
    """p(z1 | zt, text) on first-level tokens."""

    model: Transformer

    def __init__(
        self,
        model: Transformer,
        path: NoisePath,
        train: Captioned,
        validation: Captioned,
        config: PriorTaskConfig,
        seed: int,
    ) -> None:
        super().__init__()
        self.model = model
        self.path, self.data, self.config, self.seed = path, train, config, seed
        self.validation = validation.fixed(config.draw, seed)

    def draw(self, step: int, size: int) -> Batch:
        """Clean tokens, their corruption at one time a sample, texts."""
        generator = rng(self.seed, step)
        batch = self.data.draw(generator, size, self.config.draw)
        t = torch.from_numpy(generator.uniform(self.config.earliest, self.config.latest, size)).float()
        z1 = batch.pop("z")[..., 0]
        noise = torch_rng(self.seed, step, 2)
        return batch | {"z1": z1, "zt": self.path.corrupt(z1, t, noise), "t": t}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """L_CE."""
        z1 = batch["z1"]
        logits = self.model(batch["zt"], text_of(batch), z1 >= 0, drop=batch["drop"], t=batch["t"])
        return {"loss": weighted_cross_entropy(logits, z1, batch["weight"], self.config.smoothing)}

    def validate(self) -> dict[str, float]:
        """Cross-entropy at fixed times and noise, with the texts and without."""
        device = next(self.model.parameters()).device
        sums = np.zeros((len(self.config.times), 2))
        tokens = 0
        for index, batch in enumerate(self.validation):
            moved = {k: v.to(device) for k, v in batch.items()}
            z1 = moved["z"][..., 0]
            tokens += int((z1 >= 0).sum())
            for row, time in enumerate(self.config.times):
                t = torch.full((len(z1),), time)
                noise = torch_rng(self.seed, index, 10 + row)
                zt = self.path.corrupt(z1.cpu(), t, noise).to(device)
                for column, withheld in enumerate((False, True)):
                    drop = torch.full((len(z1),), withheld, device=device)
                    logits = self.model(zt, text_of(moved), z1 >= 0, drop=drop, t=t.to(device))
                    sums[row, column] += float(_summed(logits, z1))
        mean = sums / max(tokens, 1)
        figures = {f"ce_{time:g}": float(mean[row, 0]) for row, time in enumerate(self.config.times)}
        with_text, without = (float(v) for v in mean.mean(0))
        return {"score": with_text, "ce": with_text, "ce_without_text": without} | figures


def _summed(logits: Float[Tensor, "b l v"], z: Int[Tensor, "b l"]) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), z.flatten(), ignore_index=-1, reduction="sum")


class ResidualTask(Task):
    """p(z_q | finer levels' past, text): one random level a sample, from the true tokens of the levels before it."""

    model: ResidualTransformer

    def __init__(
        self,
        model: ResidualTransformer,
        tokenizer: Tokenizer,
        train: Captioned,
        validation: Captioned,
        config: DrawConfig,
        seed: int,
    ) -> None:
        super().__init__()
        self.model = model
        self.codebooks = tokenizer.codebooks.detach().cpu()
        self.embed = tokenizer.embed
        self.data, self.config, self.seed = train, config, seed
        self.validation = validation.fixed(config, seed)
        model.set_scale(tokenizer.codebooks)

    def draw(self, step: int, size: int) -> Batch:
        """Tokens of all levels, and the level that each sample predicts (1 is the second)."""
        generator = rng(self.seed, step)
        batch = self.data.draw(generator, size, self.config)
        levels = batch["z"].shape[-1]
        return batch | {"level": torch.from_numpy(generator.integers(1, levels, size))}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the chosen level."""
        z, level = batch["z"], batch["level"]
        before = torch.arange(z.shape[-1], device=z.device) < level[:, None]
        u = self.embed(z.masked_fill(~before[:, None], -1))
        goal = z.gather(-1, level[:, None, None].expand(-1, z.shape[1], 1))[..., 0]
        logits = self.model(u, level, text_of(batch), z[..., 0] >= 0, drop=batch["drop"])
        return {"loss": weighted_cross_entropy(logits, goal, batch["weight"])}

    def validate(self) -> dict[str, float]:
        """Cross-entropy of every level from true tokens before it."""
        device = next(self.model.parameters()).device
        sums: dict[int, float] = {}
        tokens = 0
        for batch in self.validation:
            moved = {k: v.to(device) for k, v in batch.items()}
            z = moved["z"]
            present: Bool[Tensor, "b l"] = z[..., 0] >= 0
            tokens += int(present.sum())
            for level in range(1, z.shape[-1]):
                which = torch.full((len(z),), level, device=device)
                logits = self.model(self.embed(z[..., :level]), which, text_of(moved), present)
                sums[level] = sums.get(level, 0.0) + float(_summed(logits, z[..., level]))
        mean = {f"ce_{level + 1}": total / max(tokens, 1) for level, total in sums.items()}
        return {"score": float(np.mean(list(mean.values())))} | mean
