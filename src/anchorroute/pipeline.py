"""AnchorRoute: text + anchors + length -> Result. `_forward` is the paper's line, one statement an arrow:

    A_f -> S_obs -> c_t -> H^s -> z -> x^ -> S_res -> x+

Surprises:
- everything between the first and the last arrow lives in the canonical frame (the clip starts at the origin and
  faces +Z); the placement that `canonicalise` took away is given back to the finished motion.
- the solver observes the fixed-bone body, because that is what a file can hold: an anchor met on the decoder's raw
  joints would be missed by a centimetre in the file.
- sample k of seed s is what seed s + k gives alone, whatever else is in the batch.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute import __version__, models, scaffold, tmd
from anchorroute.anchors import AnchorSet, canonicalise
from anchorroute.conditioning import Memories, needs_draft, remember
from anchorroute.errors import Cancelled, RequestError
from anchorroute.feasibility import doubts
from anchorroute.given import Given, given, staying
from anchorroute.holding import held, planted
from anchorroute.models import Models
from anchorroute.motion import body, features
from anchorroute.motion.canonical import Placement
from anchorroute.motion.motion import Motion
from anchorroute.observation import Observed
from anchorroute.progress import OnStep, solver_progress, streamed, token_progress
from anchorroute.report import measure
from anchorroute.request import TOKEN, Request, anchor_set, checked, each
from anchorroute.result import Result, Sample, State, Step, ranked
from anchorroute.routesolver import Adam, Decode, GaussNewton, Off, Refined, Solution, Term, carried, refine
from anchorroute.text import Text

__all__ = ["AnchorRoute", "Result", "Sample", "Solver", "Step", "load", "untrained"]

Solver = GaussNewton | Adam | Off


#: Rows that go through the networks at once; more would only cost memory.
LARGEST_BATCH = 32


@dataclass(frozen=True)
class Settings:
    """How a call is answered, the same for all of its rows."""

    solver: Solver
    sampling: tmd.Sampling
    steps: int
    on_step: OnStep | None = None
    cancel: Callable[[], bool] | None = None


class AnchorRoute:
    """Text and anchors in, motion out. Safe to call from several threads; `to` moves it to another device."""

    def __init__(self, parts: Models) -> None:
        self.models = parts

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.models.tokenizer.mean.device

    def to(self, device: torch.device | str) -> "AnchorRoute":
        """The same pipeline on another device, for example "cuda"."""
        return AnchorRoute(self.models.to(device))

    # fmt: off
    @overload  # a str is a Sequence[str], too: the first that fits is meant
    def __call__(  # type: ignore[overload-overlap]
                 self, text: str, anchors: AnchorSet | None = None, *, seconds: float | None = None,
                 frames: int | None = None, seed: int = 0, samples: int = 1, solver: str | Solver = "gauss-newton",
                 guidance: float | None = None, steps: int | None = None, on_step: OnStep | None = None,
                 cancel: Callable[[], bool] | None = None, strict: bool = False) -> Result: ...

    @overload
    def __call__(self, text: Sequence[str], anchors: Sequence[AnchorSet | None] | None = None, *,
                 seconds: float | Sequence[float | None] | None = None,
                 frames: int | Sequence[int | None] | None = None,
                 seed: int | Sequence[int] = 0, samples: int = 1, solver: str | Solver = "gauss-newton",
                 guidance: float | None = None, steps: int | None = None, on_step: OnStep | None = None,
                 cancel: Callable[[], bool] | None = None, strict: bool = False) -> list[Result]: ...
    # fmt: on

    def __call__(
        self,
        text: str | Sequence[str],
        anchors: AnchorSet | Sequence[AnchorSet | None] | None = None,
        *,
        seconds: float | Sequence[float | None] | None = None,
        frames: int | Sequence[int | None] | None = None,
        seed: int | Sequence[int] = 0,
        samples: int = 1,
        solver: str | Solver = "gauss-newton",
        guidance: float | None = None,
        steps: int | None = None,
        on_step: OnStep | None = None,
        cancel: Callable[[], bool] | None = None,
        strict: bool = False,
    ) -> Result | list[Result]:
        """Generate one motion, or a list of them from lists.

        Main arguments: `text` in English; `anchors` in your own world (seconds, metres, Y up); `seconds` or `frames`
        (20 a second) of the clip, by default up to the last anchor, else six seconds; `seed`.

        Other arguments: `samples` motions of seeds seed, seed + 1, ... ranked by anchors met and naturalness;
        `solver` "gauss-newton" (meets anchors to the millimetre), "adam" (the paper's), "none", or their settings;
        `guidance` of the text, by default the value chosen on validation; `steps` of the token sampler; `on_step`
        sees progress; `cancel` is asked between steps; `strict` makes doubts about feasibility errors.
        """
        single = isinstance(text, str)
        texts = [text] if isinstance(text, str) else list(text)
        sets = [anchors] if single else each(anchors, len(texts), "anchors")
        requests = [
            checked(one, anchor_set(chosen), seconds=length, frames=count, seed=number)
            for one, chosen, length, count, number in zip(
                texts, sets, each(seconds, len(texts), "seconds"), each(frames, len(texts), "frames"),
                each(seed, len(texts), "seed"),
            )
        ]  # fmt: skip
        if samples < 1:
            raise RequestError(f"samples is {samples}; ask for 1 or more")
        warnings = [doubts(request.anchors, request.seconds, strict=strict) for request in requests]
        settings = self._settings(solver, guidance, steps, on_step, cancel)
        rows = [replace(request, seed=request.seed + k) for request in requests for k in range(samples)]
        made = [sample for batch in _batches(rows) for sample in self._forward(batch, settings)]
        results = [
            _result(request, made[i * samples : (i + 1) * samples], found)
            for i, (request, found) in enumerate(zip(requests, warnings))
        ]
        return results[0] if single else results

    @torch.no_grad()
    def _forward(self, rows: Sequence[Request], settings: Settings) -> list[Sample]:
        """The paper's forward pass for a batch."""
        began = time.perf_counter()
        lengths = torch.tensor([row.frames for row in rows], device=self.device)
        text = self.models.text([row.text for row in rows]).to(self.device)
        moved = [canonicalise(row.anchors) for row in rows]

        observed = [anchors.observed(row.frames) for (anchors, _), row in zip(moved, rows)]  # A_f -> S_obs
        drafts = self._drafts(rows, text, observed, lengths, settings)  # what c_t holds where nothing is set
        memory = remember(self.models.control, observed, lengths, drafts)  # S_obs -> c_t -> H^s
        z = self._tokens(rows, text, memory, lengths, settings)  # H^s -> z
        u = self.models.tokenizer.embed(z)
        joints = self.decoder(lengths)(u)  # z -> x^
        left = [
            scaffold.residuals(x[: row.frames], seen) for x, row, seen in zip(joints.cpu(), rows, observed)
        ]  # x^ -> S_res
        generated = time.perf_counter()
        refined = self._solve(u, observed, lengths, settings, extra=planted(joints, lengths))  # S_res -> x+

        timings = {"generate": generated - began, "solve": time.perf_counter() - generated}
        placements = [placement for _, placement in moved]
        return self._samples(rows, placements, left, u, refined, settings, timings)

    def _tokens(
        self, rows: Sequence[Request], text: Text, memory: Memories, lengths: Int[Tensor, " batch"], settings: Settings
    ) -> Int[Tensor, "batch tokens levels"]:
        """All levels of tokens: the first by Transition Masked Diffusion, the finer ones in one pass each."""
        parts, counts = self.models, lengths // TOKEN
        mask = torch.arange(int(counts.max()), device=self.device) < counts[:, None]
        generators = [torch.Generator().manual_seed(row.seed) for row in rows]
        z = tmd.sample(
            parts.prior.predictor(text, mask, memory.prior), parts.path, counts, generators=generators,
            steps=settings.steps, sampling=settings.sampling, on_step=token_progress(settings.on_step, settings.cancel),
        )  # fmt: skip
        if parts.residual is None:
            return z[..., None]
        return tmd.sample_levels(
            parts.residual.predictor(text, mask, memory.residual), parts.tokenizer.embed, z,
            parts.tokenizer.config.levels, generators=generators, sampling=parts.settings.residual_sampling,
        )  # fmt: skip

    def _drafts(
        self, rows: Sequence[Request], text: Text, observed: Sequence[Observed], lengths: Tensor, settings: Settings
    ) -> list[Float[Tensor, "frames 22 3"] | None] | None:
        """The text-only motions, where some anchor leaves a coordinate open that no other one sets."""
        if not any(needs_draft(seen) for seen in observed):
            return None
        z = self._tokens(rows, text, Memories(), lengths, replace(settings, on_step=None))
        joints = self.decoder(lengths)(self.models.tokenizer.embed(z)).cpu()
        return [motion[: row.frames] for motion, row in zip(joints, rows)]

    def decoder(self, lengths: Int[Tensor, " batch"]) -> Decode:
        """D: soft tokens -> joints of the fixed-bone body, the one that files hold."""
        return _on_fixed_bones(self._recovered(lengths))

    def _recovered(self, lengths: Int[Tensor, " batch"]) -> Decode:
        def decode(u: Float[Tensor, "batch tokens d_u"], /) -> Float[Tensor, "batch frames 22 3"]:
            return features.to_joints(self.models.tokenizer.decode(u, lengths))

        return decode

    def _solve(
        self,
        u: Float[Tensor, "batch tokens d_u"],
        observed: Sequence[Observed],
        lengths: Int[Tensor, " batch"],
        settings: Settings,
        *,
        extra: Sequence[Term],
        decode: Decode | None = None,
        warm: Solution | None = None,
    ) -> Refined:
        seen = [rows.to(self.device) for rows in observed]
        nothing = not any(len(rows) or rows.loop for rows in observed)
        refined = refine(
            u,
            decode or self.decoder(lengths),
            seen,
            lengths,
            Off() if nothing else settings.solver,
            covariance=self.models.covariance,
            extra=extra if isinstance(settings.solver, GaussNewton) and not nothing else (),
            subset=None if decode is not None else lambda some: self.decoder(lengths[some]),
            warm=warm,
            callback=solver_progress(settings.on_step),
            cancel=settings.cancel,
        )
        if "cancelled" in refined.stopped:
            raise Cancelled("stopped while solving")
        return refined

    def _samples(
        self,
        rows: Sequence[Request],
        placements: Sequence[Placement],
        before: Sequence[scaffold.Residuals],
        u: Float[Tensor, "batch tokens d_u"],
        refined: Refined,
        settings: Settings,
        timings: dict[str, float],
        source: Given | None = None,
    ) -> list[Sample]:
        """Refined joints put where the user asked, as motions with their reports."""
        joints = refined.joints.detach().cpu().numpy()
        samples = []
        for index, (row, placement, residuals) in enumerate(zip(rows, placements, before)):
            motion = Motion.from_joints(joints[index, : row.kept], text=row.text).place(placement)
            motion = motion if source is None else source.returned(motion)
            anchors: Any = row.anchors.to_json()["anchors"]
            motion = replace(
                motion, anchors=tuple(anchors), seed=row.seed, model=self.models.name, loop=row.anchors.loop,
                provenance=self._provenance(settings),
            )  # fmt: skip
            report = replace(
                measure(motion, row.anchors), solver=_named(settings.solver), timings=timings,
                warnings=tuple(str(wish) for wish in refined.unmet[index]),
            )  # fmt: skip
            tokens = u[index : index + 1, : row.frames // TOKEN]
            state = State(row, tokens, _own(refined.solution, index, tokens.shape[1], single=len(rows) == 1), source)
            errors = tuple((1000 * residuals.distance).tolist())
            trace = tuple((1000 * refined.trace[:, index]).tolist())
            samples.append(Sample(motion, report, errors, trace, placement, state))
        return samples

    def _settings(
        self,
        solver: str | Solver,
        guidance: float | None,
        steps: int | None,
        on_step: OnStep | None,
        cancel: Callable[[], bool] | None,
    ) -> Settings:
        usual = self.models.settings
        sampling = usual.sampling if guidance is None else replace(usual.sampling, guidance=guidance)
        chosen = self.models.solver(solver) if isinstance(solver, str) else solver
        return Settings(chosen, sampling, usual.steps if steps is None else steps, on_step, cancel)

    def _provenance(self, settings: Settings) -> dict[str, Any]:
        return {
            "program": f"anchorroute {__version__}",
            "solver": _named(settings.solver),
            "guidance": settings.sampling.guidance,
            "steps": settings.steps,
        }

    def adjust(
        self,
        sample: Sample,
        anchors: AnchorSet,
        *,
        solver: str | Solver = "gauss-newton",
        on_step: OnStep | None = None,
        cancel: Callable[[], bool] | None = None,
    ) -> Sample:
        """The sample solved again for changed anchors, from where it stands; the body keeps its start.

        This is what dragging an anchor calls: no tokens are drawn, and while only targets move the solver's Jacobian
        is used again. Anchors must lie within the sample's clip.
        """
        state, settings = sample.state, self._settings(solver, None, None, on_step, cancel)
        row = replace(state.request, anchors=anchors)
        if state.source is not None:
            placement, canonical = sample.placement, state.source.anchors(anchors)
        else:
            canonical, placement = canonicalise(staying(anchors, sample.placement))
        return self._from(state, row, canonical, placement, settings)

    def refine(
        self,
        motion: Motion,
        anchors: AnchorSet,
        *,
        solver: str | Solver = "gauss-newton",
        on_step: OnStep | None = None,
        cancel: Callable[[], bool] | None = None,
        strict: bool = False,
    ) -> Result:
        """Make any given motion meet anchors, in its own world; what no anchor asks to change stays as it was.

        The motion is brought to 20 fps and encoded, and what the tokenizer loses of it is carried along: without
        anchors the same motion comes back. What the solver changes is put onto the motion's own frames.
        """
        source = given(motion, anchors)
        warnings = doubts(anchors, motion.seconds, strict=strict)
        with torch.no_grad():
            lengths = torch.tensor([source.request.frames], device=self.device)
            tokens = self.models.tokenizer.latents(features.from_joints(source.joints[None].to(self.device)), lengths)
        state = State(source.request, tokens, None, source)
        settings = self._settings(solver, None, None, on_step, cancel)
        sample = self._from(state, source.request, source.anchors(anchors), source.placement, settings)
        return _result(source.request, [sample], warnings)

    @torch.no_grad()
    def _from(
        self, state: State, row: Request, canonical: AnchorSet, placement: Placement, settings: Settings
    ) -> Sample:
        """Solve from a state: S_obs, S_res and x+ without a generator."""
        lengths = torch.tensor([row.frames], device=self.device)
        observed, u, decode = [canonical.observed(row.frames)], state.start.to(self.device), None
        if state.source is not None:
            raw = carried(self._recovered(lengths), u, state.source.joints[None, :-1].to(self.device))
            decode = _on_fixed_bones(raw)
        began = time.perf_counter()
        joints = (decode or self.decoder(lengths))(u)
        before = [scaffold.residuals(joints[0], observed[0].to(self.device))]
        extra = planted(joints, lengths) if state.source is None else held(joints[0], observed[0])
        refined = self._solve(u, observed, lengths, settings, extra=extra, decode=decode, warm=state.solution)
        timings = {"solve": time.perf_counter() - began}
        (sample,) = self._samples([row], [placement], before, u, refined, settings, timings, state.source)
        return sample

    def stream(self, text: str, anchors: AnchorSet | None = None, **options: Any) -> Iterator[Step | Result]:
        """Progress as it happens, then the result: `for event in pipe.stream(...)`. Leaving the loop stops the work."""
        return streamed(lambda on_step: self(text, anchors, on_step=on_step, **options))


def load(name: str | Path = models.SHIPPED, *, device: torch.device | str = "cpu") -> AnchorRoute:
    """The pipeline with its weights: "open" (shipped with the package), "debug" (tiny and random), or a folder."""
    return AnchorRoute(models.load(name)).to(device)


def untrained(seed: int = 0) -> AnchorRoute:
    """A tiny pipeline with random weights, for tests: every stage runs, what comes out is noise."""
    return AnchorRoute(models.untrained(seed))


# ----------------------------------------------------------------------------------------------------------- parts


def _batches(rows: Sequence[Request]) -> Iterator[Sequence[Request]]:
    for start in range(0, len(rows), LARGEST_BATCH):
        yield rows[start : start + LARGEST_BATCH]


def _result(request: Request, samples: Sequence[Sample], warnings: tuple[str, ...]) -> Result:
    told = [replace(s, report=replace(s.report, warnings=(*warnings, *s.report.warnings))) for s in samples]
    return Result(request.text, request.anchors, ranked(told))


def _on_fixed_bones(recovered: Decode) -> Decode:
    def decode(u: Float[Tensor, "batch tokens d_u"], /) -> Float[Tensor, "batch frames 22 3"]:
        return body.fixed_bones(recovered(u))

    return decode


def _named(solver: Solver) -> str:
    if isinstance(solver, Adam):
        return f"adam-{solver.steps}"
    return "none" if isinstance(solver, Off) else "gauss-newton"


def _own(solution: Solution, index: int, tokens: int, *, single: bool) -> Solution:
    """One sample's part of a solution. A batch's Jacobian is laid out for the batch's rows, so only a single one
    keeps it."""
    return solution if single else Solution(solution.correction[index : index + 1, :tokens])
