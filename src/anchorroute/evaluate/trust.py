"""Can the evaluator be trusted? Checks that need no generator, on held-out clips.

1. Real pairs against shuffled pairs: R-precision with its 95 % interval; shuffled pairs must score chance.
2. FID between disjoint halves of real data at several sizes: the floor under every FID of a table.
3. Known damage: as noise, lost frames, sliding, swapped limbs, reversal or wrong captions grow, FID must rise and
   R-precision must not.

A check says what it found; `passed` says whether it is what a trustworthy evaluator shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.data.humanml3d import Clip
from anchorroute.evaluate.degrade import DEGRADATIONS, Wrong
from anchorroute.evaluate.evaluator import Evaluator, embed_clips
from anchorroute.evaluate.metrics import (
    caption_groups,
    fid,
    halves_fid,
    mm_dist,
    nearest_distance,
    r_precision,
    retrieval_hits,
)
from anchorroute.evaluate.results import Cell, Result
from anchorroute.motion import features as feats

SHUFFLES = 50
TRAIN_CLIPS = 400
"""About so many train clips, spread evenly, stand for the train split."""
AMOUNTS = (0.0, 0.25, 0.5, 1.0)
TEXT_BATCH = 64


@dataclass(frozen=True)
class Score:
    """R-precision top 1 to 3 with half of the 95 % interval over clips."""

    top: tuple[float, ...]
    half: tuple[float, ...]
    mm_dist: float


@dataclass(frozen=True)
class Curve:
    """What happened to the scores as a damage grew."""

    name: str
    amounts: tuple[float, ...]
    fid: tuple[float, ...]
    r_top3: tuple[float, ...]
    mm_dist: tuple[float, ...]

    @property
    def fid_rises(self) -> bool:
        """Whether FID grows with every amount."""
        return all(b > a for a, b in zip(self.fid, self.fid[1:], strict=False))

    @property
    def text_falls(self) -> bool:
        """Whether true pairs move apart with every amount (MM-Dist is the least noisy of the text figures)."""
        return all(b > a for a, b in zip(self.mm_dist, self.mm_dist[1:], strict=False))


def retrieval_score(
    text: Float[Tensor, "n e"], motion: Float[Tensor, "n e"], captions: Sequence[Sequence[str]], *, seed: int = 0
) -> Score:
    """R-precision over many random batches; its interval comes from the spread over clips, not over batches."""
    generator = torch.Generator().manual_seed(seed)
    groups = caption_groups(captions)
    total = torch.zeros(len(text), 3, dtype=torch.float64)
    seen = torch.zeros(len(text), 1, dtype=torch.float64)
    for _ in range(SHUFFLES):
        order = torch.randperm(len(text), generator=generator)
        hits = retrieval_hits(text, motion, groups=groups, order=order)
        total.index_add_(0, order[: len(hits)], hits.double())
        seen.index_add_(0, order[: len(hits)], torch.ones(len(hits), 1, dtype=torch.float64))
    rate = total / seen.clamp_min(1)
    half = 1.96 * rate.std(dim=0) / len(rate) ** 0.5
    return Score(tuple(rate.mean(dim=0).tolist()), tuple(half.tolist()), mm_dist(text, motion))


def first_captions(clips: Sequence[Clip]) -> list[str]:
    """One caption a clip: its first, so that every program uses the same."""
    return [clip.captions[0] for clip in clips]


def embed_texts(evaluator: Evaluator, captions: Sequence[str]) -> Float[Tensor, "n e"]:
    """Embeddings of many captions."""
    parts = [list(captions[i : i + TEXT_BATCH]) for i in range(0, len(captions), TEXT_BATCH)]
    return torch.cat([evaluator.text(part) for part in parts])


def damage_curve(
    evaluator: Evaluator,
    damage: Wrong,
    clips: Sequence[Clip],
    text: Float[Tensor, "n e"],
    reference: Float[Tensor, "m e"],
    *,
    untouched: Float[Tensor, "n e"],
    amounts: Sequence[float] = AMOUNTS,
    seed: int = 0,
) -> Curve:
    """Scores of captioned clips damaged by growing amounts; FID is against `reference`, real held-out clips.

    Damaged joints go back through features, and so did `untouched`: the comparison then shows the damage alone.
    """
    rows = []
    for amount in amounts:
        generator = torch.Generator().manual_seed(seed)
        made = [] if amount == 0 else [_damaged(clip, damage, amount, generator) for clip in clips]
        motion = embed_clips(evaluator, made) if made else untouched
        rows.append((fid(reference, motion), _top3(text, motion, clips), mm_dist(text, motion)))
    return Curve(damage.name, tuple(amounts), *(tuple(column) for column in zip(*rows, strict=True)))


def wrong_text_curve(
    motion: Float[Tensor, "n e"],
    text: Float[Tensor, "n e"],
    clips: Sequence[Clip],
    *,
    amounts: Sequence[float] = AMOUNTS,
    seed: int = 0,
) -> Curve:
    """Scores as a growing share of clips gets another clip's caption; FID does not see texts."""
    rows = []
    order = torch.randperm(len(clips), generator=torch.Generator().manual_seed(seed))
    for amount in amounts:
        count = round(amount * len(clips))
        index = torch.arange(len(clips))
        index[order[:count]] = order[:count].roll(1)
        rows.append((_top3(text[index], motion, clips), mm_dist(text[index], motion)))
    top, distance = zip(*rows, strict=True)
    return Curve("wrong text", tuple(amounts), (float("nan"),) * len(amounts), top, distance)


def _damaged(clip: Clip, damage: Wrong, amount: float, generator: torch.Generator) -> Float[Tensor, "frames 263"]:
    joints = damage.apply(feats.to_joints(clip.features), amount, generator)
    return feats.from_joints(joints)


def _top3(text: Tensor, motion: Tensor, clips: Sequence[Clip]) -> float:
    generator = torch.Generator().manual_seed(1)
    groups = caption_groups([clip.captions for clip in clips])
    return r_precision(text, motion, groups=groups, generator=generator, shuffles=SHUFFLES)[2]


@dataclass(frozen=True)
class Trust:
    """Everything that was found."""

    evaluator: str
    scores: tuple[tuple[str, int, Score], ...]
    floors: tuple[tuple[int, float, float], ...]
    train_floor: float
    curves: tuple[Curve, ...]

    def result(self, command: str, fingerprint: str) -> Result:
        """The table of `docs/results/evaluator.json`."""
        rows: list[tuple[Cell, ...]] = []
        for name, count, score in self.scores:
            rows.append((f"R-precision top 1 / 2 / 3, {name}", count, _three(score.top), _three(score.half), None))
        for size, mean, spread in self.floors:
            rows.append((f"FID between two sets of {size} real clips", size, mean, spread, None))
        rows.append(("FID of all real test clips against train clips", None, self.train_floor, None, None))
        for curve in self.curves:
            sees = curve.name != "wrong text"
            if sees:
                rows.append(
                    (f"FID, {curve.name} {_list(curve.amounts)}", None, _list(curve.fid), None, curve.fid_rises)
                )
            rows.append((f"R top-3, {curve.name} {_list(curve.amounts)}", None, _list(curve.r_top3), None, None))
            rows.append(
                (f"MM-Dist, {curve.name} {_list(curve.amounts)}", None, _list(curve.mm_dist), None, curve.text_falls)
            )
        return Result(
            title=f"The open evaluator ({self.evaluator}): can it be trusted?",
            command=command,
            columns=("check", "clips", "value", "± 95 % or deviation", "monotone"),
            rows=tuple(rows),
            notes=(
                "All on held-out clips the evaluator never saw. R-precision: batches of 32, clips that share a caption "
                f"count as hits, mean over {SHUFFLES} random orders, interval over clips.",
                "The evaluator learned from the generators' own train clips, so a generated R-precision above the real "
                "one is no success; read it beside the distance to the nearest train clip.",
                "Damage amounts run from 0 to 1: noise 5 cm, nine frames in ten lost, 1 m/s of drift, all windows "
                "swapped, all clips reversed, all captions exchanged.",
            ),
            data_fingerprint=fingerprint,
            extra={"curves": [curve.__dict__ for curve in self.curves], "floors": self.floors},
        )


def trust(
    evaluator: Evaluator,
    test: Sequence[Clip],
    train: Sequence[Clip],
    *,
    seed: int = 0,
    sizes: Sequence[int] = (),
    amounts: Sequence[float] = AMOUNTS,
) -> Trust:
    """Run all checks; `test` may hold clips without captions, which serve the distribution checks alone."""
    captioned = [clip for clip in test if clip.captions and not clip.weak]
    text = embed_texts(evaluator, first_captions(captioned))
    motion = embed_clips(evaluator, [clip.features for clip in captioned])
    everything = embed_clips(evaluator, [clip.features for clip in test])
    scores = [("real pairs", len(captioned), _scored(text, motion, captioned))]
    strict = [i for i, clip in enumerate(captioned) if clip.strict]
    if len(strict) >= 32:
        scores.append(
            ("real pairs, strict", len(strict), _scored(text[strict], motion[strict], [captioned[i] for i in strict]))
        )
    order = torch.randperm(len(captioned), generator=torch.Generator().manual_seed(seed))
    scores.append(
        ("shuffled pairs", len(captioned), _scored(text[order], motion[order.roll(1)], captioned, plain=True))
    )
    shown = [clip for clip in train if clip.captions and not clip.weak and not clip.mirrored]
    shown = shown[:: max(len(shown) // TRAIN_CLIPS, 1)]
    if len(shown) >= 32:
        pair = embed_texts(evaluator, first_captions(shown)), embed_clips(evaluator, [c.features for c in shown])
        scores.append(("train pairs (seen in training)", len(shown), _scored(*pair, shown)))
    sizes = sizes or [size for size in (25, 50, 100, 150) if 2 * size <= len(test)]
    floors = []
    for size in sizes:
        mean, spread = halves_fid(everything, size, generator=torch.Generator().manual_seed(seed))
        floors.append((size, mean, spread))
    own = [clip for clip in train if not clip.mirrored and not clip.weak]
    reference = embed_clips(evaluator, [clip.features for clip in own[:: max(len(own) // TRAIN_CLIPS, 1)]])
    again = embed_clips(evaluator, [feats.from_joints(feats.to_joints(clip.features)) for clip in captioned])
    curves = [
        damage_curve(evaluator, damage, captioned, text, everything, untouched=again, amounts=amounts)
        for damage in DEGRADATIONS
    ]
    curves.append(wrong_text_curve(motion, text, captioned, amounts=amounts))
    return Trust(evaluator.id, tuple(scores), tuple(floors), fid(reference, everything), tuple(curves))


def _scored(text: Tensor, motion: Tensor, clips: Sequence[Clip], *, plain: bool = False) -> Score:
    """`plain`: every clip its own group, so that chance is exactly k in 32."""
    captions = [[str(i)] for i in range(len(clips))] if plain else [clip.captions for clip in clips]
    return retrieval_score(text, motion, captions)


def memorised(queries: Float[Tensor, "n d"], train: Float[Tensor, "m d"]) -> tuple[float, float]:
    """Median and 5th percentile of the distance to the nearest train clip, in metres."""
    distance = nearest_distance(queries, train)
    return float(distance.median()), float(distance.quantile(0.05))


def _three(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3f}" for value in values)


def _list(values: Sequence[float]) -> str:
    return " → ".join(f"{value:.3g}" for value in values)
