"""A batch of refinement problems: residuals as a function of the soft tokens, for all samples or some of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute.errors import RequestError
from anchorroute.observation import Observed
from anchorroute.routesolver.result import Decode, Subset, Unmet
from anchorroute.routesolver.rows import Rows, Term, anchor_term, heading_term, loop_term
from anchorroute.scaffold import Residuals, residuals


@dataclass
class Problem:
    """What every solver shares: the decoder, the rows, and a count of passes through the decoder."""

    u0: Float[Tensor, "batch tokens code"]
    decode: Decode
    rows: Rows
    observed: list[Observed]
    lengths: Int[Tensor, " batch"]
    subset: Subset | None = None
    decodes: int = field(default=0)

    @classmethod
    def of(
        cls,
        u0: Float[Tensor, "batch tokens code"],
        decode: Decode,
        observed: Sequence[Observed],
        lengths: Int[Tensor, " batch"],
        extra: Sequence[Term],
        subset: Subset | None,
    ) -> "Problem":
        """Check that the parts belong together and lay out the rows: anchors, headings, loop, then `extra`."""
        if not len(u0) == len(observed) == len(lengths):
            raise RequestError(
                f"{len(u0)} samples of soft tokens, {len(observed)} anchor sets and {len(lengths)} lengths given; "
                "refine needs one of each a sample"
            )
        if not torch.isfinite(u0).all():
            raise RequestError("the soft tokens hold numbers that are not finite; check what embedded them")
        on_cpu = [item.to("cpu") for item in observed]
        terms = [anchor_term(on_cpu, lengths.cpu())]
        if any(item.heading is not None and not item.heading.isnan().all() for item in on_cpu):
            terms.append(heading_term(on_cpu, lengths.cpu()))
        wanted = torch.tensor([item.loop for item in on_cpu])
        if wanted.any():
            terms.append(loop_term(wanted, lengths.cpu()))
        rows = Rows.of([term.to(u0.device) for term in (*terms, *extra)])
        return cls(u0.detach(), decode, rows, on_cpu, lengths.to(u0.device), subset)

    def joints(self, u: Float[Tensor, "batch tokens code"]) -> Float[Tensor, "batch frames 22 3"]:
        """One pass forward."""
        self.decodes += len(u)
        return self.decode(u)

    def take(self, samples: Int[Tensor, " some"]) -> tuple[Decode, Rows]:
        """Decoder and rows of some of the samples; needs `subset`."""
        if self.subset is None:
            raise RequestError("part of a batch can be decoded only with `subset`, which makes a decoder of it")
        return self.subset(samples), self.rows[samples]

    def anchor_errors(self, errors: Float[Tensor, "batch groups"]) -> Float[Tensor, "batch anchors"]:
        """Each anchor's error: its distance, or the arc of its heading if that is further off."""
        counts = [term.tolerance.shape[1] for term in self.rows.terms]
        positions = errors[:, : counts[0]]
        if len(counts) > 1 and self.rows.terms[1].name == "heading":
            return torch.maximum(positions, errors[:, counts[0] : counts[0] + counts[1]])
        return positions

    def mean_error(self, errors: Float[Tensor, "batch groups"]) -> Float[Tensor, " batch"]:
        """Control Error of each sample: the mean distance over the anchors that set a position."""
        positional = self.rows.terms[0].tolerance > 0
        distances = errors[:, : positional.shape[1]]
        return (distances * positional).sum(1) / positional.sum(1).clamp(min=1)

    def residuals(self, joints: Float[Tensor, "batch frames 22 3"]) -> list[Residuals]:
        """S_res of every sample, measured on its own frames."""
        clips = zip(joints, self.lengths.tolist(), self.observed)
        return [residuals(clip[:length], item.to(clip.device)) for clip, length, item in clips]

    def open_wishes(
        self,
        before: Float[Tensor, "batch groups"],
        after: Float[Tensor, "batch groups"],
        why: Sequence[dict[int, str]],
    ) -> list[tuple[Unmet, ...]]:
        """Every group beyond its tolerance, or further away than it was, with the reason that the solver gives."""
        tolerance, names = self.rows.tolerance, self.rows.names()
        asked = tolerance > 0
        missed = asked & (after > tolerance)
        found = []
        for b, reasons in enumerate(why):
            found.append(
                tuple(
                    Unmet(
                        what=names[g][0],
                        index=names[g][1],
                        error=float(after[b, g]),
                        before=float(before[b, g]),
                        tolerance=float(tolerance[b, g]),
                        why=_reason(reasons.get(g, "the steps ran out"), float(before[b, g]), float(after[b, g])),
                    )
                    for g in missed[b].nonzero().flatten().tolist()
                )
            )
        return found


def _reason(reason: str, before: float, after: float) -> str:
    if after > before + 1e-3:
        return f"{reason}; moved {1000 * (after - before):.0f} mm further off, so that the others are met"
    return reason
