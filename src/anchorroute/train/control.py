"""Learning an anchor adapter: prior, finer levels, decoder and codebook stay frozen, only the conditioner moves.

The loss is the paper's, L_CE + 0.3 L_anc^sup: the second part sends the expected code softmax(logits) @ codebook
through the decoder and compares the recovered joints with the true motion around each anchor. The finer levels'
reader learns by the cross-entropy of one random level. Validation *generates* with anchors and reports the distance
in metres for K = 2 ... 32 beside the prior alone and beside the true tokens (the tokenizer's own floor).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anchorroute import scaffold, tmd
from anchorroute.anchors import Observed
from anchorroute.conditioning import Conditioner
from anchorroute.data.anchor_sampling import AnchorSampling, draw, training_anchors
from anchorroute.motion.features import to_joints
from anchorroute.tokenizer import RATE, Tokenizer
from anchorroute.train.corpus import rng, torch_rng
from anchorroute.train.loop import Batch, Task
from anchorroute.train.prior import (
    Captioned,
    DrawConfig,
    PriorTaskConfig,
    text_of,
    token_weights,
    weighted_cross_entropy,
)
from anchorroute.transformer import Memory, ResidualTransformer, Transformer


@dataclass(frozen=True)
class ControlTaskConfig:
    """How an adapter's batches, loss and validation are made."""

    prior: PriorTaskConfig = field(default_factory=lambda: PriorTaskConfig(draw=DrawConfig(validation_clips=24)))
    # One adapter learns alone: samples that mix families would need the other adapters beside it.
    sampling: AnchorSampling = field(default_factory=lambda: AnchorSampling(mixed=0.0))
    early: float = 2.0  # t = uniform ** early: near the clean tokens anchors have nothing left to say
    anchor_weight: float = 0.3
    fine_weight: float = 0.5
    radius: int = 2  # frames around an anchor that L_anc^sup watches
    counts: tuple[int, ...] = (2, 4, 8, 16, 32)  # K of the validation
    steps: int = 10  # of the validation's sampler


@dataclass(frozen=True)
class Frozen:
    """What an adapter is trained on top of."""

    tokenizer: Tokenizer
    prior: Transformer
    residual: ResidualTransformer | None
    path: tmd.Path

    def modules(self) -> list[nn.Module]:
        """The frozen networks."""
        return [m for m in (self.tokenizer, self.prior, self.residual) if m is not None]


class ControlTask(Task):
    """One family's adapter."""

    model: Conditioner

    def __init__(
        self,
        model: Conditioner,
        frozen: Frozen,
        train: Captioned,
        validation: Captioned,
        config: ControlTaskConfig,
        seed: int,
    ) -> None:
        super().__init__()
        self.model = model
        for module in frozen.modules():
            module.requires_grad_(False).eval()
        # A tuple hides the frozen networks from `parameters()`: they are neither averaged nor saved with the run.
        self._frozen = (frozen,)
        self.family = model.family
        self.data, self.held_out, self.config, self.seed = train, validation, config, seed
        self.validation = validation.fixed(config.prior.draw, seed)
        self._alone: dict[int, Tensor] = {}  # what the prior makes of each validation batch; it never changes

    @property
    def frozen(self) -> Frozen:
        """The frozen networks."""
        return self._frozen[0]

    def draw(self, step: int, size: int) -> Batch:
        """Clean and corrupted tokens, texts, true joints, anchors as c_t, and what the anchor loss watches."""
        generator = rng(self.seed, step)
        config = self.config.prior
        clips, variants = self.data.choose(generator, size, config.draw)
        text = self.data.texts.batch(self.data.captions(generator, clips))
        z = self.data.tokens.batch(clips, variants)
        lengths = RATE * self.data.tokens.lengths[variants, clips]
        offsets = np.array(self.data.tokens.offsets)[variants]
        joints = to_joints(self.data.corpus.padded(clips, offsets, lengths))
        observed = [
            training_anchors(motion[:length], self.family, generator, self.config.sampling)[self.family.name]
            for motion, length in zip(joints, lengths.tolist())
        ]
        spread = config.latest - config.earliest
        t = torch.from_numpy(config.earliest + spread * generator.random(size) ** self.config.early).float()
        z1 = z[..., 0]
        return {
            "z": z,
            "zt": self.frozen.path.corrupt(z1, t, torch_rng(self.seed, step, 2)),
            "t": t,
            "pooled": text.pooled,
            "states": text.tokens,
            "pieces": text.mask,
            "drop": torch.from_numpy(generator.random(size) < config.draw.drop_text),
            "weight": token_weights(z),
            "joints": joints,
            "watched": self._watched(observed, joints, lengths),
            "c": scaffold.batch(observed, self.family, lengths.tolist()),
            "frames": torch.from_numpy(lengths),
            "level": torch.from_numpy(generator.integers(1, max(z.shape[-1], 2), size)),
        }

    def _watched(
        self, observed: list[Observed], joints: Float[Tensor, "b t 22 3"], lengths: Int[np.ndarray, "b"]
    ) -> Float[Tensor, "b t 22 3"]:
        """1 at every coordinate of a support frame that its nearest anchor sets, 0 elsewhere."""
        watched = torch.zeros_like(joints)
        for row, (rows, length) in enumerate(zip(observed, lengths.tolist())):
            support = scaffold.support(rows, length, self.config.radius)
            watched[row, support.frames, support.joints] = (~support.observed.free[support.rows]).float()
        return watched

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """L_CE + 0.3 L_anc^sup, and the finer levels' cross-entropy."""
        z, text = batch["z"], text_of(batch)
        z1, present = z[..., 0], z[..., 0] >= 0
        coarse, fine = self.model.both(batch["c"], batch["frames"])
        logits = self.frozen.prior(batch["zt"], text, present, [coarse], drop=batch["drop"], t=batch["t"])
        parts = {"ce": weighted_cross_entropy(logits, z1, batch["weight"])}
        parts["anchor"] = self._anchor_loss(logits, batch)
        loss = parts["ce"] + self.config.anchor_weight * parts["anchor"]
        if fine is not None and self.frozen.residual is not None:
            level = batch["level"]
            before = torch.arange(z.shape[-1], device=z.device) < level[:, None]
            u = self.frozen.tokenizer.embed(z.masked_fill(~before[:, None], -1))
            goal = z.gather(-1, level[:, None, None].expand(-1, z.shape[1], 1))[..., 0]
            finer = self.frozen.residual(u, level, text, present, [fine], drop=batch["drop"])
            parts["ce_fine"] = weighted_cross_entropy(finer, goal, batch["weight"])
            loss = loss + self.config.fine_weight * parts["ce_fine"]
        return {"loss": loss, **parts}

    def _anchor_loss(self, logits: Float[Tensor, "b l v"], batch: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """L_anc^sup: squared metres summed over the watched coordinates, mean over samples."""
        tokenizer = self.frozen.tokenizer
        expected = torch.softmax(logits.float(), dim=-1) @ tokenizer.codebooks[0]
        present = batch["z"][..., :1] >= 0
        features = tokenizer.decode(expected * present, batch["frames"]).float()
        with torch.autocast(features.device.type, enabled=False):
            gap = to_joints(features) - batch["joints"]
            return (gap.square() * batch["watched"]).sum() / len(gap)

    def validate(self) -> dict[str, float]:
        """Distances to anchors in metres, generated with and without them, and of the true tokens."""
        figures: dict[str, float] = {}
        for k in self.config.counts:
            sums: dict[str, list[float]] = {}
            for index, batch in enumerate(self.validation):
                for name, values in self._distances(batch, k, index).items():
                    sums.setdefault(name, []).extend(values)
            figures |= {f"{name}_{k}": float(np.mean(values)) for name, values in sums.items()}
        names = {key.rsplit("_", 1)[0] for key in figures}
        means = {n: float(np.mean([figures[f"{n}_{k}"] for k in self.config.counts])) for n in sorted(names)}
        return {"score": means["error"], **means, **figures}

    def _distances(self, batch: Mapping[str, Tensor], k: int, index: int) -> dict[str, list[float]]:
        """Per sample: mean distance to its K anchors."""
        device = self.model.encoder.mean.device
        z = batch["z"].to(device)
        frames = RATE * (z[..., 0] >= 0).sum(1)
        clips = batch["clips"].numpy()
        whole = to_joints(self.held_out.corpus.padded(clips, np.zeros(len(clips), np.int64), frames.cpu().numpy()))
        truth = [motion[:length] for motion, length in zip(whole, frames.tolist())]
        generator = rng(self.seed, index, 20 + k)
        observed = [draw(motion, self.family, k, generator) for motion in truth]
        c = scaffold.batch(observed, self.family, frames.tolist()).to(device)
        coarse, fine = self.model.both(c, frames)
        controlled = self._generate(batch, [coarse], [] if fine is None else [fine], index)
        if index not in self._alone:
            self._alone[index] = self._generate(batch, [], [], index)
        made = {
            "error": controlled,
            "error_level1": controlled[..., :1],
            "prior": self._alone[index],
            "oracle_level1": z[..., :1],
            "oracle": z,
        }
        tokenizer = self.frozen.tokenizer
        out: dict[str, list[float]] = {}
        for name, ids in made.items():
            joints = to_joints(tokenizer.decode(tokenizer.embed(ids), frames)).cpu()
            out[name] = [
                float(scaffold.residuals(motion[:length], rows).distance.mean())
                for motion, rows, length in zip(joints, observed, frames.tolist())
            ]
        return out

    def _generate(
        self, batch: Mapping[str, Tensor], coarse: list[Memory], fine: list[Memory], index: int
    ) -> Int[Tensor, "b l q"]:
        """Sampled tokens of all levels, unguided, from fixed seeds."""
        frozen, device = self.frozen, self.model.encoder.mean.device
        text = text_of(batch).to(device)
        present = batch["z"][..., 0].to(device) >= 0
        seeds = [torch_rng(self.seed, index, 1000 + row) for row in range(len(present))]
        predict = frozen.prior.predictor(text, present, coarse)
        z = tmd.sample(predict, frozen.path.to(device), present.sum(1), generators=seeds, steps=self.config.steps)
        levels = frozen.tokenizer.config.levels
        if frozen.residual is None or levels == 1:
            return z[..., None]
        finer = frozen.residual.predictor(text, present, fine)
        return tmd.sample_levels(finer, frozen.tokenizer.embed, z, levels, generators=seeds)
