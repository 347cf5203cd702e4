"""Running a table: every variant in every setting and repeat, piece by piece, kept as it goes.

Clips are ordered by a fixed draw, so "the first n" is the same subset everywhere and heavy variants run on a part of
the clips that light ones run on. A piece that is already in the store is not computed again; its name holds no
table's, so tables that ask for the same thing share it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.data.humanml3d import Clip
from anchorroute.evaluate import jobs as made
from anchorroute.evaluate.drafts import Drafts
from anchorroute.evaluate.evaluator import Evaluator
from anchorroute.evaluate.jobs import Job
from anchorroute.evaluate.protocols import COUNTS, Protocol, Setting, Variant
from anchorroute.evaluate.shards import Shard, digest, measure
from anchorroute.evaluate.subject import Subject
from anchorroute.observation import FAMILIES


@dataclass(frozen=True)
class Budget:
    """How much of a table to run."""

    repeats: int = 1
    samples: int | None = None
    """Clips of light variants; None: all."""
    heavy_samples: int | None = None
    """Clips of heavy variants; None: as many as the light ones."""
    batch: int = 32
    counts: tuple[int, ...] = ()
    """Only these K; empty: all of the protocol's."""
    prompts: int = 0
    """Prior table: prompts generated several times for MultiModality (T2M takes 100); 0 leaves the figure out."""
    generations: int = 10
    """How often each of those (T2M: 30)."""

    def clips(self, variant: Variant, available: int) -> int:
        """How many clips a variant runs on."""
        light = min(self.samples or available, available)
        return min(self.heavy_samples or light, light) if variant.heavy else light

    def settings(self, protocol: Protocol) -> tuple[Setting, ...]:
        """The protocol's settings within the budget."""
        return tuple(s for s in protocol.settings if not self.counts or not s.k or s.k in self.counts)


@dataclass(frozen=True)
class Piece:
    """A shard of a table, whether it exists or not."""

    setting: Setting
    repeat: int
    variant: Variant
    clips: int
    path: Path


Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Sweep:
    """One table's run: what is judged, by whom, on which clips."""

    protocol: Protocol
    subject: Subject
    evaluator: Evaluator
    clips: Sequence[Clip]
    fingerprint: str
    budget: Budget
    store: Path

    @staticmethod
    def of(
        protocol: Protocol,
        subject: Subject,
        evaluator: Evaluator,
        clips: Sequence[Clip],
        fingerprint: str,
        budget: Budget,
        store: Path,
    ) -> "Sweep":
        """With the clips in the order of the fixed draw."""
        usable = made.usable(clips)
        ordered = made.subset(usable, len(usable))
        return Sweep(protocol, subject, evaluator, ordered, fingerprint, budget, store)

    def pieces(self) -> Iterator[Piece]:
        """All shards of the table, the variants of one setting and repeat together."""
        for repeat in range(self.budget.repeats):
            for setting in self.budget.settings(self.protocol):
                for variant in self.protocol.variants:
                    count = self.budget.clips(variant, len(self.clips))
                    yield Piece(setting, repeat, variant, count, self._path(setting, repeat, variant, count))

    def _path(self, setting: Setting, repeat: int, variant: Variant, count: int) -> Path:
        identity = {
            "version": 1,
            "data": self.fingerprint,
            "subject": (self.subject.weights(anchored=variant.anchored), self.subject.observes),
            "evaluator": self.evaluator.id,
            "clips": [clip.id for clip in self.clips[:count]],
            "setting": setting,
            "repeat": repeat,
            "variant": (variant.run, variant.steps),
        }
        label = f"{variant.method.replace(' ', '-')}{variant.steps or ''}"
        return self.store / "shards" / f"{setting.name}-{label}-r{repeat}-{digest(identity)}.npz"

    def run(self, progress: Progress | None = None, *, share: tuple[int, int] = (0, 1)) -> int:
        """Compute what is missing; returns how many shards were computed.

        `share` (i, n) leaves all but every n-th setting to other processes or machines that see the same store; what
        one of them did not finish, because it was killed, a later run without a share does.
        """
        pieces = list(self.pieces())
        done, (mine, workers) = 0, share
        groups = groupby(pieces, lambda piece: (piece.setting, piece.repeat))
        for number, ((setting, repeat), group) in enumerate(groups):
            if number % workers != mine:
                continue
            missing = [piece for piece in group if not piece.path.exists()]
            if missing:
                self._compute(setting, repeat, missing, lambda name: _tell(progress, pieces, name))
                done += len(missing)
        _tell(progress, pieces, "")
        return done

    def _compute(self, setting: Setting, repeat: int, pieces: list[Piece], tell: Callable[[str], None]) -> None:
        """Solvers run once for all their snapshots."""
        longest = max(piece.clips for piece in pieces)
        work = jobs_of(setting, self.clips[:longest], repeat)
        for _, group in groupby(sorted(pieces, key=_run_order), lambda piece: (piece.variant.run, piece.clips)):
            together = list(group)
            variants, count = [piece.variant for piece in together], together[0].clips
            parts: list[list[Shard]] = [[] for _ in together]
            for start in range(0, count, self.budget.batch):
                tell(f"{setting.name}, {variants[-1].name}, clip {start} of {count}")
                batch = work[start : min(start + self.budget.batch, count)]
                for shard, kept in zip(self._shards(batch, variants), parts, strict=True):
                    kept.append(shard)
            for piece, shards in zip(together, parts, strict=True):
                Shard.join(shards).save(piece.path)

    def _shards(self, batch: Sequence[Job], variants: list[Variant]) -> list[Shard]:
        draft = Drafts(self.subject, self.store / "drafts").get(batch, anchored=variants[0].anchored)
        return [
            measure(
                motions.features,
                [job.length for job in batch],
                [job.observed for job in batch],
                self.evaluator,
                seconds=motions.seconds + draft.seconds,
                trace=motions.trace,
            )
            for motions in self.subject.finish(draft, batch, variants)
        ]

    def multimodal(self, variant: Variant) -> Float[Tensor, "prompts generations e"] | None:
        """Embeddings of several motions a prompt, for MultiModality; kept like every other piece."""
        count, each = min(self.budget.prompts, len(self.clips)), self.budget.generations
        if not count:
            return None
        setting = Setting("text", reading="multimodal", amount=each)
        path = self._path(setting, 0, variant, count)
        if not path.exists():
            work, parts = made.multimodal_jobs(self.clips[:count], each), []
            for start in range(0, len(work), self.budget.batch):
                batch = work[start : start + self.budget.batch]
                parts += self._shards(batch, [variant])
            Shard.join(parts).save(path)
        return torch.from_numpy(Shard.load(path).embedding).unflatten(0, (count, each))

    def shards(self, variant: Variant, settings: Sequence[Setting]) -> list[list[Shard]]:
        """What is stored of a variant: repeats of settings."""
        wanted = [p for p in self.pieces() if p.variant == variant and p.setting in settings]
        out = []
        for repeat in range(self.budget.repeats):
            out.append([Shard.load(piece.path) for piece in wanted if piece.repeat == repeat])
        return out


def jobs_of(setting: Setting, clips: Sequence[Clip], repeat: int) -> list[Job]:
    """What a setting asks of these clips."""
    if setting.family == "text":
        return made.text_jobs(clips, repeat)
    if setting.reading == "mixed":
        family = FAMILIES[setting.family]
        return [made.anchor_jobs([clip], family, COUNTS[i % len(COUNTS)], repeat)[0] for i, clip in enumerate(clips)]
    if setting.reading:
        return made.six_point_jobs(clips, setting.reading, setting.amount, repeat)
    return made.anchor_jobs(clips, FAMILIES[setting.family], setting.k, repeat)


@torch.no_grad()
def real_shard(clips: Sequence[Clip], evaluator: Evaluator, *, batch: int = 32) -> Shard:
    """The real clips, measured by the same code."""
    parts = []
    for start in range(0, len(clips), batch):
        some = clips[start : start + batch]
        features = torch.nn.utils.rnn.pad_sequence([clip.features for clip in some], batch_first=True)
        nothing = [made.nothing_observed()] * len(some)
        parts.append(measure(features, [clip.frames for clip in some], nothing, evaluator))
    return Shard.join(parts)


def _run_order(piece: Piece) -> tuple[str, int, int]:
    return (repr(piece.variant.run), piece.clips, piece.variant.steps)


def _tell(progress: Progress | None, pieces: Sequence[Piece], name: str) -> None:
    if progress is not None:
        progress(sum(piece.path.exists() for piece in pieces), len(pieces), name)
