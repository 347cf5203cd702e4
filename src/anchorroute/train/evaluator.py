"""Learning the open evaluator: captions against motions, judged by retrieval on the validation split.

The text encoder is frozen, so every caption is encoded once, before the first step. Contrasts are taken within the
share of the batch that a process holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from anchorroute.errors import DataError
from anchorroute.evaluate.contrastive import (
    ContrastiveConfig,
    augment,
    contrastive_loss,
    directions_of,
    duplicate_masks,
    hide,
    pad,
    reading_of,
    spoil,
)
from anchorroute.evaluate.evaluator import (
    POSITION_DIM,
    EvaluatorConfig,
    OpenEvaluator,
    motion_inputs,
)
from anchorroute.evaluate.metrics import caption_groups, r_precision
from anchorroute.text import TextEncoder
from anchorroute.train.corpus import Corpus, rng, torch_rng
from anchorroute.train.loop import Batch, Task
from anchorroute.train.texts import TextStore

_ENCODE_AT_ONCE = 64
_SMALLEST_STD = 1e-3


@dataclass(frozen=True)
class EvaluatorTaskConfig:
    """How batches are made."""

    loss: ContrastiveConfig = field(default_factory=ContrastiveConfig)
    weak_share: float = 0.15
    """Chance of a place in the batch to be given to a clip that has only its recording's title."""
    longest: int = 196


@dataclass(frozen=True)
class CaptionBank:
    """All captions of a corpus: rows `first[clip] : first[clip + 1]` are a clip's."""

    texts: tuple[str, ...]
    store: TextStore
    rows: Int[np.ndarray, "captions"]
    reading: Int[Tensor, " captions"]
    directions: Int[Tensor, " captions"]
    first: Int[np.ndarray, "clips_and_one"]

    @staticmethod
    def of(captions: Sequence[Sequence[str]], store: TextStore) -> "CaptionBank":
        """Lay the captions of all clips end to end."""
        texts = [text for clip in captions for text in clip]
        return CaptionBank(
            tuple(texts),
            store,
            np.array([store.row(text) for text in texts], np.int64),
            _numbered([reading_of(text) for text in texts]),
            _numbered([directions_of(text) for text in texts]),
            np.cumsum([0, *(len(clip) for clip in captions)]),
        )

    def batch(self, captions: Int[np.ndarray, "batch"]) -> dict[str, Tensor]:
        """The encoded captions of these places."""
        index = torch.from_numpy(captions)
        text = self.store.batch(self.rows[captions])
        return {
            "pooled": text.pooled,
            "tokens": text.tokens,
            "mask": text.mask,
            "reading": self.reading[index],
            "directions": self.directions[index],
        }


class EvaluatorTask(Task):
    """Pull captions and their motions together, push everything else apart."""

    def __init__(
        self,
        model: OpenEvaluator,
        train: Corpus,
        validation: Corpus,
        texts: TextStore,
        config: EvaluatorTaskConfig,
        seed: int,
    ) -> None:
        super().__init__()
        self.model = model
        self.evaluator = model
        self.config, self.seed = config, seed
        self.corpus, self.bank = train, CaptionBank.of(train.captions, texts)
        self.written, self.titled = _captioned(train)
        kept = _captioned(validation)[0]
        self.validation = validation.subset(kept)
        self.validation_bank = CaptionBank.of(self.validation.captions, texts)
        set_statistics(model, train)

    def draw(self, step: int, size: int) -> Batch:
        """Distinct clips, one caption each, augmented; and a spoiled copy of every motion (half of them are used)."""
        chance, noise = rng(self.seed, step), torch_rng(self.seed, step, 1)
        clips = self._clips(chance, size)
        spans = self.bank.first[clips], self.bank.first[clips + 1]
        rows = chance.integers(*spans)
        clean, spoiled = [], []
        for clip, row in zip(clips, rows):
            whole = self.corpus.whole(int(clip), longest=self.config.longest)[0, :, :POSITION_DIM]
            motion = augment(whole, self.config.loss, noise)
            clean.append(motion)
            spoiled.append(spoil(motion, self.bank.texts[row], noise))
        motion, lengths = pad(clean)
        return {
            "motion": motion,
            "spoiled": pad(spoiled)[0],
            "lengths": lengths,
            "step": torch.full((size,), step),
            **self.bank.batch(rows),
        }

    def _clips(self, chance: np.random.Generator, size: int) -> Int[np.ndarray, "size"]:
        weak = int((chance.random(size) < self.config.weak_share).sum()) if len(self.titled) else 0
        weak = min(weak, len(self.titled))
        if size - weak > len(self.written):
            raise DataError(f"a batch of {size} needs as many captioned clips; the corpus has {len(self.written)}")
        written = chance.choice(self.written, size - weak, replace=False)
        return np.concatenate([written, chance.choice(self.titled, weak, replace=False)])

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The contrastive loss, and how many texts find their own motion among clean ones."""
        rules = self.config.loss
        generator = torch_rng(self.seed, int(batch["step"][0]), 2)
        half = len(batch["spoiled"]) // 2  # the other half would cost a quarter of the time and teach little more
        motions = torch.cat([batch["motion"], batch["spoiled"][:half]])
        lengths = torch.cat([batch["lengths"], batch["lengths"][:half]])
        inputs = hide(self.evaluator.inputs(motions).cpu(), rules.hide, generator).to(motions.device)
        motion = self.evaluator.embed_motion(inputs, lengths)
        text = self.evaluator.embed_text(batch["pooled"], batch["tokens"], batch["mask"])
        positive, ignored = duplicate_masks(
            batch["reading"], batch["directions"], batch["pooled"], near=rules.near_duplicate
        )
        loss = contrastive_loss(text, motion, positive, ignored, temperature=rules.temperature)
        similarity = text @ motion.T
        own = similarity.diagonal()[:half]
        first = (similarity[:, : len(text)].argmax(dim=1) == torch.arange(len(text), device=text.device)).float()
        return {
            "loss": loss,
            "top1": first.mean(),
            "beats_spoiled": (own > similarity.diagonal(len(text))[:half]).float().mean(),
        }

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Contrastive loss over the whole validation split (the score), and R-precision of real pairs."""
        text, motion = self._validation_embeddings()
        count = len(text)
        rows = self.validation_bank.first[:-1]
        encoded = self.validation_bank.batch(rows)
        positive, ignored = duplicate_masks(
            encoded["reading"], encoded["directions"], encoded["pooled"], near=self.config.loss.near_duplicate
        )
        loss = contrastive_loss(text, motion, positive, ignored, temperature=self.config.loss.temperature)
        figures = {"score": float(loss)}
        if count >= 32:
            groups = caption_groups(self.validation.captions)
            generator = torch.Generator().manual_seed(0)
            top = r_precision(text, motion, groups=groups, generator=generator, shuffles=20)
            figures |= {f"r_top{k}": value for k, value in enumerate(top, 1)}
        return figures

    def _validation_embeddings(self) -> tuple[Tensor, Tensor]:
        device = self.evaluator.mean.device
        clips = [self.validation.whole(i, longest=self.config.longest)[0] for i in range(len(self.validation))]
        motions = []
        for start in range(0, len(clips), _ENCODE_AT_ONCE):
            padded, lengths = pad(clips[start : start + _ENCODE_AT_ONCE])
            motions.append(self.evaluator.motion(padded.to(device), lengths.to(device)))
        encoded = self.validation_bank.batch(self.validation_bank.first[:-1])
        text = self.evaluator.embed_text(*(encoded[key].to(device) for key in ("pooled", "tokens", "mask")))
        return text, torch.cat(motions)


def set_statistics(model: OpenEvaluator, train: Corpus) -> None:
    """Mean and deviation of the evaluator's inputs over the training material, into the model's buffers."""
    inputs = motion_inputs(torch.from_numpy(train.features)[None])[0]
    # The first difference of a clip reaches back into the clip before it: leave those rows out.
    inside = torch.ones(len(inputs), dtype=torch.bool)
    inside[torch.from_numpy(train.starts)] = False
    model.mean.copy_(inputs[inside].mean(dim=0))
    model.std.copy_(inputs[inside].std(dim=0).clamp_min(_SMALLEST_STD))


def build(
    train: Corpus,
    validation: Corpus,
    encoder: TextEncoder,
    *,
    seed: int = 0,
    sizes: EvaluatorConfig | None = None,
    config: EvaluatorTaskConfig | None = None,
) -> EvaluatorTask:
    """A fresh evaluator with its task."""
    torch.manual_seed(seed)
    model = OpenEvaluator(sizes or EvaluatorConfig(), encoder)
    captions = [text for corpus in (train, validation) for clip in corpus.captions for text in clip]
    return EvaluatorTask(
        model, train, validation, TextStore.of(encoder, captions), config or EvaluatorTaskConfig(), seed
    )


def _captioned(corpus: Corpus) -> tuple[Int[np.ndarray, "written"], Int[np.ndarray, "titled"]]:
    """Clips that somebody described, and clips that carry only their recording's title."""
    has = np.array([len(captions) > 0 for captions in corpus.captions])
    written, titled = np.flatnonzero(has & ~corpus.weak), np.flatnonzero(has & corpus.weak)
    if not len(written):
        raise DataError("no captioned clip: the evaluator learns from captions, so build the data with its texts")
    return written, titled


def _numbered(keys: Sequence[object]) -> Int[Tensor, " keys"]:
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return torch.tensor([number[key] for key in keys])
