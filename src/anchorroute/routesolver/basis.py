"""The interval basis B, the activities a_i, and the ridge projection P_{B,a}.

B is built once from the anchor times. A token belongs to exactly one interval, that of its middle frame (4 l + 1.5),
so B is block diagonal: within an interval it holds the powers of 2s - 1 that the basis asks for, cut to as many
columns as the interval has tokens. An interval without tokens has no columns.

Two projections. `literal` is the paper's ridge on the raw columns; there B'B grows with the interval's tokens, so
that lambda means less where intervals are long. `scale_free` divides the coefficients of an orthonormal basis by
1 + lambda (1 - a), whatever the length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorroute.errors import RequestError
from anchorroute.observation import Observed
from anchorroute.scaffold import intervals

RATE = 4
"""Frames a token."""

Kind = Literal["affine", "transport", "slope", "quadratic", "cubic", "identity"]

_POWERS: dict[str, tuple[int, ...]] = {
    "affine": (0, 1),
    "transport": (0,),
    "slope": (1,),
    "quadratic": (0, 1, 2),
    "cubic": (0, 1, 2, 3),
}

_INDEPENDENT = 1e-6
"""A column that keeps less than this share of its length beside the earlier ones adds nothing."""


@dataclass(frozen=True)
class Basis:
    """B of a batch, with what its columns belong to; padded columns are zero and `real` is False there.

    `interval` is the interval of each column. `left` and `right` give, for every anchor, the intervals that end and
    begin at it, -1 where there is none.
    """

    raw: Float[Tensor, "batch tokens columns"]
    orthonormal: Float[Tensor, "batch tokens columns"]
    interval: Int[Tensor, "batch columns"]
    real: Bool[Tensor, "batch columns"]
    left: Int[Tensor, "batch anchors"]
    right: Int[Tensor, "batch anchors"]
    intervals: Int[Tensor, " batch"]

    def activities(self, errors: Float[Tensor, "batch anchors"], rho: float) -> Float[Tensor, "batch intervals"]:
        """a_i = clip(max(e_L, e_R) / rho, 0, 1); the error of an end that nobody observes is 0."""
        worst = errors.new_zeros(len(errors), int(self.intervals.max()))
        for side in (self.left, self.right):
            seen = torch.where(side >= 0, errors, 0.0)
            worst = worst.scatter_reduce(1, side.clamp(min=0), seen, "amax")
        return (worst / rho).clamp(0, 1)

    def precision(self, activities: Float[Tensor, "batch intervals"], ridge: float) -> Float[Tensor, "batch columns"]:
        """lambda (1 - a), column by column."""
        return ridge * (1 - activities.gather(1, self.interval))

    def scale_free(
        self, delta: Float[Tensor, "batch tokens code"], precision: Float[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch tokens code"]:
        """P(Delta) with alpha = B' Delta / (1 + lambda (1 - a)), B orthonormal."""
        alpha = self.orthonormal.mT @ delta / (1 + precision)[..., None]
        return self.orthonormal @ alpha

    def literal(
        self, delta: Float[Tensor, "batch tokens code"], precision: Float[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch tokens code"]:
        """P(Delta) with alpha = (B'B + lambda diag(1 - a))^-1 B' Delta, B as the paper writes it."""
        gram = self.raw.mT @ self.raw + torch.diag_embed(precision)
        gram = gram + torch.diag_embed((~self.real).to(gram))  # a padded column solves to zero
        return self.raw @ torch.linalg.solve(gram, self.raw.mT @ delta)

    def shuffled(self, activities: Float[Tensor, "batch intervals"], seed: int) -> Float[Tensor, "batch intervals"]:
        """Each sample's activities dealt to other intervals; the deal depends on the seed and the sample alone."""
        dealt = activities.clone()
        for row, count in enumerate(self.intervals.tolist()):
            # Samples with equally many intervals would share one deal if their columns did not enter the seed.
            mark = int(self.raw[row].abs().sum().double() * 1e4)
            order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 7919 + mark))
            dealt[row, :count] = activities[row, order.to(activities.device)]
        return dealt


def build(
    observed: Sequence[Observed],
    lengths: Int[Tensor, " batch"],
    tokens: int,
    kind: Kind = "affine",
    *,
    device: torch.device | str = "cpu",
) -> Basis:
    """B for a batch of clips; `lengths` in frames, `tokens` the padded number of tokens."""
    if kind != "identity" and kind not in _POWERS:
        raise RequestError(f"basis {kind!r} is unknown; there are {', '.join((*_POWERS, 'identity'))}")
    blocks = [_sample(item, int(length), tokens, kind) for item, length in zip(observed, lengths.tolist())]
    columns = max(block.raw.shape[1] for block in blocks)
    anchors = max(len(item) for item in observed)
    raw = np.zeros((len(blocks), tokens, columns))
    orthonormal = np.zeros_like(raw)
    interval = np.zeros((len(blocks), columns), dtype=np.int64)
    left = np.full((len(blocks), anchors), -1, dtype=np.int64)
    right = np.full((len(blocks), anchors), -1, dtype=np.int64)
    for row, block in enumerate(blocks):
        width, rows = block.raw.shape[1], len(block.left)
        raw[row, :, :width], orthonormal[row, :, :width] = block.raw, block.orthonormal
        interval[row, :width] = block.interval
        left[row, :rows], right[row, :rows] = block.left, block.right
    widths = np.array([block.raw.shape[1] for block in blocks])
    return Basis(
        torch.from_numpy(raw).float().to(device),
        torch.from_numpy(orthonormal).float().to(device),
        torch.from_numpy(interval).to(device),
        torch.from_numpy(np.arange(columns) < widths[:, None]).to(device),
        torch.from_numpy(left).to(device),
        torch.from_numpy(right).to(device),
        torch.tensor([block.intervals for block in blocks], device=device),
    )


@dataclass(frozen=True)
class _Block:
    """One sample's part of a `Basis`, without padding."""

    raw: Float[np.ndarray, "tokens columns"]
    orthonormal: Float[np.ndarray, "tokens columns"]
    interval: Int[np.ndarray, " columns"]
    left: Int[np.ndarray, " anchors"]
    right: Int[np.ndarray, " anchors"]
    intervals: int


def _sample(observed: Observed, length: int, tokens: int, kind: Kind) -> _Block:
    bounds = intervals(observed, length).double().numpy()
    count = len(bounds) - 1
    centres = RATE * np.arange(-(-length // RATE)) + 0.5 * (RATE - 1)
    home = np.clip(np.searchsorted(bounds, centres, side="right") - 1, 0, count - 1)
    raw: list[np.ndarray] = []
    orthonormal: list[np.ndarray] = []
    owner: list[int] = []
    for i in range(count):
        mine = np.flatnonzero(home == i)
        s = np.clip((centres[mine] - bounds[i]) / (bounds[i + 1] - bounds[i]), 0, 1)
        for column, unit in _columns(2 * s - 1, kind):
            for target, values in ((raw, column), (orthonormal, unit)):
                full = np.zeros(tokens)
                full[mine] = values
                target.append(full)
            owner.append(i)
    # The nearest boundary: `intervals` merges times that differ by less than a thousandth of a frame.
    here = np.abs(np.clip(observed.frames.double().numpy(), 0, length - 1)[:, None] - bounds).argmin(1)
    return _Block(
        np.stack(raw, 1) if raw else np.zeros((tokens, 0)),
        np.stack(orthonormal, 1) if orthonormal else np.zeros((tokens, 0)),
        np.array(owner, dtype=np.int64),
        here - 1,
        np.where(here < count, here, -1),
        count,
    )


def _columns(
    x: Float[np.ndarray, " tokens"], kind: Kind
) -> list[tuple[Float[np.ndarray, " tokens"], Float[np.ndarray, " tokens"]]]:
    """An interval's columns, raw and orthonormal, x = 2s - 1 at its tokens."""
    if kind == "identity":
        return [(unit, unit) for unit in np.eye(len(x))]
    columns: list[tuple[np.ndarray, np.ndarray]] = []
    for power in _POWERS[kind][: len(x)]:
        column = x**power
        if kind == "slope":
            column = column - column.mean()  # a slope that carries a mean would be transport by another name
        rest = column - sum((unit * (unit @ column) for _, unit in columns), np.zeros_like(column))
        rest = rest - sum((unit * (unit @ rest) for _, unit in columns), np.zeros_like(column))
        norm = float(np.linalg.norm(rest))
        if norm > _INDEPENDENT * max(float(np.linalg.norm(column)), 1.0):
            columns.append((column, rest / norm))
    return columns
