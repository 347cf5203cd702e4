"""Does the evaluator put generators in the right order? One model made worse on purpose, against itself.

Weaker versions need no second training: fewer sampling steps, no text, hotter sampling. Each must score worse than the
model as it ships on what it loses: coherence (FID, KID) or agreement with the text (R-precision, MM-Dist).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from anchorroute.data.humanml3d import Clip
from anchorroute.evaluate import jobs, metrics
from anchorroute.evaluate.drafts import Drafts
from anchorroute.evaluate.evaluator import Evaluator, embed_clips
from anchorroute.evaluate.protocols import Variant
from anchorroute.evaluate.results import Cell
from anchorroute.evaluate.shards import Shard, measure
from anchorroute.evaluate.subject import ModelSubject, Subject
from anchorroute.evaluate.trust import embed_texts
from anchorroute.models import Models, Settings

SHUFFLES = 50


@dataclass(frozen=True)
class Weaker:
    """A way to sample worse, and which figures must show it."""

    name: str
    change: Callable[[Settings], Settings]
    loses: tuple[str, ...]


WAYS = (
    Weaker("as it ships", lambda s: s, ()),
    Weaker("one sampling step", lambda s: replace(s, steps=1), ("fid", "kid")),
    Weaker("hotter sampling (temperature 2)", lambda s: replace(s, temperature=2.0), ("fid", "kid")),
    Weaker("without its text (guidance 0)", lambda s: replace(s, guidance=0.0), ("r_top3", "mm_dist")),
)
HIGHER_IS_BETTER = ("r_top3",)


@dataclass(frozen=True)
class Placed:
    """The figures of one version, and whether those that must be worse than the shipped model's are."""

    name: str
    clips: int
    figures: dict[str, float]
    in_order: bool | None


def placed(
    evaluator: Evaluator, models: Models, clips: Sequence[Clip], count: int, store: Path, *, batch: int = 32
) -> list[Placed]:
    """Generate with every version and score; drafts are kept like a table's."""
    chosen = jobs.subset(jobs.usable(clips), count)
    real = embed_clips(evaluator, [clip.features for clip in chosen])
    text = embed_texts(evaluator, [jobs.caption(clip, 0) for clip in chosen])
    groups = metrics.caption_groups([clip.captions for clip in chosen])
    out: list[Placed] = []
    for way in WAYS:
        subject = ModelSubject.of(replace(models, settings=way.change(models.settings)))
        made = torch.from_numpy(_generate(subject, chosen, evaluator, store, batch).embedding)
        generator = torch.Generator().manual_seed(0)
        top = metrics.r_precision(text, made, groups=groups, generator=generator, shuffles=SHUFFLES)
        figures = {
            "fid": metrics.fid(real, made),
            "kid": metrics.kid(real, made),
            "r_top3": top[2],
            "mm_dist": metrics.mm_dist(text, made),
        }
        verdict = all(_worse(name, figures, out[0].figures) for name in way.loses) if way.loses else None
        out.append(Placed(way.name, len(chosen), figures, verdict))
    return out


def _worse(name: str, figures: dict[str, float], shipped: dict[str, float]) -> bool:
    difference = figures[name] - shipped[name]
    return difference < 0 if name in HIGHER_IS_BETTER else difference > 0


def _generate(subject: Subject, clips: Sequence[Clip], evaluator: Evaluator, store: Path, batch: int) -> Shard:
    work, parts = jobs.text_jobs(clips, 0), []
    for start in range(0, len(work), batch):
        some = work[start : start + batch]
        draft = Drafts(subject, store / "drafts").get(some, anchored=False)
        (motions,) = subject.finish(draft, some, [Variant("generator", anchored=False)])
        observed = [job.observed for job in some]
        parts.append(measure(motions.features, [job.length for job in some], observed, evaluator))
    return Shard.join(parts)


def rows(found: Sequence[Placed]) -> tuple[tuple[Cell, ...], ...]:
    """For the evaluator's table."""
    return tuple(
        (
            f"generated, {one.name}: FID / KID / R top-3 / MM-Dist",
            one.clips,
            " / ".join(f"{one.figures[name]:.3f}" for name in ("fid", "kid", "r_top3", "mm_dist")),
            None,
            one.in_order,
        )
        for one in found
    )
