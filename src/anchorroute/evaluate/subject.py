"""What is being judged, behind a seam small enough for tests: something that drafts soft tokens and refines them.

`ModelSubject` runs the trained parts as the pipeline does, with two differences that tables need: it stops at the soft
tokens, so that all variants of a table start from the same draft, and the solver observes either the joints that the
features give (as the paper does) or the fixed-bone body (as the product does).
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute import tmd
from anchorroute.conditioning import Memories, needs_draft, remember
from anchorroute.errors import RequestError
from anchorroute.evaluate import baselines
from anchorroute.evaluate.jobs import TOKEN, Job
from anchorroute.evaluate.protocols import Variant
from anchorroute.models import Models
from anchorroute.motion import body
from anchorroute.motion import features as feats
from anchorroute.routesolver import Adam, GaussNewton, refine
from anchorroute.text import Text

Observation = Literal["features", "body"]


@dataclass(frozen=True)
class Draft:
    """Soft tokens of a batch before any refinement."""

    u: Float[Tensor, "batch tokens d_u"]
    seconds: float


@dataclass(frozen=True)
class Motions:
    """What a variant made of a draft: features padded to the longest, and the wall time from the draft on."""

    features: Float[Tensor, "batch frames 263"]
    seconds: float
    trace: Float[Tensor, "batch steps"] | None = None


class Subject(Protocol):
    """Whatever a table judges."""

    @property
    def id(self) -> str:
        """What a table says it judged."""

    @property
    def observes(self) -> str:
        """Which joints a solver meets anchors on."""

    def weights(self, *, anchored: bool) -> str:
        """Names the weights that a draft depends on, and how they are sampled: others' drafts are never mixed in."""

    def draft(self, jobs: Sequence[Job], *, anchored: bool) -> Draft:
        """Generate."""

    def finish(self, draft: Draft, jobs: Sequence[Job], variants: Sequence[Variant]) -> list[Motions]:
        """Refine as the variants ask; all of them are snapshots of one run."""


@dataclass(frozen=True)
class ModelSubject:
    """The trained parts."""

    models: Models
    text_digest: str
    """Of tokenizer, prior and finer levels, and of how they are sampled."""
    control_digest: str
    """Of the anchors' adapters."""
    observes: Observation = "features"

    @staticmethod
    def of(models: Models, observes: Observation = "features") -> "ModelSubject":
        """With digests of all weights, so that stored pieces of other weights are never taken for these."""
        text = [models.tokenizer, models.prior, *([] if models.residual is None else [models.residual])]
        return ModelSubject(
            models, _digest(text, repr(models.settings)), _digest([*models.control.values()], ""), observes
        )

    @property
    def id(self) -> str:
        """The model's name, its weights, and what the solver observes."""
        return f"{Path(self.models.name).name or 'unnamed'}-{self.text_digest}-{self.control_digest}-{self.observes}"

    def weights(self, *, anchored: bool) -> str:
        """Without anchors the adapters do not matter."""
        return f"{self.text_digest}-{self.control_digest}" if anchored else self.text_digest

    @torch.no_grad()
    def draft(self, jobs: Sequence[Job], *, anchored: bool) -> Draft:
        """Tokens of a batch, by the steps of the pipeline."""
        began = time.perf_counter()
        parts = self.models
        lengths = torch.tensor([job.length for job in jobs])
        text = parts.text([job.caption for job in jobs])
        memory = Memories()
        if anchored:
            observed = [job.observed for job in jobs]
            drafts = None
            if any(needs_draft(rows) for rows in observed):
                z = self._tokens(jobs, text, Memories(), lengths)
                joints = feats.to_joints(parts.tokenizer.decode(parts.tokenizer.embed(z), lengths))
                drafts = [clip[: job.length] for clip, job in zip(joints, jobs, strict=True)]
            memory = remember(parts.control, observed, lengths, drafts)
        z = self._tokens(jobs, text, memory, lengths)
        return Draft(parts.tokenizer.embed(z), time.perf_counter() - began)

    def _tokens(
        self, jobs: Sequence[Job], text: Text, memory: Memories, lengths: Int[Tensor, " batch"]
    ) -> Int[Tensor, "batch tokens levels"]:
        parts, counts = self.models, lengths // TOKEN
        mask = torch.arange(int(counts.max())) < counts[:, None]
        generators = [torch.Generator().manual_seed(job.seed) for job in jobs]
        z = tmd.sample(
            parts.prior.predictor(text, mask, memory.prior),
            parts.path,
            counts,
            generators=generators,
            steps=parts.settings.steps,
            sampling=parts.settings.sampling,
        )
        if parts.residual is None:
            return z[..., None]
        return tmd.sample_levels(
            parts.residual.predictor(text, mask, memory.residual),
            parts.tokenizer.embed,
            z,
            parts.tokenizer.config.levels,
            generators=generators,
            sampling=parts.settings.residual_sampling,
        )

    def finish(self, draft: Draft, jobs: Sequence[Job], variants: Sequence[Variant]) -> list[Motions]:
        """Decode, refine or bend."""
        began = time.perf_counter()
        method = variants[0].method
        lengths = torch.tensor([job.length for job in jobs])
        if method in ("adam", "gauss-newton"):
            return self._solve(draft, jobs, lengths, variants)
        with torch.no_grad():
            features = self.models.tokenizer.decode(draft.u, lengths)
            if method in ("warp", "projection", "projection on bones"):
                features = _bent(features, jobs, method)
        return [Motions(features, time.perf_counter() - began)]

    def _solve(
        self, draft: Draft, jobs: Sequence[Job], lengths: Int[Tensor, " batch"], variants: Sequence[Variant]
    ) -> list[Motions]:
        began = time.perf_counter()
        steps = tuple(sorted({variant.steps for variant in variants} - {0}))
        config = self._config(variants[0], steps)
        refined = refine(
            draft.u,
            self.decoder(lengths),
            [job.observed for job in jobs],
            lengths,
            config,
            covariance=self.models.covariance,
            subset=lambda rows: self.decoder(lengths[rows]),
        )
        took = time.perf_counter() - began
        trace = _widened(refined.trace.T, config.steps if isinstance(config, Adam) else config.iterations)
        out = []
        for variant in variants:
            last = not steps or variant.steps == steps[-1]
            u = refined.u if last else refined.snapshots[variant.steps]
            with torch.no_grad():
                features = self.models.tokenizer.decode(u, lengths)
            share = 1.0 if last else variant.steps / steps[-1]
            out.append(Motions(features, took * share, trace if last else None))
        return out

    def decoder(self, lengths: Int[Tensor, " batch"]) -> Callable[[Tensor], Tensor]:
        """Soft tokens to the joints that the solver observes."""

        def decode(u: Float[Tensor, "batch tokens d_u"]) -> Float[Tensor, "batch frames 22 3"]:
            joints = feats.to_joints(self.models.tokenizer.decode(u, lengths))
            return body.fixed_bones(joints) if self.observes == "body" else joints

        return decode

    def _config(self, variant: Variant, steps: tuple[int, ...]) -> Adam | GaussNewton:
        settings: dict[str, Any] = dict(variant.settings)
        if variant.method == "adam":
            base = self.models.solver("adam")
            if not isinstance(base, Adam):
                raise RequestError("The model's Adam settings are not Adam's.")
            return replace(base, steps=steps[-1], snapshots=steps[:-1], **settings)
        base = self.models.solver("gauss-newton")
        if not isinstance(base, GaussNewton):
            raise RequestError("The model's Gauss-Newton settings are not Gauss-Newton's.")
        return replace(base, **settings)


def _digest(modules: Sequence[torch.nn.Module], more: str) -> str:
    content = hashlib.sha256(more.encode())
    for module in modules:
        for name, value in sorted(module.state_dict().items()):
            content.update(name.encode())
            content.update(value.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:8]


def _widened(trace: Float[Tensor, "batch steps"], steps: int) -> Float[Tensor, "batch all"]:
    """Solvers stop when they are done: the last value goes on, so that batches of one run have equal widths."""
    rest = trace[:, -1:].expand(-1, max(steps + 1 - trace.shape[1], 0))
    return torch.cat([trace, rest], dim=1)[:, : steps + 1]


def _bent(features: Float[Tensor, "batch frames 263"], jobs: Sequence[Job], method: str) -> Tensor:
    """Baselines that work on joints, turned back into features."""
    out = features.clone()
    for row, job in enumerate(jobs):
        joints = feats.to_joints(features[row, : job.length])
        bent = baselines.warp(joints, job.observed) if method == "warp" else baselines.project(joints, job.observed)
        if method == "projection on bones":
            bent = body.fixed_bones(bent)
        out[row, : job.length] = baselines.to_features(bent)
    return out
